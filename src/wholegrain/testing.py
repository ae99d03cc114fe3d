"""Checks for datasets and sources, your own included: call them from your tests.

Each check reads a dataset in every way in which training may read it, and raises an
`AssertionError` where two ways give different elements. The message names the step, what was
expected there and what was found.

Example:
    >>> from wholegrain import testing
    >>> testing.check_source(MyDataSource("train"))
    >>> testing.check_map_dataset(MyMapDataset("train").shuffle(seed=1))
    >>> testing.check_iter_dataset(MyIterDataset("train").batch(8))
    >>> testing.check_resume(training_pipeline())
"""

import copy
import itertools
import json
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import cloudpickle  # type: ignore[import-untyped]
import numpy as np

from wholegrain._core.difference import difference
from wholegrain._graph.check_backend import check_backend as check_backend
from wholegrain._graph.checks import (
    END,
    assert_end,
    assert_equal,
    assert_equal_output_after_checkpoint,
    assert_len,
    check_restored,
    next_element,
    opened,
    saying,
)
from wholegrain._graph.iter_dataset import IterDataset
from wholegrain._graph.map_dataset import MapDataset
from wholegrain._graph.resume_check import check_resume
from wholegrain.options import ReadOptions

__all__ = [
    "assert_equal_output_after_checkpoint",
    "check_backend",
    "check_iter_dataset",
    "check_map_dataset",
    "check_resume",
    "check_source",
    "difference",
]

# An infinite dataset has sys.maxsize elements. Nobody gets to its end, nor to its next epoch.
_OUT_OF_REACH = 2**53


def check_map_dataset(
    ds: MapDataset[Any],
    *,
    epochs: int = 2,
    max_elements: int = 64,
    chunk_sizes: Sequence[int] = (1, 2, 7),
    num_threads: Sequence[int] = (0, 4),
    seed: int = 0,
) -> None:
    """Check that a MapDataset gives the same element however it is read.

    `ds[i]` is what counts. It has to be the same when it is read again, when it is read as
    part of a chunk, in any order and company, and when it is iterated over, with and without
    threads. Indices past `len(ds)` have to work: they address later epochs.

    Args:
        ds: The dataset. It may be infinite.
        epochs: How many epochs to read. 1 leaves out the indices past `len(ds)`.
        max_elements: Of a longer epoch only so many elements are read: some at its beginning,
            some at its end, and some chosen by chance.
        chunk_sizes: How many elements to read together.
        num_threads: With how many threads to iterate. 0 is the caller's thread.
        seed: Chooses orders and elements.

    Raises:
        AssertionError: If two reads of one element differ, or one of them fails.

    Example:
        >>> check_map_dataset(wholegrain.MapDataset.range(10).shuffle(seed=1).batch(3))
    """
    length = _checked_length(ds, "dataset")
    rng = np.random.default_rng(seed)
    positions = _positions(min(length, _OUT_OF_REACH), max_elements, rng)
    indices = [
        epoch * length + position
        for epoch in range(epochs if length < _OUT_OF_REACH else 1)
        for position in positions
    ]
    elements = {}
    for index in indices:
        with saying(f"ds[{index}] (epoch {index // length}) could not be read"):
            elements[index] = ds[index]
    for index in indices:
        with saying(f"ds[{index}] could not be read a second time"):
            again = ds[index]
        assert_equal(elements[index], again, f"ds[{index}], read a second time")

    for chunk in _chunks(indices, chunk_sizes, rng):
        with saying(f"ds.getitems({chunk}) failed"):
            found = ds.getitems(np.array(chunk, dtype=np.int64))
        assert_len(len(chunk), found, f"ds.getitems({chunk})")
        for place, index in enumerate(chunk):
            what = f"ds.getitems({chunk})[{place}], the element at index {index}"
            assert_equal(elements[index], found[place], what)

    for threads in num_threads:
        _check_iteration(ds, length, threads, max_elements)


def _check_iteration(ds: MapDataset[Any], length: int, threads: int, max_elements: int) -> None:
    """Check that iterating with `threads` threads gives the elements of the first epoch."""
    options = ReadOptions(num_threads=threads, prefetch_buffer_size=2 * threads)
    with opened(ds.to_iter_dataset(options, allow_nones=True)) as it:
        for start in dict.fromkeys((0, max(0, length - max_elements // 2))):
            if start >= _OUT_OF_REACH:
                break
            it.set_state({"next_index": start})
            for index in range(start, min(length, start + max_elements)):
                what = f"Element {index} of to_iter_dataset({options}, allow_nones=True)"
                assert_equal(ds[index], next_element(it, what), what)
        if length < _OUT_OF_REACH:
            assert_end(it, f"to_iter_dataset({options}, allow_nones=True)")
    if length > max_elements:  # To skip what is missing may take forever.
        return
    present = [element for element in map(ds.__getitem__, range(length)) if element is not None]
    with opened(ds.to_iter_dataset(options)) as it:
        for step, element in enumerate(present):
            what = f"Element {step} of to_iter_dataset({options})"
            assert_equal(element, next_element(it, what), what)
        assert_end(it, f"to_iter_dataset({options})")


def check_iter_dataset(
    ds: IterDataset[Any],
    *,
    max_elements: int = 64,
    max_restores: int = 24,
    through_json: bool = True,
    seed: int = 0,
) -> None:
    """Check that an IterDataset goes on from each of its states as if nothing had happened.

    The states of one run are restored into fresh iterators and into running ones, directly and
    through JSON, as checkpoints do it. What follows has to equal the uninterrupted run. Besides
    that: iterators do not disturb each other, asking for a state changes nothing, a state that
    was handed out stays as it is, and an iterator that has ended stays at its end.

    Args:
        ds: The dataset. It may be infinite.
        max_elements: How many elements to read of a longer dataset.
        max_restores: How many states to restore: the first ones, the last ones, and others
            chosen by chance.
        through_json: Whether states have to survive JSON. Checkpoints need it.
        seed: Chooses the states.

    Raises:
        AssertionError: If a restored run differs from the uninterrupted one.

    Example:
        >>> ds = wholegrain.MapDataset.range(10).to_iter_dataset()
        >>> check_iter_dataset(ds.random_map(augment, seed=1).batch(4))
    """
    elements, states, ended = _run(ds, max_elements)
    kept = copy.deepcopy(states)
    _check_other_runs(ds, elements, states)

    rng = np.random.default_rng(seed)
    for step in _positions(len(states), max_restores, rng):
        # The state after the last element, and the one after the end, have nothing behind them.
        expected = elements[step:]
        state = states[step]
        fresh = {"a fresh iterator": state}
        if through_json:
            with saying(f"The state after {step} elements cannot be written as JSON: {state}"):
                fresh["a fresh iterator, through JSON,"] = json.loads(json.dumps(state))
        for where, form in fresh.items():
            with opened(ds) as it:
                check_restored(ds, it, form, expected, ended, step, where, exact=False)
        with opened(ds) as it:
            elsewhere = int(rng.integers(len(elements) + 1))
            for _ in range(elsewhere):
                next(it)
            if elsewhere == len(elements) and ended:
                assert_end(it, "The iterator")
            where = f"an iterator that had given {elsewhere} elements"
            check_restored(ds, it, state, expected, ended, step, where, exact=False)
            where = "an iterator that had been restored before"
            check_restored(ds, it, state, expected, ended, step, where, exact=False)

    for step, state in enumerate(states):
        assert_equal(kept[step], state, f"The state after {step} elements, when all was done,")


def _run(ds: IterDataset[Any], max_elements: int) -> tuple[list[Any], list[Any], bool]:
    """Read `ds`; return its elements, the states before, between and after, and if it ended."""
    elements: list[Any] = []
    with opened(ds) as it:
        states = [it.get_state()]
        kept = copy.deepcopy(states)
        ended = False
        while not ended and len(elements) < max_elements:
            what = f"get_state(), called again after {len(elements)} elements,"
            assert_equal(kept[-1], it.get_state(), what)
            with saying(f"Element {len(elements)} could not be read"):
                element = next(it, END)
            if element is END:
                ended = True
                assert_end(it, "The iterator")
            else:
                elements.append(element)
            states.append(it.get_state())
            kept.append(copy.deepcopy(states[-1]))
        for step, state in enumerate(states):
            assert_equal(kept[step], state, f"The state after {step} elements, after going on,")
    return elements, states, ended


def _check_other_runs(ds: IterDataset[Any], elements: list[Any], states: list[Any]) -> None:
    """Check that other iterators, side by side or in strides, give the same."""
    with opened(ds) as one, opened(ds) as other:
        for step, element in enumerate(elements):
            what = f"Element {step} of another iterator"
            assert_equal(element, next_element(one, what), what)
            assert_equal(element, next_element(other, what), what)
        what = f"The state of another iterator after {len(elements)} elements"
        assert_equal(states[len(elements)], other.get_state(), what)
    with opened(ds) as it:
        step = 0
        counts = itertools.cycle((1, 2, 5, 3))
        while step < len(elements):
            count = min(next(counts), len(elements) - step)
            what = f"take({count}) after {step} elements"
            with saying(f"{what} failed"):
                taken = it.take(count)
            if not 1 <= len(taken) <= count:
                raise AssertionError(
                    f"{what}.\nexpected: 1 to {count} elements\nfound: {len(taken)}"
                )
            assert_equal(elements[step : step + len(taken)], taken, what)
            step += len(taken)
            if it.takes_back and len(taken) > 1:
                it.put_back(1)
                step -= 1
                what += ", and put_back(1),"
            assert_equal(states[step], it.get_state(), f"The state after {what}")


def check_source(
    source: Any,
    *,
    max_elements: int = 64,
    num_threads: int = 4,
    seed: int = 0,
) -> None:
    """Check that a data source can be read from threads and processes.

    Every index from 0 to `len(source) - 1` has to be readable and to give the same element each
    time: one by one, many at once if the source has `__getitems__` or `_getitems`, from several
    threads, and from a copy that was pickled as it is for worker processes.

    Args:
        source: What would be passed to `MapDataset.source` or to a `DataLoader`.
        max_elements: Of a longer source only so many elements are read.
        num_threads: How many threads read at once.
        seed: Chooses orders and elements.

    Raises:
        AssertionError: If two reads of one element differ, or one of them fails.

    Example:
        >>> check_source([1, 2, 3])
    """
    length = _checked_length(source, "source")
    rng = np.random.default_rng(seed)
    indices = _positions(length, max_elements, rng)
    elements = {}
    for index in indices:
        with saying(f"source[{index}] could not be read, of {length}"):
            elements[index] = source[index]
    for index in reversed(indices):
        with saying(f"source[{index}] could not be read a second time"):
            again = source[index]
        assert_equal(elements[index], again, f"source[{index}], read a second time")

    for name in ("__getitems__", "_getitems"):
        read_many = getattr(source, name, None)
        if read_many is None:
            continue
        for chunk in _chunks(indices, (1, 2, 7), rng):
            with saying(f"source.{name}({chunk}) failed"):
                found = read_many(chunk)
            assert_len(len(chunk), found, f"source.{name}({chunk})")
            for place, index in enumerate(chunk):
                what = f"source.{name}({chunk})[{place}], the element at index {index}"
                assert_equal(elements[index], found[place], what)

    with saying("The source cannot be pickled, which worker processes need"):
        unpickled = cloudpickle.loads(cloudpickle.dumps(source))
    assert_equal(length, len(unpickled), "len() of the source after pickling")
    for index in indices:
        with saying(f"source[{index}] could not be read after pickling"):
            found = unpickled[index]
        assert_equal(elements[index], found, f"source[{index}], after pickling")

    def read_in_thread(thread: int) -> None:
        start = thread * len(indices) // num_threads
        for index in [*indices[start:], *indices[:start]]:
            with saying(f"source[{index}] could not be read from {num_threads} threads at once"):
                element = source[index]
            what = f"source[{index}], read from {num_threads} threads at once"
            assert_equal(elements[index], element, what)

    with ThreadPoolExecutor(num_threads) as pool:
        list(pool.map(read_in_thread, range(num_threads)))


def _checked_length(sized: Any, name: str) -> int:
    with saying(f"len() of the {name} failed"):
        length, again = len(sized), len(sized)
    assert_equal(length, again, f"len() of the {name}, asked a second time")
    return length


def _positions(length: int, limit: int, rng: np.random.Generator) -> list[int]:
    """Return up to `limit` of the positions 0 to `length - 1`, in order, with both ends."""
    if length <= limit:
        return list(range(length))
    ends = limit // 3
    between = rng.integers(ends, length - ends, size=limit - 2 * ends).tolist()
    return sorted({*range(ends), *between, *range(length - ends, length)})


def _chunks(
    indices: list[int], sizes: Iterable[int], rng: np.random.Generator
) -> Iterator[list[int]]:
    """Yield groups of indices: in order, backwards, mixed, with repetitions, and all."""
    mixed = [indices[i] for i in rng.permutation(len(indices))]
    repeating = [indices[i] for i in rng.integers(max(1, len(indices)), size=len(indices))]
    for order in (indices, indices[::-1], mixed, repeating):
        if order:
            yield order
        for size in sizes:
            for start in range(0, len(order), size):
                yield order[start : start + size]
