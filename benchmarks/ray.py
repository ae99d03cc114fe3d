"""What do actors of a Ray cluster cost, next to bare actors and to Ray Data?

    pip install 'wholegrain[ray]' 'ray[data]'
    python benchmarks/ray.py            # a few minutes
    python benchmarks/ray.py --quick

Starts a cluster of its own. Each comparison runs the same work on all sides, in turns, and prints
for each side the best rate of the rounds by the clock and by the processor time of all processes
(this one, the actors and Ray's own), and the ratio to the first side.
"""

import sys

sys.path.pop(0)  # This folder, where `import ray` would find this file.

import argparse
import functools
import logging
import os
import shutil
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

try:
    import psutil
    import ray
except ImportError:
    sys.exit("Skipped: it needs `pip install 'ray[data]' psutil`.")

import wholegrain as wg
from wholegrain.ray import RayBackend

MB = 1 << 20
IN_FLIGHT = 4


def ready(nbytes: int, index: int) -> Any:
    """Return a new batch, for nearly no work, so that the transport counts."""
    return np.zeros(nbytes, np.uint8)


def small(index: int) -> Any:
    return {"x": np.full(16, index, np.float32), "y": index}


def busy(index: int) -> int:
    """Compute for about 20 ms."""
    until = time.thread_time() + 0.02
    while time.thread_time() < until:
        pass
    return index


@ray.remote(num_cpus=1, max_concurrency=IN_FLIGHT)
class Bare:
    """An actor that returns ready batches."""

    def __init__(self, nbytes: int) -> None:
        self.batch = np.zeros(nbytes, np.uint8)

    def next(self) -> Any:
        return self.batch


def bare(nbytes: int, count: int) -> Iterator[Any]:
    actor = Bare.remote(nbytes)
    calls = deque(actor.next.remote() for _ in range(IN_FLIGHT))
    for number in range(count):
        yield ray.get(calls.popleft())
        if number + IN_FLIGHT < count:
            calls.append(actor.next.remote())
    ray.kill(actor)


def ours(function: Callable[[int], Any], count: int, workers: int) -> Any:
    return run(wg.MapDataset.range(count).map(function), workers)


def ours_ready(nbytes: int, count: int, **settings: Any) -> Any:
    """The batch is an array of the pipeline, as that of the bare actor is one of the actor."""
    return run(wg.MapDataset.source([np.zeros(nbytes, np.uint8)]).repeat(count), 1, **settings)


def run(elements: Any, workers: int, **settings: Any) -> Any:
    ds = elements.to_iter_dataset()
    options = wg.MultiprocessingOptions(
        workers, per_worker_buffer_size=4, backend=RayBackend(max_in_flight=IN_FLIGHT, **settings)
    )
    return iter(ds.mp_prefetch(options))


def ray_data(function: Callable[[int], Any], count: int, rows: int, workers: int) -> Iterator[Any]:
    """The same elements from Ray Data, in order: each row of a block is an element."""
    import ray.data

    logging.getLogger("ray.data").setLevel(logging.ERROR)
    context = ray.data.DataContext.get_current()
    context.execution_options.preserve_order = True
    context.enable_progress_bars = False
    context.print_on_execution_start = False

    def make(batch: dict[str, Any]) -> dict[str, Any]:
        made = [function(int(index)) for index in batch["id"]]
        if isinstance(made[0], dict):
            return {key: np.stack([one[key] for one in made]) for key in made[0]}
        return {"data": np.stack(made)}

    ds = ray.data.range(count, override_num_blocks=max(workers, count // rows // 8))
    ds = ds.map_batches(make, batch_size=rows, compute=ray.data.TaskPoolStrategy(size=workers))
    yield from ds.iter_batches(batch_size=1, prefetch_batches=IN_FLIGHT)


def cpu_times() -> dict[int, float]:
    """Return the processor time of this process and of all processes that it has started."""
    found = {}
    here = psutil.Process()
    for process in [here, *here.children(recursive=True)]:
        try:
            times = process.cpu_times()
        except psutil.Error:
            continue
        found[process.pid] = times.user + times.system
    return found


def cpu_since(before: dict[int, float]) -> float:
    """Return the processor time since then, without that of processes that have ended."""
    return sum(seconds - before.get(pid, 0.0) for pid, seconds in cpu_times().items())


def measure(elements: Iterator[Any], count: int) -> tuple[float, float, float]:
    """Return the time of an element: by the clock, of all processors, and of this process.

    The start of the workers and the first elements do not count.
    """
    first = max(1, count // 10)
    for _ in range(first):
        next(elements)
    wall, cpu, own = time.perf_counter(), cpu_times(), time.process_time()
    rest = count - first
    for _ in range(rest):
        next(elements)
    result = (
        (time.perf_counter() - wall) / rest,
        cpu_since(cpu) / rest,
        (time.process_time() - own) / rest,
    )
    close = getattr(elements, "close", None)
    if close is not None:
        close()
    return result


def compare(title: str, count: int, rounds: int, sides: dict[str, Callable[[], Any]]) -> None:
    print(f"\n{title} ({count} elements, best of {rounds} rounds, in turns)")
    found: dict[str, list[tuple[float, float, float]]] = {name: [] for name in sides}
    for _ in range(rounds):
        for name, open_side in sides.items():
            found[name].append(measure(iter(open_side()), count))
    first = None
    for name, samples in found.items():
        wall, cpu, own = (min(sample[k] for sample in samples) for k in range(3))
        first = first or (wall, cpu)
        print(
            f"  {name:34} {1e3 * wall:9.3f} ms by the clock {1e3 * cpu:9.3f} ms CPU"
            f" ({1e3 * own:8.3f} in this process)"
            f"   ratio {first[0] / wall:6.2f} by the clock {first[1] / cpu:6.2f} by CPU",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer elements and rounds")
    parser.add_argument("--only", default="", help="comparisons whose title contains this")
    asked = parser.parse_args()
    scale, rounds = (1, 2) if asked.quick else (4, 4)
    folder = tempfile.mkdtemp(prefix="wgray-", dir="/tmp")
    os.environ["RAY_TMPDIR"] = folder
    ray.init(
        num_cpus=4,
        object_store_memory=500_000_000,
        include_dashboard=False,
        log_to_driver=False,
        logging_level="error",
    )
    try:
        for title, count, sides in comparisons(scale):
            if asked.only in title:
                compare(title, count, rounds, sides)
    finally:
        ray.shutdown()
        shutil.rmtree(folder, ignore_errors=True)


def comparisons(scale: int) -> Iterator[tuple[str, int, dict[str, Callable[[], Any]]]]:
    for mb in (8, 1):
        count = scale * (60 if mb == 8 else 200)
        sides: dict[str, Callable[[], Any]] = {
            "a bare actor": functools.partial(bare, mb * MB, count),
            "wholegrain, zero_copy=True": functools.partial(
                ours_ready, mb * MB, count, zero_copy=True
            ),
            "wholegrain": functools.partial(ours_ready, mb * MB, count),
        }
        yield f"Ready batches of {mb} MB, one actor", count, sides
    count = scale * 600  # More than the object store holds, so that both sides are steady.
    yield (
        "Batches of 1 MB and Ray Data, order preserved",
        count,
        {
            "Ray Data": functools.partial(ray_data, functools.partial(ready, MB), count, 1, 2),
            "wholegrain": functools.partial(ours, functools.partial(ready, MB), count, 2),
        },
    )
    count = scale * 20_000
    yield (
        "Small elements and Ray Data, order preserved",
        count,
        {
            "Ray Data": functools.partial(ray_data, small, count, 256, 2),
            "wholegrain": functools.partial(ours, small, count, 2),
        },
    )
    count = scale * 100
    yield (
        "20 ms of computation per element, 1 and 2 actors",
        count,
        {
            f"wholegrain, {workers} actors": functools.partial(ours, busy, count, workers)
            for workers in (1, 2)
        },
    )


if __name__ == "__main__":
    main()
