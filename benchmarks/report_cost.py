"""What `it.report()` costs a run that nobody asks for one: with it and without it, in turn.

    python benchmarks/report_cost.py [seconds]

Prints the ratio of the processor time per element, with and without. A process each runs them, in
turn, so that what else the machine does hits both. Where its objects happen to lie, and which core
it runs on, makes a process quicker or slower by several percent: so both are forked from one
process and stay on one core, and there are many such pairs, each with other places. The error of
their mean says what it is worth. Each process runs for about a second: as time goes on, reports
look less and less often.
"""

import argparse
import itertools
import json
import os
import random
import socket
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
_PROCESSES, _PAIRS = 6, 6


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


class _Process:
    """A process that runs a pipeline, with or without reports. A copy of this one."""

    def __init__(self, name: str, reports: bool) -> None:
        self._orders, orders = socket.socketpair()
        self._pid = os.fork()
        if self._pid == 0:
            os.environ["WHOLEGRAIN_REPORT"] = str(int(reports))
            _serve(PIPELINES[name](), orders)
            os._exit(0)
        orders.close()

    def cost(self, count: int) -> tuple[float, float]:
        """Return the processor time that so many elements take, and the functions' part of it."""
        self._orders.send(str(count).encode())
        spent, computed = map(float, self._orders.recv(1024).split())
        return spent, computed

    def close(self) -> None:
        self._orders.send(b"0")  # Closing it would not do: the other process has a copy.
        os.waitpid(self._pid, 0)


def _serve(ds: Any, orders: socket.socket) -> None:
    """Take as many elements as each order says; answer with what it took."""
    iterator = iter(ds)
    while count := int(orders.recv(1024)):
        start, computed = time.process_time(), _computed
        for _ in itertools.islice(iterator, count):
            pass
        orders.send(f"{time.process_time() - start} {_computed - computed}".encode())


def _measure(name: str, seconds: float) -> tuple[list[float], list[float]]:
    """Return what the same elements take with reports and without, again and again."""
    kept = [bytes(random.randrange(16, 4096)) for _ in range(random.randrange(4096))]
    del kept[:: random.randrange(2, 5)]  # Objects made from now on lie somewhere else.
    processes = {on: _Process(name, on) for on in random.sample((True, False), 2)}
    count = 16
    while processes[False].cost(count)[0] < 0.04:
        count *= 2
    for process in processes.values():
        process.cost(2 * count)
    with_reports, without = [], []
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        total, computed = {True: 0.0, False: 0.0}, {True: 0.0, False: 0.0}
        for on in (True, False, False, True):
            cost = processes[on].cost(count)
            total[on] += cost[0]
            computed[on] += cost[1]
        # What the functions take differs from run to run by more than what is looked for.
        with_reports.append(total[True] - computed[True] + computed[False])
        without.append(total[False])
    for process in processes.values():
        process.close()
    return with_reports, without


def _ratio(name: str, seconds: float) -> tuple[float, float, float]:
    """Return the mean of the ratios of all pairs, the median of all rounds, and its error."""
    pairs = [pair for _ in range(_PROCESSES) for pair in _in_new_process(name, seconds)]
    ratios = [sum(on) / sum(off) for on, off in pairs]
    # All rounds for what is done now and then; the middle one for what is always there.
    middle = statistics.median(a / b for pair in pairs for a, b in zip(*pair, strict=True))
    return statistics.mean(ratios), middle, statistics.stdev(ratios) / len(ratios) ** 0.5


def _in_new_process(name: str, seconds: float) -> list[Any]:
    command = [sys.executable, __file__, str(seconds), "--process", name]
    printed = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
    return [json.loads(line) for line in printed.splitlines()]


def main() -> None:
    """Measure each pipeline, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("seconds", nargs="?", type=float, default=72.0, help="for each pipeline")
    parser.add_argument("--only", help="a word in the names of the pipelines to measure")
    parser.add_argument("--process", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    seconds = arguments.seconds
    if arguments.process:
        if hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(0, {random.choice(sorted(os.sched_getaffinity(0)))})
        for _ in range(_PAIRS):
            pair = _measure(arguments.process, seconds / (_PROCESSES * _PAIRS))
            print(json.dumps(pair), flush=True)
        return
    columns = f"{'pipeline':<24}{'all':>8}{'+-':>8}{'median':>8}"
    print(f"{columns}   processor time with reports / without")
    for name in [name for name in PIPELINES if (arguments.only or "") in name]:
        whole, middle, error = _ratio(name, seconds)
        print(f"{name:<24}{whole:>8.3f}{error:>8.3f}{middle:>8.3f}", flush=True)


if __name__ == "__main__":
    main()
