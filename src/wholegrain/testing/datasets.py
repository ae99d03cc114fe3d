"""Checks for datasets: the elements are the same in whatever way they are read and restored."""

import copy
import itertools
import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from wholegrain._graph.iter_dataset import IterDataset
from wholegrain._graph.map_dataset import MapDataset
from wholegrain.options import ReadOptions
from wholegrain.testing.checks import (
    END,
    assert_end,
    assert_equal,
    assert_len,
    check_restored,
    checked_length,
    groups_of,
    next_element,
    opened,
    saying,
    some_positions,
)

# An infinite dataset has sys.maxsize elements, so its end and its next epoch are out of reach.
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
    """Check that a MapDataset returns the same element in whatever way it is read.

    `ds[i]` is the reference. A second read has to return the same, and so does reading it as part
    of a chunk, in any order and with any other elements, and iterating with and without threads.
    Indices past `len(ds)` have to work, because they address later epochs.

    Args:
        ds: The dataset. It may be infinite.
        epochs: How many epochs to read. 1 excludes the indices past `len(ds)`.
        max_elements: The maximum number of elements to read. Of a longer epoch, some at its
            beginning, some at its end and some random ones are read.
        chunk_sizes: How many elements to read together.
        num_threads: The numbers of threads to iterate with. 0 is the caller's thread.
        seed: Selects the orders and the elements.

    Raises:
        AssertionError: If two reads of one element differ, or one of them fails.

    Example:
        >>> check_map_dataset(wholegrain.MapDataset.range(10).shuffle(seed=1).batch(3))
    """
    length = checked_length(ds, "dataset")
    rng = np.random.default_rng(seed)
    positions = some_positions(min(length, _OUT_OF_REACH), max_elements, rng)
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

    for chunk in groups_of(indices, chunk_sizes, rng):
        with saying(f"ds.getitems({chunk}) failed"):
            found = ds.getitems(np.array(chunk, dtype=np.int64))
        assert_len(len(chunk), found, f"ds.getitems({chunk})")
        for position, index in enumerate(chunk):
            what = f"ds.getitems({chunk})[{position}], the element at index {index}"
            assert_equal(elements[index], found[position], what)

    for threads in num_threads:
        _check_iteration(ds, length, threads, max_elements)


def _check_iteration(ds: MapDataset[Any], length: int, threads: int, max_elements: int) -> None:
    """Check that iterating with `threads` threads returns the elements of the first epoch."""
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
    if length > max_elements:  # Skipping missing elements might take forever.
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
    """Check that an IterDataset continues from each of its states as if it had not been stopped.

    The states of one run are restored into new iterators and into running ones, directly and
    through JSON, as checkpoints do. The elements that follow have to equal the uninterrupted run.
    The check also makes sure that iterators are independent of each other, that `get_state` changes
    nothing, that a returned state never changes, and that an iterator that has ended stays ended.

    Args:
        ds: The dataset. It may be infinite.
        max_elements: How many elements of a longer dataset to read.
        max_restores: How many states to restore: the first ones, the last ones, and some random
            ones.
        through_json: Whether states have to survive JSON, as they do in checkpoints.
        seed: Selects the states.

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
    for step in some_positions(len(states), max_restores, rng):
        # No elements follow the state after the last element, nor the one after the end.
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
    """Read `ds`; return its elements, the states between them, and whether it has ended."""
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
    """Check that other iterators, interleaved or with `take`, return the same."""
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
