"""What do 64 lanes cost, next to two workers without lanes on the same work?

    python benchmarks/lanes.py            # about five minutes
    python benchmarks/lanes.py --quick

Each side runs in a process of its own, in turn, and takes the same number of elements after its
workers have settled. Printed are the ratios to two workers without lanes, by the clock and by the
processor time of all processes of the side: 1.10 is 10 % slower. Then what a lane costs in memory
and in a state, how long a restore takes, and how long counting takes.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import wholegrain as wg
from wholegrain.experimental import (
    ElasticIterator,
    FirstFitPackIterDataset,
    WindowShuffleIterDataset,
)
from wholegrain.sharding import ShardOptions

LANES, BATCH = 64, 256
_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")


def plus_one(x: int) -> int:
    return x + 1


def work(x: int) -> int:
    """Compute for some 25 microseconds."""
    return x + sum(range(2000)) % 2


def more_work(x: int) -> int:
    """Compute for some 80 microseconds."""
    return x + sum(range(6500)) % 2


def image(x: int) -> Any:
    """Return 48 KB after some 100 microseconds of numpy."""
    pixels = np.full((64, 64, 3), x % 255, np.float32)
    return {"image": np.tanh(pixels), "label": x}


def tokens(x: int) -> Any:
    return {"tokens": np.full(20 + x % 200, x, np.int64)}


def keep(x: int) -> bool:
    return x % 3 != 0


def _range() -> Any:
    return wg.MapDataset.range(1 << 40).shuffle(seed=1)


def packed() -> Any:
    ds = WindowShuffleIterDataset(
        _range().filter(keep).map(tokens).to_iter_dataset(), window_size=100, seed=1
    )
    return FirstFitPackIterDataset(ds, length_struct={"tokens": 1024}, num_packing_bins=16)


PIPELINES: dict[str, tuple[Callable[[], Any], int]] = {
    "ints, 1 microsecond": (lambda: _range().map(plus_one).to_iter_dataset(), 200_000),
    "ints, 25 microseconds": (lambda: _range().map(work).to_iter_dataset(), 40_000),
    "ints, 80 microseconds": (lambda: _range().map(more_work).to_iter_dataset(), 30_000),
    "batches of 16 images": (lambda: _range().map(image).batch(16).to_iter_dataset(), 2_000),
    "filtered, shuffled in windows, packed": (packed, 10_000),
}
SIDES = ("2 workers", "2 workers, 64 lanes", '"auto" workers, 64 lanes')


def open_side(name: str, side: int) -> Any:
    ds = PIPELINES[name][0]()
    lanes = LANES if side else None
    workers: Any = "auto" if side == 2 else 2
    options = wg.MultiprocessingOptions(workers, 16, max_workers=2, lanes=lanes)
    return iter(ds.mp_prefetch(options))


def tree() -> Iterator[Path]:
    """Yield the folders in /proc of this process and of those that it has started."""
    parents = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            try:
                after_name = (folder / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue  # It has ended.
            parents[int(folder.name)] = int(after_name[1])
    for pid in parents:
        parent = pid
        while parent > 1 and parent != os.getpid():
            parent = parents.get(parent, 0)
        if parent == os.getpid():
            yield Path("/proc", str(pid))


def cpu_seconds() -> float:
    fields = [(folder / "stat").read_text().rpartition(")")[2].split() for folder in tree()]
    return sum(int(one[11]) + int(one[12]) for one in fields) / _TICKS


def resident_bytes() -> int:
    return _PAGE * sum(int((folder / "statm").read_text().split()[1]) for folder in tree())


def run_side(name: str, side: int, quick: bool) -> None:
    """Print the seconds and the processor seconds of a side as JSON."""
    count = PIPELINES[name][1] // (4 if quick else 1)
    it = open_side(name, side)
    for _ in range(count):  # Each lane first finds out how to read, so the lead is long.
        next(it)
    start, cpu = time.perf_counter(), cpu_seconds()
    for _ in range(count):
        next(it)
    print(json.dumps([time.perf_counter() - start, cpu_seconds() - cpu]))
    it.close()


def _result_of(*arguments: str) -> Any:
    command = [sys.executable, __file__, *arguments]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def compare(rounds: int, *flags: str) -> None:
    for name, (_, count) in PIPELINES.items():
        found: list[list[Any]] = [[] for _ in SIDES]
        for number in range(rounds):
            for side in sorted(range(len(SIDES)), reverse=bool(number % 2)):
                found[side].append(_result_of("--side", str(side), "--of", name, *flags))
        print(f"\n{name}  (medians of {rounds} ratios)")
        for side, label in enumerate(SIDES):
            ratios = [
                [
                    ours[which] / base[which]
                    for ours, base in zip(found[side], found[0], strict=True)
                ]
                for which in (0, 1)
            ]
            cpu = statistics.median(one[1] for one in found[side])
            taken = count // (4 if flags else 1)
            print(
                f"  {label:28} clock {statistics.median(ratios[0]):5.2f}"
                f"   processor {statistics.median(ratios[1]):5.2f}"
                f"   {cpu / taken * 1e6:8.1f} us of processor time per element"
            )


# What a lane costs besides time.


def run_memory(name: str, lanes: int) -> None:
    """Print the memory of all processes, and the size of a state, as JSON."""
    it = iter(PIPELINES[name][0]().mp_prefetch(wg.MultiprocessingOptions(2, lanes=lanes)))
    for _ in range(3000):
        next(it)
    print(json.dumps([resident_bytes(), len(json.dumps(it.get_state()))]))
    it.close()


def memory() -> None:
    print("\nWhat a lane costs: from 2 lanes to 64, in two workers")
    for name in ("ints, 25 microseconds", "filtered, shuffled in windows, packed"):
        two, many = (_result_of("--lanes", str(lanes), "--of", name) for lanes in (2, LANES))
        room, state = ((b - a) / (LANES - 2) for a, b in zip(two, many, strict=True))
        print(f"  {name:40} {room / 1024:6.0f} KiB of memory, {state:5.0f} bytes of a state")


def _elastic(ds: Any, **more: Any) -> Any:
    return ElasticIterator(ds, BATCH, ShardOptions(0, 1), lanes=LANES, **more)


def restore() -> None:
    print("\nFrom a state to the next batch of 256 rows, 64 lanes without workers")
    ints = wg.MapDataset.range(1 << 40).shuffle(seed=1).map(plus_one)
    for name, ds in (("ints", ints), ("filtered, shuffled in windows, packed", packed())):
        for steps in (5, 100):
            it = _elastic(ds, steps=10**6)
            for _ in range(steps):
                next(it)
            state = json.loads(json.dumps(it.get_state()))
            times = []
            for opened in (None, state):
                other = _elastic(ds, steps=10**6)
                start = time.perf_counter()
                if opened is not None:
                    other.set_state(opened)
                next(other)
                times.append(time.perf_counter() - start)
                other.close()
            it.close()
            print(
                f"  {name:40} at the start {times[0] * 1e3:7.1f} ms,"
                f" after {steps:3} steps {times[1] * 1e3:7.1f} ms"
            )


def count() -> None:
    print("\nCounting 1,000,000 elements with a cheap filter, 64 lanes")
    ds = wg.MapDataset.range(1_000_000).shuffle(seed=1).filter(keep)
    for workers in (0, 2):
        it = _elastic(ds, steps="count", multiprocessing_options=wg.MultiprocessingOptions(workers))
        start = time.perf_counter()
        steps = it.steps_per_epoch
        print(f"  {workers} workers: {time.perf_counter() - start:.2f} s for {steps} steps")
        it.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="fewer elements and rounds")
    for flag, kind in (("--side", int), ("--lanes", int), ("--of", str)):
        parser.add_argument(flag, type=kind, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.side is not None:
        run_side(given.of, given.side, given.quick)
    elif given.lanes is not None:
        run_memory(given.of, given.lanes)
    else:
        compare(3 if given.quick else 5, *(["--quick"] if given.quick else []))
        memory()
        restore()
        count()


if __name__ == "__main__":
    main()
