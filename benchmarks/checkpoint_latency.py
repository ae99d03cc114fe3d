"""Saving and restoring in the middle of an epoch: how long, and how large the states are."""

import functools
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
PER_SAMPLE = 1_000  # Calls of `get_state` that are timed together.

benchmark = Benchmark(f"States at step {STEP:,} of a pipeline: taking, restoring, size")


def triple(x: int) -> int:
    return 3 * x


def is_even(x: int) -> bool:
    return x % 2 == 0


def tokens(x: int) -> dict[str, Any]:
    return {"tokens": np.full(20 + x % 80, x, np.int32)}


def shuffled(grain: Any) -> Any:
    return grain.MapDataset.range(LENGTH).shuffle(seed=1).map(triple)


def mapped(grain: Any) -> Any:
    return shuffled(grain).to_iter_dataset(grain.ReadOptions(0, 0))


def filtered(grain: Any) -> Any:
    return shuffled(grain).to_iter_dataset(grain.ReadOptions(0, 0)).filter(is_even)


def window_shuffled(grain: Any) -> Any:
    window_shuffle = grain.experimental.WindowShuffleIterDataset
    return window_shuffle(
        shuffled(grain).to_iter_dataset(grain.ReadOptions(0, 0)), window_size=WINDOW, seed=1
    )


def packed(grain: Any) -> Any:
    sequences = grain.MapDataset.range(LENGTH).map(tokens).to_iter_dataset(grain.ReadOptions(0, 0))
    return grain.experimental.FirstFitPackIterDataset(
        sequences, length_struct={"tokens": ROW}, num_packing_bins=BINS
    )


def in_processes(grain: Any) -> Any:
    options = grain.MultiprocessingOptions(num_workers=2)
    return shuffled(grain).to_iter_dataset(grain.ReadOptions(0, 0)).mp_prefetch(options)


# The first figure: how many times as fast as Grain a restore has to be.
PIPELINES: dict[str, tuple[Callable[[Any], Any], float]] = {
    "map-level": (mapped, 1),
    "filtered": (filtered, 1),
    "window-shuffled": (window_shuffled, 10),
    "packed": (packed, 10),
    "multi-process": (in_processes, 8),
}


@functools.cache
def state_at_step(grain: Any, pipeline: Callable[[Any], Any]) -> Any:
    """Return a pipeline's state after `STEP` elements, without reading all of them."""
    if pipeline is in_processes:
        # Each worker has given half of them.
        it = iter(in_processes(grain))
        next(it)
        state = it.get_state()
        it.close()
        for worker in state["iterators_in_use_states"]:
            worker["next_index"] = STEP // 2
        state["next_index_in_cycle"] = 0
        return state
    read, step = STEP, STEP
    if pipeline is window_shuffled:
        start = {"next_index": STEP - WINDOW // 2}
        return {
            "parent_window_start_state": start,
            "window_index": STEP // WINDOW,
            "pos_in_window": WINDOW // 2,
        }
    if pipeline is packed:
        # About eight sequences make a row; in the middle of a packed batch.
        return {"parent": {"next_index": 8 * step}, "next_row": BINS // 2, "counter": step}
    return {"next_index": 2 * read if pipeline is filtered else read}


def add_cases(name: str, pipeline: Callable[[Any], Any], at_least: float) -> None:
    restore = benchmark.case(f"restore, {name}", unit="restore", measures="seconds", digest_items=0)

    @restore.competitor("wholegrain", "grain")
    def restored(grain: Any) -> Epoch:
        ds = pipeline(grain)
        state = state_at_step(grain, pipeline)

        def epoch(number: int) -> Iterator[float]:
            start = time.perf_counter()
            it = iter(ds)
            it.set_state(state)
            next(it)
            yield time.perf_counter() - start
            it.close()

        return epoch

    restore.target(over="grain", at_least=at_least)

    take = benchmark.case(f"get_state, {name}", unit="state", measures="seconds", digest_items=0)

    @take.competitor("wholegrain", "grain")
    def taken(grain: Any) -> Epoch:
        it = iter(pipeline(grain))
        it.set_state(state_at_step(grain, pipeline))

        def epoch(number: int) -> Iterator[float]:
            next(it)
            get_state = it.get_state
            start = time.perf_counter()
            for _ in range(PER_SAMPLE):
                get_state()
            yield (time.perf_counter() - start) / PER_SAMPLE

        return epoch

    take.target(over="grain", at_least=1)

    size = benchmark.case(f"size, {name}", unit="state", measures="bytes", digest_items=1)

    @size.competitor("wholegrain", "grain")
    def written(grain: Any) -> Epoch:
        it = iter(pipeline(grain))
        it.set_state(state_at_step(grain, pipeline))

        def epoch(number: int) -> Iterator[int]:
            next(it)
            yield len(json.dumps(it.get_state()))

        return epoch


for pipeline_name, (pipeline, at_least) in PIPELINES.items():
    add_cases(pipeline_name, pipeline, at_least)
