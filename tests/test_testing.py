"""The checks accept datasets that are right, and say what is wrong with the others."""

import copy
import dataclasses
import sys
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

import wholegrain as wg
from tests.parity import pipelines
from tests.parity.recipes import build
from wholegrain import testing
from wholegrain.testing import difference


def _augment(element: Any, rng: np.random.Generator) -> Any:
    return element, float(rng.normal())


# What passes.


_RANGE = wg.MapDataset.range(10)
_MAP_DATASETS: dict[str, wg.MapDataset[Any]] = {
    "range": _RANGE,
    "empty": wg.MapDataset.range(0),
    "shuffle": _RANGE.shuffle(seed=1).map(str),
    "filter": _RANGE.filter(lambda x: x % 3 == 0),
    "random": _RANGE.seed(1).random_map(_augment).batch(4),
    "infinite": _RANGE.shuffle(seed=1).repeat(),
    "long and sparse": wg.MapDataset.range(5000).shuffle(seed=1).filter(lambda x: x > 4990),
    "nan": wg.MapDataset.source([float("nan"), {"x": np.array([1.0, np.nan])}]),
}


@pytest.mark.parametrize("name", _MAP_DATASETS)
def test_map_datasets_pass(name: str) -> None:
    testing.check_map_dataset(_MAP_DATASETS[name])


_ITERATED = _RANGE.to_iter_dataset()
_ITER_DATASETS: dict[str, wg.IterDataset[Any]] = {
    "range": _ITERATED,
    "empty": wg.MapDataset.range(0).to_iter_dataset(),
    "batch": _ITERATED.batch(3),
    "random": _ITERATED.random_map(_augment, seed=1).filter(bool),
    "infinite": _RANGE.repeat().to_iter_dataset().map(str),
    "repeat": wg.experimental.RepeatIterDataset(_ITERATED),
    "window": wg.experimental.WindowShuffleIterDataset(_ITERATED, window_size=4, seed=1),
    "thread": wg.experimental.ThreadPrefetchIterDataset(_ITERATED, prefetch_buffer_size=2),
    "interleave": wg.experimental.InterleaveIterDataset(
        [wg.MapDataset.range(n).to_iter_dataset() for n in (1, 0, 4)], cycle_length=2
    ),
}


@pytest.mark.parametrize("name", _ITER_DATASETS)
def test_iter_datasets_pass(name: str) -> None:
    testing.check_iter_dataset(_ITER_DATASETS[name])


class SquaresMapDataset(wg.MapDataset[Any]):
    """What a user writes: a length and one read."""

    def __init__(self, length: int) -> None:
        super().__init__()
        self._length = length

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return self.slice(index)
        return index % self._length * index


class WordsIterDataset(wg.IterDataset[str]):
    """What a user writes: an iterator of their own."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self._words = text.split()

    def __iter__(self) -> "WordsIterator":
        return WordsIterator(self._words)


class WordsIterator(wg.DatasetIterator[str]):
    def __init__(self, words: list[str]) -> None:
        super().__init__()
        self._words = words
        self._position = 0

    def __next__(self) -> str:
        if self._position == len(self._words):
            raise StopIteration
        self._position += 1
        return self._words[self._position - 1]

    def get_state(self) -> dict[str, Any]:
        return {"position": self._position}

    def set_state(self, state: dict[str, Any]) -> None:
        self._position = state["position"]


def test_datasets_of_users_pass() -> None:
    testing.check_map_dataset(SquaresMapDataset(7))
    testing.check_map_dataset(SquaresMapDataset(7)[::-1].shuffle(seed=3).batch(2))
    testing.check_iter_dataset(SquaresMapDataset(7).to_iter_dataset().batch(2))
    testing.check_iter_dataset(WordsIterDataset("a few words of one sentence"))
    testing.check_iter_dataset(WordsIterDataset("a few words of one sentence").batch(2))
    testing.assert_equal_output_after_checkpoint(WordsIterDataset("a few words").map(str.upper))


@settings(max_examples=40)
@given(draft=pipelines.map_drafts())
def test_any_map_pipeline_passes(draft: pipelines.Draft) -> None:
    testing.check_map_dataset(build(wg, draft.recipe), max_elements=10, num_threads=(0, 2))


@settings(max_examples=40)
@given(draft=pipelines.iter_drafts())
def test_any_iter_pipeline_passes(draft: pipelines.Draft) -> None:
    testing.check_iter_dataset(build(wg, draft.recipe), max_elements=10, max_restores=4)


@settings(max_examples=20)
@given(draft=pipelines.threaded_drafts())
def test_any_pipeline_with_threads_passes(draft: pipelines.Draft) -> None:
    testing.check_iter_dataset(build(wg, draft.recipe), max_elements=10, max_restores=3)


# Map datasets that are wrong.


class BrokenMapDataset(SquaresMapDataset):
    def __init__(self, fault: str) -> None:
        super().__init__(6)
        self._fault = fault
        self._reads = 0

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return self.slice(index)
        self._reads += 1
        if self._fault == "changes" and index == 2:
            return self._reads
        if self._fault == "ends" and index >= len(self):
            raise IndexError(f"{index} is too much")
        return index

    def _getitems(self, indices: Sequence[int]) -> Sequence[Any]:
        elements = [self[index] for index in indices]
        if self._fault == "sorts":
            return sorted(elements)
        if self._fault == "unique":
            return list(dict.fromkeys(elements))
        if self._fault == "numpy":
            return [np.int64(element) for element in elements]
        return elements


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("changes", r"ds\[2\], read a second time.*expected: 3\nfound: 15"),
        ("ends", r"ds\[6\] \(epoch 1\) could not be read: IndexError: 6 is too much"),
        ("sorts", r"ds.getitems\(.*\)\[0\], the element at index 11.*expected: 11\nfound: 0"),
        ("unique", r"(asked for 12 elements, but returned|expected: 12\nfound:) "),
        ("numpy", r"the type is numpy.int64, not int"),
    ],
)
def test_a_wrong_map_dataset_is_described(fault: str, message: str) -> None:
    with pytest.raises(AssertionError, match=f"(?s){message}"):
        testing.check_map_dataset(BrokenMapDataset(fault))


def test_one_epoch_can_be_enough() -> None:
    testing.check_map_dataset(BrokenMapDataset("ends"), epochs=1)


# Iterators that are wrong.


class BrokenIterDataset(wg.IterDataset[int]):
    def __init__(self, fault: str) -> None:
        super().__init__()
        self._fault = fault
        self._shared = {"position": 0}

    def __iter__(self) -> "BrokenIterator":
        return BrokenIterator(self._fault, self._shared)


class BrokenIterator(wg.DatasetIterator[int]):
    def __init__(self, fault: str, shared: dict[str, Any]) -> None:
        super().__init__()
        self._fault = fault
        self._own: dict[str, Any] = shared if fault == "shares" else {"position": 0}
        self._buffer: list[int] = []
        self._ended = False

    def __next__(self) -> int:
        position = self._own["position"]
        if self._fault == "buffers" and not self._buffer:
            self._buffer = list(range(position, min(position + 3, 6)))
        if position == 6:
            if self._fault == "restarts" and self._ended:
                self._own["position"] = 0
            self._ended = True
            raise StopIteration
        self._own["position"] += 1
        return self._buffer.pop(0) if self._fault == "buffers" else position

    def get_state(self) -> dict[str, Any]:
        if self._fault == "exposes":
            return self._own
        if self._fault == "counts":
            return {"position": np.int64(self._own["position"])}
        if self._fault == "moves":
            self._own["position"] += 1
        return dict(self._own)

    def set_state(self, state: dict[str, Any]) -> None:
        if self._fault == "rounds":
            self._own = {"position": state["position"] // 2 * 2}
        elif self._fault == "keeps":
            self._own = state
        elif self._fault == "refuses" and state["position"] == 3:
            raise KeyError("odd")
        else:
            self._own = dict(state)
        if self._fault == "late" and state["position"] == 6:
            self._own["position"] = 5


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("shares", r"Element 0 of another iterator.*missing|state|expected: 0\nfound: 1"),
        ("buffers", r"step \d was restored into an iterator that had given .*: element \d"),
        ("restarts", r"The iterator goes on after its end.*found: 0"),
        ("exposes", r"The state after 0 elements, after going on,.*expected: .*0.*found: .*6"),
        ("counts", r"The state after 0 elements cannot be written as JSON"),
        ("moves", r"get_state\(\), called again after 0 elements"),
        (
            "rounds",
            r"step 1 .* a fresh iterator: get_state\(\) is .*0.*expected: 1\nfound: 0",
        ),
        ("keeps", r"the state that was passed to set_state, later,"),
        ("refuses", r"step 3 .*set_state\({'position': 3}\) failed: KeyError: 'odd'"),
        ("late", r"step 6 .* goes on after its end.*found: 5"),
    ],
)
def test_a_wrong_iterator_is_described(fault: str, message: str) -> None:
    with pytest.raises(AssertionError, match=f"(?s){message}"):
        testing.check_iter_dataset(BrokenIterDataset(fault))


@pytest.mark.parametrize("fault", ["rounds", "refuses"])
def test_wrong_output_after_a_checkpoint_is_found(fault: str) -> None:
    with pytest.raises(AssertionError, match="was restored into a fresh iterator"):
        testing.assert_equal_output_after_checkpoint(BrokenIterDataset(fault))


def test_states_have_one_structure() -> None:
    class Growing(WordsIterator):
        def get_state(self) -> dict[str, Any]:
            return {"position": self._position, "words": self._words[: self._position]}

    class GrowingDataset(WordsIterDataset):
        def __iter__(self) -> Growing:
            return Growing(self._words)

    with pytest.raises(AssertionError, match="structure of the state after 1 elements"):
        testing.assert_equal_output_after_checkpoint(GrowingDataset("a b"))
    testing.check_iter_dataset(GrowingDataset("a b"))


def test_an_empty_dataset_has_no_output_to_compare() -> None:
    with pytest.raises(AssertionError, match="did not produce any elements"):
        testing.assert_equal_output_after_checkpoint(wg.MapDataset.range(0).to_iter_dataset())


# Sources.


class RecordsSource:
    def __init__(self, fault: str = "") -> None:
        self._fault = fault
        self._main = threading.get_ident()
        self._reads = 0

    def __len__(self) -> int:
        return 10

    def __getitem__(self, index: int) -> bytes:
        self._reads += 1
        if self._fault == "hole" and index == 7:
            raise OSError("cannot read")
        if self._fault == "threads" and threading.get_ident() != self._main:
            raise RuntimeError("wrong thread")
        if self._fault == "changes":
            return b"%d" % self._reads
        return b"record %d" % index

    def __getitems__(self, indices: list[int]) -> list[bytes]:
        if self._fault == "sorts":
            indices = sorted(indices)
        return [self[index] for index in indices]

    def __getstate__(self) -> dict[str, Any]:
        if self._fault == "pickle":
            raise TypeError("open file")
        state = dict(self.__dict__)
        if self._fault == "forgets":
            state["_fault"] = "changes"
        return state


@pytest.mark.parametrize(
    "source", [[1, 2, 3], [], range(10**12), np.arange(12).reshape(6, 2), RecordsSource(), "abc"]
)
def test_sources_pass(source: Any) -> None:
    testing.check_source(source)


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("hole", r"source\[7\] could not be read, of 10: OSError: cannot read"),
        ("changes", r"source\[9\], read a second time.*expected: b'10'\nfound: b'11'"),
        ("sorts", r"source.__getitems__\(\[9, 8.*\)\[0\], the element at index 9"),
        ("pickle", r"The source cannot be pickled.*TypeError: open file"),
        ("forgets", r"source\[0\], after pickling"),
        ("threads", r"source\[0\] could not be read from 4 threads at once.*wrong thread"),
    ],
)
def test_a_wrong_source_is_described(fault: str, message: str) -> None:
    with pytest.raises(AssertionError, match=f"(?s){message}"):
        testing.check_source(RecordsSource(fault))


# Comparing.


@dataclasses.dataclass
class Example:
    x: Any
    y: Any = None


class Opaque:
    def __init__(self, x: Any) -> None:
        self.x = x


def _values() -> Iterator[Any]:
    yield from (1, 0, True, 1.0, float("nan"), "1", b"1", None, np.int64(1), np.float32("nan"))
    yield from (np.array(1), np.array([1, 2]), np.array([1, 2], np.int32), np.array([[1, 2]]))
    yield from (np.array([1.0, np.nan]), np.array([1.0, 2.0]), np.array(["a", "b"]))
    yield from (np.array([1, "a"], dtype=object), np.array([1, None], dtype=object))
    yield from ([1, 2], (1, 2), [1], {"a": 1}, {"a": 2}, {"b": 1}, {1, 2}, [{"a": np.ones(2)}])
    yield from (Example(1), Example(np.ones(2)), Example(1, y=2), Opaque(1), Opaque([2]))
    yield from (np.array([(1, 2.0)], dtype=[("a", int), ("b", float)]), sys.maxsize, print)


def test_values_differ_from_all_but_themselves() -> None:
    for i, one in enumerate(_values()):
        for j, other in enumerate(_values()):
            where = difference(one, copy.deepcopy(other))
            assert (where is None) == (i == j), f"{one!r} and {other!r}: {where}"


@pytest.mark.parametrize(
    ("expected", "found", "message"),
    [
        ({"x": [1, 2]}, {"x": [1, 3]}, "at ['x'][1]: 3 is not 2"),
        (Example(np.zeros(2)), Example(np.zeros(3)), "at .x: the shape is (3,), not (2,)"),
        (np.zeros(2), np.zeros(2, np.float32), "the dtype is float32, not float64"),
        (np.arange(4).reshape(2, 2), np.array([[0, 1], [9, 3]]), "at [1, 0]: 9 is not 2"),
        ((1,), [1], "the type is list, not tuple"),
        ([1], [1, 2], "the length is 2, not 1"),
        ({"a": 1}, {"b": 1}, "the keys are ['b'], not ['a']"),
    ],
)
def test_a_difference_is_located(expected: Any, found: Any, message: str) -> None:
    assert difference(expected, found) == message


def test_the_order_of_keys_counts_only_when_asked() -> None:
    one, other = {"a": 1, "b": 2}, {"b": 2, "a": 1}
    assert difference(one, other) is None
    assert difference(one, other, key_order=True) is not None


def test_negative_zero_is_zero() -> None:
    assert difference(np.array([0.0]), np.array([-0.0])) is None


def test_output_after_a_checkpoint_is_checked_for_iterators_in_place() -> None:
    ds = wg.MapDataset.range(6).to_iter_dataset().batch(2)
    it = iter(ds)
    next(it)
    testing.assert_equal_output_after_checkpoint(it)
    assert it.get_state() == {"next_index": 6}
    it.set_state({"next_index": 4})
    assert next(it).tolist() == [4, 5]
    elastic = wg.experimental.ElasticIterator(
        wg.MapDataset.range(8), 4, wg.sharding.ShardOptions(0, 2)
    )
    for one in (elastic, iter(elastic)):
        one.set_state({"global_next_index": 0})
        testing.assert_equal_output_after_checkpoint(one)
        assert elastic.get_state() == {"global_next_index": 8}
