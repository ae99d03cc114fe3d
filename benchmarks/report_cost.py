"""What `it.report()` costs a run that nobody asks for one: with it and without it, in turn.

    python benchmarks/report_cost.py [seconds]

Prints the ratio of the processor time per element, with and without. A process each runs them, in
turn, so that what else the machine does hits both. Two processes that do the same differ by a few
percent, so there are several pairs of them, and the error of their mean says what it is worth.
"""

import argparse
import itertools
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import wholegrain as wg

_ROWS = np.zeros((4096, 64), np.float32)
# Whether threads read is decided while they run, by what reads take: no two runs are alike.
_HERE = wg.ReadOptions(num_threads=0)
_PAIRS = 12


def _plus_one(x: Any) -> Any:
    return x + 1


def _keep(x: Any) -> bool:
    return bool(x % 3)


_computed = 0.0


def _slow(x: Any) -> Any:
    """Compute for about a millisecond; note how long, which is the same with reports or without."""
    global _computed
    start = time.thread_time()
    total = sum(range(70_000))
    _computed += time.thread_time() - start
    return total + x


def _sum(x: Any) -> Any:
    return {"x": x["x"] + 1, "sum": x["x"].sum()}


PIPELINES: dict[str, Callable[[], Any]] = {
    "range": lambda: wg.MapDataset.range(10**9).to_iter_dataset(),
    "maps in a row": lambda: (
        wg.MapDataset.range(10**9)
        .shuffle(seed=1)
        .map(_plus_one)
        .map(_plus_one)
        .to_iter_dataset(_HERE)
    ),
    "maps of an iterator": lambda: (
        wg.MapDataset.range(10**9).to_iter_dataset().map(_plus_one).map(_plus_one)
    ),
    "filter and batch": lambda: (
        wg.MapDataset.range(10**9).to_iter_dataset().map(_plus_one).filter(_keep).batch(64)
    ),
    "arrays in batches": lambda: (
        wg.MapDataset.source([{"x": row} for row in _ROWS])
        .repeat(10**5)
        .map(_sum)
        .batch(32)
        .to_iter_dataset(_HERE)
    ),
    "random map": lambda: (
        wg.MapDataset.range(10**9)
        .seed(1)
        .random_map(lambda x, rng: x + rng.random())
        .to_iter_dataset(_HERE)
        .batch(16)
    ),
    "elements of 1 ms": lambda: (
        wg.MapDataset.range(10**9).map(_slow).map(_plus_one).to_iter_dataset(_HERE).batch(4)
    ),
    "1 ms in an iterator": lambda: (
        wg.MapDataset.range(10**9).to_iter_dataset(_HERE).map(_slow).map(_plus_one).batch(4)
    ),
}


def _serve(name: str) -> None:
    """Take elements of a pipeline, as many as each line of the input says; print what it took."""
    iterator = iter(PIPELINES[name]())
    for line in sys.stdin:
        start, computed = time.process_time(), _computed
        for _ in itertools.islice(iterator, int(line)):
            pass
        print(time.process_time() - start, _computed - computed, flush=True)


class _Process:
    """A process that runs a pipeline, with or without reports."""

    def __init__(self, name: str, reports: bool) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__, "--serve", name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "WHOLEGRAIN_REPORT": str(int(reports))},
        )

    def cost(self, count: int) -> tuple[float, float]:
        """Return the processor time that so many elements take, and the functions' part of it."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(count, file=self._process.stdin, flush=True)
        spent, computed = map(float, self._process.stdout.readline().split())
        return spent, computed

    def close(self) -> None:
        self._process.communicate()


def _ratio(name: str, seconds: float) -> tuple[float, float, float]:
    pairs = [_costs(name, seconds / _PAIRS) for _ in range(_PAIRS)]
    spent = [round_ for pair in pairs for round_ in pair]
    # All rounds for what is done now and then; the middle one for what is always there.
    error = statistics.stdev(_whole(pair) for pair in pairs) / _PAIRS**0.5
    return _whole(spent), statistics.median(on / off for on, off in spent), error


def _whole(spent: list[tuple[float, float]]) -> float:
    return sum(on for on, _ in spent) / sum(off for _, off in spent)


def _costs(name: str, seconds: float) -> list[tuple[float, float]]:
    """Return what the same elements take with reports and without, again and again."""
    processes = {on: _Process(name, on) for on in (True, False)}
    count = 16
    while processes[False].cost(count)[0] < 0.04:
        count *= 2
    for process in processes.values():
        process.cost(8 * count)  # The first elements are looked at more closely.
    spent: list[tuple[float, float]] = []
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        total, computed = {True: 0.0, False: 0.0}, {True: 0.0, False: 0.0}
        for on in (True, False, False, True):
            cost = processes[on].cost(count)
            total[on] += cost[0]
            computed[on] += cost[1]
        # What the functions take differs from run to run by more than what is looked for.
        spent.append((total[True] - computed[True] + computed[False], total[False]))
    for process in processes.values():
        process.close()
    return spent


def main() -> None:
    """Measure each pipeline, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("seconds", nargs="?", type=float, default=24.0, help="for each pipeline")
    parser.add_argument("--only", help="a word in the names of the pipelines to measure")
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve:
        _serve(arguments.serve)
        return
    seconds = arguments.seconds
    columns = f"{'pipeline':<24}{'all':>8}{'+-':>8}{'median':>8}"
    print(f"{columns}   processor time with reports / without")
    for name in [name for name in PIPELINES if (arguments.only or "") in name]:
        whole, middle, error = _ratio(name, seconds)
        print(f"{name:<24}{whole:>8.3f}{error:>8.3f}{middle:>8.3f}", flush=True)


if __name__ == "__main__":
    main()
