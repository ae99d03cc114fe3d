"""Assertions about a run: the elements after a restore equal those of the original run."""

import contextlib
import copy
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from wholegrain._core.difference import difference, show
from wholegrain._core.interruption import is_interruption
from wholegrain._graph import epochs
from wholegrain._graph.iter_dataset import IterDataset
from wholegrain._graph.iterator import DatasetIterator

END: Any = object()
"""Represents the end of an iterator."""


def assert_equal_output_after_checkpoint(ds: IterDataset[Any] | DatasetIterator[Any]) -> None:
    """Check that a dataset returns the same elements after a restore from each of its states.

    This is Grain's check; `check_iter_dataset` checks more. The dataset is read to its end, so it
    must not be infinite.

    Args:
        ds: The dataset; or an iterator, which is itself restored and read from its position.

    Raises:
        AssertionError: If the elements after a restore differ, if the states do not have the
            same structure at every step, or if there are no elements.

    Example:
        >>> assert_equal_output_after_checkpoint(wholegrain.MapDataset.range(5).to_iter_dataset())
    """
    elements: list[Any] = []
    states: list[Any] = []
    with opened(ds) as it:
        state = copy.deepcopy(it.get_state())
        for element in it:
            elements.append(element)
            states.append(state)
            state = copy.deepcopy(it.get_state())
    if not elements:
        raise AssertionError("The dataset did not produce any elements: nothing to compare.")
    spec = _state_spec(states[0])
    for step, state in enumerate(states):
        assert_equal(spec, _state_spec(state), f"The structure of the state after {step} elements")
    for step, state in enumerate(states):
        with opened(ds) as it:
            rest = elements[step:]
            check_restored(ds, it, state, rest, True, step, "a fresh iterator", exact=True)


def _state_spec(state: Any) -> str:
    """Return the structure of a state, with types instead of values."""
    if isinstance(state, Mapping):
        return "{" + ", ".join(f"{k!r}: {_state_spec(v)}" for k, v in state.items()) + "}"
    if isinstance(state, (list, tuple)):
        return f"{type(state).__name__}[{', '.join(map(_state_spec, state))}]"
    if isinstance(state, np.ndarray):
        return f"{state.dtype}{list(state.shape)}"
    return type(state).__name__


def check_restored(
    ds: IterDataset[Any] | DatasetIterator[Any],
    it: DatasetIterator[Any],
    state: Any,
    expected: list[Any],
    ended: bool,
    step: int,
    where: str,
    *,
    exact: bool,
) -> None:
    """Check the elements of an iterator of `ds` after `state` was set.

    Args:
        ds: The dataset that `it` iterates over.
        it: An iterator, at any position.
        state: The state of step `step`.
        expected: The elements that have to follow.
        ended: Whether the dataset ends after them.
        step: The number of elements before the state.
        where: The kind of iterator, for the message.
        exact: Whether `get_state()` has to return the state that was set. Otherwise it may return
            another state from which the same elements follow.
    """
    before = f"After the state of step {step} was restored into {where}"
    given = copy.deepcopy(state)
    with saying(f"{before}: set_state({state}) failed"):
        it.set_state(given)
    assert_equal(state, given, f"{before}: the state that was passed to set_state")
    reported = it.get_state()
    if difference(_as_json(state), _as_json(reported)) is not None:
        what = f"{before}: get_state()"
        if exact:
            assert_equal(_as_json(state), _as_json(reported), what)
        with opened(ds) as other:
            other.set_state(reported)
            check_elements(other, expected, ended, step, f"{what} is {reported}; from there")
    check_elements(it, expected, ended, step, before)
    assert_equal(state, given, f"{before}: the state that was passed to set_state, later,")


def check_elements(
    it: DatasetIterator[Any], expected: list[Any], ended: bool, step: int, before: str
) -> None:
    """Check that `it` returns the elements from `step` on."""
    for number, element in enumerate(expected):
        what = f"{before}: element {step + number}"
        assert_equal(element, next_element(it, what), what)
    if ended:
        assert_end(it, f"{before}: the iterator")


@contextlib.contextmanager
def opened(ds: IterDataset[Any] | DatasetIterator[Any]) -> Iterator[DatasetIterator[Any]]:
    """Open an iterator, and close it twice, because closing again has to be allowed.

    An iterator, or a dataset with only one iterator, belongs to the caller and stays open.
    """
    with epochs.meant():
        with saying("iter() of the dataset failed"):
            it = iter(ds)
        try:
            yield it
        finally:
            if not isinstance(ds, Iterator):
                it.close()
                it.close()


@contextlib.contextmanager
def saying(what: str) -> Iterator[None]:
    """Turn an error of the dataset into an AssertionError that says what the check did."""
    try:
        yield
    except Exception as error:
        if is_interruption(error):
            raise
        raise AssertionError(f"{what}: {type(error).__name__}: {error}") from error


def next_element(it: DatasetIterator[Any], what: str) -> Any:
    """Return the next element; raise if there is none."""
    with saying(f"{what} could not be read"):
        element = next(it, END)
    if element is END:
        raise AssertionError(f"{what} is missing.\nexpected: an element\nfound: the end")
    return element


def assert_end(it: DatasetIterator[Any], name: str) -> None:
    """Check that an iterator has ended, and that it does not restart."""
    for _ in range(3):
        with saying(f"{name} did not end properly"):
            element = next(it, END)
        if element is not END:
            found = show(element)
            raise AssertionError(
                f"{name} goes on after its end.\nexpected: the end\nfound: {found}"
            )


def assert_len(expected: int, found: Any, what: str) -> None:
    """Check the length of a dataset."""
    with saying(f"len() of {what} failed"):
        length = len(found)
    if length != expected:
        raise AssertionError(f"len() of {what}.\nexpected: {expected}\nfound: {length}")


def assert_equal(expected: Any, found: Any, what: str) -> None:
    """Check that two elements, or two states, are equal."""
    where = difference(expected, found)
    if where is not None:
        raise AssertionError(
            f"{what} is not what it should be: {where}\n"
            f"expected: {show(expected)}\nfound: {show(found)}"
        )


def _as_json(state: Any) -> Any:
    """Return a state after a round trip through JSON: tuples become lists, keys strings."""
    try:
        return json.loads(json.dumps(state))
    except (TypeError, ValueError):
        return state


def checked_length(sized: Any, name: str) -> int:
    """Return the length of a dataset or source, which has to be the same in a second call."""
    with saying(f"len() of the {name} failed"):
        length, again = len(sized), len(sized)
    assert_equal(length, again, f"len() of the {name}, asked a second time")
    return length


def some_positions(length: int, limit: int, rng: np.random.Generator) -> list[int]:
    """Return up to `limit` of the positions 0 to `length - 1`, in order, with both ends."""
    if length <= limit:
        return list(range(length))
    ends = limit // 3
    between = rng.integers(ends, length - ends, size=limit - 2 * ends).tolist()
    return sorted({*range(ends), *between, *range(length - ends, length)})


def groups_of(
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
