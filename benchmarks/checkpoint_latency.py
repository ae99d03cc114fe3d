"""Saving and restoring deep in an epoch: how long it takes, and how large states are."""

import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from harness import Benchmark
from harness.declare import Epoch

STEP = 100_000
LENGTH = 2_000_000
WINDOW = 10_000
BINS = 64
ROW = 512
CALLS = 1_000  # of `get_state` that are timed together

benchmark = Benchmark(f"States after {STEP:,} elements, in pipelines without threads")


def triple(x: int) -> int:
    return 3 * x


def is_even(x: int) -> bool:
    return x % 2 == 0


def tokens(x: int) -> dict[str, Any]:
    return {"tokens": np.full(20 + x % 80, x, np.int32)}


def mapped(grain: Any) -> Any:
    ds = grain.MapDataset.range(LENGTH).shuffle(seed=1).map(triple)
    return ds.to_iter_dataset(grain.ReadOptions(num_threads=0, prefetch_buffer_size=0))


def filtered(grain: Any) -> Any:
    return mapped(grain).filter(is_even)


def window_shuffled(grain: Any) -> Any:
    window_shuffle = grain.experimental.WindowShuffleIterDataset
    return window_shuffle(mapped(grain), window_size=WINDOW, seed=1)


def packed(grain: Any) -> Any:
    return grain.experimental.FirstFitPackIterDataset(
        mapped(grain).map(tokens), length_struct={"tokens": ROW}, num_packing_bins=BINS
    )


def in_processes(grain: Any) -> Any:
    return mapped(grain).mp_prefetch(grain.MultiprocessingOptions(num_workers=2))


# What a state is after so many elements, in both libraries; in the middle of a window and of a
# packed batch. Half of the elements are even, and eight or nine sequences make a row.
STATES: dict[Callable[[Any], Any], dict[str, Any]] = {
    mapped: {"next_index": STEP},
    filtered: {"next_index": 2 * STEP},
    window_shuffled: {
        "parent_window_start_state": {"next_index": STEP - WINDOW // 2},
        "window_index": STEP // WINDOW,
        "pos_in_window": WINDOW // 2,
    },
    packed: {"parent": {"next_index": 8 * STEP}, "next_row": BINS // 2, "counter": STEP},
    in_processes: {
        "next_index_in_cycle": 0,
        "next_index_in_datasets": 2,
        "iterators_in_use_indices": [0, 1],
        "iterators_in_use_states": [{"next_index": STEP // 2}, {"next_index": STEP // 2}],
        "exhausted": [0, 0],
        "future_states": {},
    },
}

# How many times as fast as Grain a restore is to be.
PIPELINES: dict[str, tuple[Callable[[Any], Any], float]] = {
    "map-level": (mapped, 1),
    "filtered": (filtered, 1),
    "window-shuffled": (window_shuffled, 10),
    "packed": (packed, 10),
    "multi-process": (in_processes, 8),
}


def restored(grain: Any, pipeline: Callable[[Any], Any]) -> Any:
    """Return a new iterator that stands deep in its epoch."""
    if grain.__name__ == "grain" and pipeline is in_processes:
        from absl import flags  # type: ignore[import-not-found,import-untyped,unused-ignore]

        flags.FLAGS.mark_as_parsed()  # Grain's workers ask for flags.
    it = iter(pipeline(grain))
    it.set_state(STATES[pipeline])
    return it


def add_cases(name: str, pipeline: Callable[[Any], Any], at_least: float) -> None:
    restore = benchmark.case(
        f"restore, {name}",
        unit="restore",
        measures="seconds",
        digest_items=0,
        note="From opening an iterator to its first element.",
    )

    @restore.competitor("wholegrain", "grain")
    def time_to_first_element(grain: Any) -> Epoch:
        def epoch(number: int) -> Iterator[float]:
            start = time.perf_counter()
            it = restored(grain, pipeline)
            next(it)
            yield time.perf_counter() - start
            it.close()

        return epoch

    restore.target(over="grain", at_least=at_least)

    take = benchmark.case(f"get_state, {name}", unit="state", measures="seconds", digest_items=0)

    @take.competitor("wholegrain", "grain")
    def time_of_get_state(grain: Any) -> Epoch:
        it = restored(grain, pipeline)
        next(it)  # Or the start of workers would make one sample of a few calls look long enough.

        def epoch(number: int) -> Iterator[float]:
            next(it)
            get_state = it.get_state
            start = time.perf_counter()
            for _ in range(CALLS):
                get_state()
            yield (time.perf_counter() - start) / CALLS

        return epoch

    take.target(at_most=20e-6)  # Seconds: nothing in a training step that asks for one each time.

    size = benchmark.case(
        f"size, {name}", unit="state", measures="bytes", digest_items=1, seconds=0.01
    )

    @size.competitor("wholegrain", "grain")
    def size_of_state(grain: Any) -> Epoch:
        it = restored(grain, pipeline)

        def epoch(number: int) -> Iterator[int]:
            next(it)
            yield len(json.dumps(it.get_state()))

        return epoch


for pipeline_name, (pipeline, at_least) in PIPELINES.items():
    add_cases(pipeline_name, pipeline, at_least)
