"""Operations of a DataLoader."""

import json
from collections import namedtuple
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import wholegrain as wg
from wholegrain._core import tree
from wholegrain.samplers import IndexSampler, SequentialSampler
from wholegrain.sharding import NoSharding, ShardOptions
from wholegrain.testing import difference
from wholegrain.transforms import Batch, Filter, FlatMap, Map, MapWithIndex, RandomMap, TfRandomMap

_NO_THREADS = wg.ReadOptions(num_threads=0, prefetch_buffer_size=0)


class _Map(Map):
    def __init__(self, function: Callable[[Any], Any]) -> None:
        self._function = function

    def map(self, element: Any) -> Any:
        return self._function(element)


class _Filter(Filter):
    def __init__(self, function: Callable[[Any], Any]) -> None:
        self._function = function

    def filter(self, element: Any) -> Any:
        return self._function(element)


class _FlatMap(FlatMap):
    max_fan_out = 3

    def __init__(self, function: Callable[[Any], Any]) -> None:
        self._function = function

    def flat_map(self, element: Any) -> Any:
        return self._function(element)


class _Draw(RandomMap):
    """Appends a random number."""

    def random_map(self, element: Any, rng: np.random.Generator) -> Any:
        return (
            (*element, int(rng.integers(2**40)))
            if isinstance(element, tuple)
            else (
                element,
                int(rng.integers(2**40)),
            )
        )


class _DrawForTf(TfRandomMap):
    def np_random_map(self, element: Any, rng: np.random.Generator) -> Any:
        return element, int(rng.integers(2**40))


class _Number(MapWithIndex):
    def map_with_index(self, index: int, element: Any) -> Any:
        return index, element


def _loader(source: Any, *operations: Any, **arguments: Any) -> wg.DataLoader:
    return wg.DataLoader(
        **{
            "data_source": source,
            "sampler": SequentialSampler(len(source), seed=1),
            "operations": operations,
            **arguments,
        }
    )


def _draws(sampler: Any, index: int, count: int = 1) -> list[int]:
    rng = sampler[index].rng
    return [int(rng.integers(2**40)) for _ in range(count)]


# What each does.


def test_a_map_may_make_anything_of_an_element() -> None:
    assert list(_loader(range(3), _Map(lambda x: None))) == [None, None, None]
    assert list(_loader(range(3), _Map(lambda x: [x]))) == [[0], [1], [2]]


def test_a_filter_keeps_what_is_true() -> None:
    assert list(_loader(range(6), _Filter(lambda x: x % 2))) == [1, 3, 5]
    assert list(_loader([0, "", "a", None, [0]], _Filter(lambda x: x))) == ["a", [0]]


def test_a_random_map_draws_from_the_generator_of_the_record() -> None:
    sampler = IndexSampler(5, shuffle=True, num_epochs=2, seed=3)
    expected = [(sampler[i].record_key, *_draws(sampler, i)) for i in range(10)]
    assert list(_loader(range(5), _Draw(), sampler=sampler)) == expected
    assert list(_loader(range(5), _DrawForTf(), sampler=sampler)) == expected


def test_random_maps_of_one_record_share_its_generator() -> None:
    sampler = SequentialSampler(4, seed=2)
    expected = [(i, *_draws(sampler, i, 3)) for i in range(4)]
    assert list(_loader(range(4), _Draw(), _Draw(), _Draw(), sampler=sampler)) == expected


def test_a_batch_has_the_generator_of_its_last_record() -> None:
    sampler = SequentialSampler(4, seed=2)
    batches = list(_loader(range(4), _Draw(), Batch(2, batch_fn=tuple), _Draw(), sampler=sampler))
    for number, batch in enumerate(batches):
        last = 2 * number + 1
        assert batch[1] == (last, _draws(sampler, last)[0])
        assert batch[2] == _draws(sampler, last, 2)[1]


def test_a_flat_map_makes_any_number_of_elements_of_one() -> None:
    loader = _loader(range(4), _FlatMap(lambda x: [x] * x))
    assert list(loader) == [1, 2, 2, 3, 3, 3]
    # It may be any iterable; how many there are at most is no concern of a loader.
    assert list(_loader([5], _FlatMap(lambda x: iter(range(x))))) == [0, 1, 2, 3, 4]
    assert list(_loader([5], _FlatMap(lambda x: (str(i) for i in range(2))))) == ["0", "1"]


def test_flat_maps_can_follow_each_other() -> None:
    loader = _loader(range(3), _FlatMap(lambda x: range(x)), _FlatMap(lambda x: [x, -x]))
    assert list(loader) == [0, 0, 0, 0, 1, -1]


def test_batches_run_over_the_end_of_an_epoch() -> None:
    loader = _loader(range(3), Batch(2), sampler=IndexSampler(3, num_epochs=2))
    assert [batch.tolist() for batch in loader] == [[0, 1], [2, 0], [1, 2]]


@given(count=st.integers(1, 12), size=st.integers(1, 5), drop=st.booleans(), threads=st.booleans())
def test_only_a_last_short_batch_may_be_left_out(
    count: int, size: int, drop: bool, threads: bool
) -> None:
    options = wg.ReadOptions(2, 4) if threads else _NO_THREADS
    loader = _loader(range(count), Batch(size, drop_remainder=drop), read_options=options)
    found = [batch.tolist() for batch in loader]
    expected = [list(range(start, min(start + size, count))) for start in range(0, count, size)]
    if drop and expected and len(expected[-1]) < size:
        expected.pop()
    assert found == expected


def test_a_batch_function_gets_the_list_of_elements() -> None:
    given: list[Any] = []

    def batch_fn(elements: Sequence[Any]) -> str:
        given.append(elements)
        return "".join(elements)

    assert list(_loader("abcde", Batch(2, batch_fn=batch_fn))) == ["ab", "cd", "e"]
    assert given == [["a", "b"], ["c", "d"], ["e"]]
    assert all(type(elements) is list for elements in given)


def test_batch_sizes_may_be_numpy_integers() -> None:
    batches = list(_loader(range(4), Batch(np.int64(2))))  # type: ignore[arg-type]
    assert [batch.tolist() for batch in batches] == [[0, 1], [2, 3]]


def test_operations_may_change_elements_in_place() -> None:
    class Source:
        def __len__(self) -> int:
            return 5

        def __getitem__(self, index: int) -> dict[str, int]:
            return {"id": index}

    class Count(Map):
        def map(self, element: dict[str, int]) -> dict[str, int]:
            element["count"] = element.get("count", 0) + 1
            return element

    loader = _loader(Source(), Count(), Count(), Batch(2))
    for _ in range(2):
        counts = [batch["count"].tolist() for batch in loader]
        assert counts == [[2, 2], [2, 2], [2]]


# Trees.

_Point = namedtuple("_Point", ["x", "y"])  # noqa: PYI024


@pytest.mark.parametrize(
    ("elements", "batch"),
    [
        ([1, 2], np.array([1, 2])),
        ([1, 2.5], np.array([1.0, 2.5])),
        (["a", "bcd"], np.array(["a", "bcd"])),
        ([b"a", b"bc"], np.array([b"a", b"bc"])),
        ([True, False], np.array([True, False])),
        ([np.float32(1), np.float32(2)], np.array([1, 2], np.float32)),
        ([np.zeros((2, 3)), np.ones((2, 3))], np.stack([np.zeros((2, 3)), np.ones((2, 3))])),
        (
            [{"a": 1, "b": (2, [3])}] * 2,
            {"a": np.array([1, 1]), "b": (np.array([2, 2]), [np.array([3, 3])])},
        ),
        ([_Point(1, 2), _Point(3, 4)], _Point(np.array([1, 3]), np.array([2, 4]))),
        ([{}, {}], {}),
        ([[], []], []),
    ],
)
def test_elements_are_stacked_leaf_by_leaf(elements: list[Any], batch: Any) -> None:
    (found,) = _loader(elements, Batch(2))
    assert difference(batch, found) is None


def test_one_element_makes_a_batch_of_one() -> None:
    (found,) = _loader([{"x": np.zeros((2, 3), np.int8), "y": "a"}], Batch(4))
    assert difference({"x": np.zeros((1, 2, 3), np.int8), "y": np.array(["a"])}, found) is None


def test_objects_are_leaves() -> None:
    class Thing:
        pass

    things = [Thing(), Thing()]
    (found,) = _loader(things, Batch(2))
    assert found.dtype == object
    assert found.tolist() == things


def test_none_is_a_leaf_unless_jax_is_there() -> None:
    (found,) = _loader([{"a": None}, {"a": None}], Batch(2))
    expected = None if tree.follows_jax() else np.array([None, None])
    assert difference({"a": expected}, found) is None


@pytest.mark.parametrize(
    "elements",
    [
        [{"a": 1}, {"b": 1}],
        [{"a": 1}, {"a": 1, "b": 2}],
        [(1, 2), (1, 2, 3)],
        [[1], [1, 2]],
        [{"a": 1}, 1],
        [np.zeros(2), np.zeros(3)],
    ],
)
def test_elements_of_different_structure_are_refused_and_shown(elements: list[Any]) -> None:
    it = iter(_loader([*elements, *elements[:1] * 2], Batch(2)))
    with pytest.raises(ValueError, match=r"Cannot batch 2 elements(.|\n)*The elements are"):
        next(it)
    # The batch that failed is behind us.
    assert len(tree.leaves(next(it))[0]) == 2
    assert next(it, "the end") == "the end"


# Indices.


def test_map_with_index_counts_the_places_of_the_loaders_stream() -> None:
    assert list(_loader("abc", _Number())) == [(0, "a"), (1, "b"), (2, "c")]
    # The index is the record's own: what was left out before it counts.
    kept = _loader("abcde", _Filter(lambda x: x in "bd"), _Number())
    assert list(kept) == [(1, "b"), (3, "d")]
    shard = SequentialSampler(6, ShardOptions(1, 2))
    assert list(_loader("abcdef", _Number(), sampler=shard)) == [(0, "b"), (1, "d"), (2, "f")]
    epochs = IndexSampler(2, num_epochs=2)
    assert [index for index, _ in _loader("ab", _Number(), sampler=epochs)] == [0, 1, 2, 3]


@pytest.mark.parametrize("before", [Batch(2), _FlatMap(lambda x: [x])])
def test_map_with_index_is_refused_where_there_are_no_indices(before: Any) -> None:
    with pytest.raises(ValueError, match=r"`MapWithIndex` cannot follow.*Put `MapWithIndex` first"):
        _loader("abc", before, _Number())


# Without a generator.


def test_a_random_map_without_a_seed_is_refused() -> None:
    for random_map in (_Draw(), _DrawForTf()):
        loader = _loader(range(3), random_map, sampler=SequentialSampler(3))
        with pytest.raises(ValueError, match=r"RandomMap needs a sampler with a seed"):
            iter(loader)


def test_a_random_map_behind_a_flat_map_is_refused() -> None:
    for between in ([], [Batch(2)]):
        loader = _loader(range(3), _FlatMap(lambda x: [x]), *between, _Draw())
        with pytest.raises(ValueError, match="RandomMap after FlatMap has no per-record generator"):
            iter(loader)


def test_a_random_map_over_a_sampler_of_ones_own_without_generators_is_refused() -> None:
    class Plain:
        def __getitem__(self, index: int) -> wg.RecordMetadata:
            return wg.RecordMetadata(index, index)

    loader = _loader(range(3), _Draw(), sampler=Plain(), shard_options=NoSharding())
    with pytest.raises(ValueError, match="records have no random generator"):
        next(iter(loader))


# Other things in the list.


def test_an_operation_that_is_neither_a_transformation_nor_callable_is_refused() -> None:
    with pytest.raises(TypeError, match=r"transformation of `wholegrain\.transforms`.*17"):
        _loader(range(3), 17)


def test_a_bare_function_is_called_with_the_iterator() -> None:
    with pytest.raises(TypeError):
        iter(_loader(range(3), lambda x: x + 1))


# Errors.


def _failing_at(bad: int) -> Callable[[Any], Any]:
    def function(element: Any) -> Any:
        number = element[0] if isinstance(element, tuple) else element
        if number == bad:
            raise KeyError(f"no {element}")
        return element

    return function


def _outcomes(it: Any, kind: type[Exception] = KeyError) -> list[Any]:
    """Return the elements of an iterator, and its errors in their places."""
    found: list[Any] = []
    while True:
        try:
            found.append(next(it))
        except StopIteration:
            return found
        except kind as error:
            found.append(type(error))


class _BadRecord:
    """A source with a record that cannot be read."""

    def __len__(self) -> int:
        return 6

    def __getitem__(self, index: int) -> int:
        if index == 3:
            raise KeyError(index)
        return index


_FAILING = {
    "map": (range(6), _Map(_failing_at(3))),
    "filter": (range(6), _Filter(lambda x: _failing_at(3)(x) is not None)),
    "flat_map": (range(6), _FlatMap(lambda x: [_failing_at(3)(x)])),
    "batch_fn": (range(6), Batch(1, batch_fn=lambda xs: _failing_at(3)(xs[0]))),
    "source": (_BadRecord(), _Map(lambda x: x)),
}


@pytest.mark.parametrize("options", [_NO_THREADS, wg.ReadOptions(), wg.ReadOptions(2, 3)], ids=str)
@pytest.mark.parametrize("where", _FAILING)
def test_a_failing_element_is_left_behind_and_the_others_come(where: str, options: Any) -> None:
    source, operation = _FAILING[where]
    loader = _loader(source, operation, read_options=options)
    it = iter(loader)
    states = [it.get_state()]
    found: list[Any] = []
    for _ in range(6):
        try:
            found.append(next(it))
        except KeyError as error:
            found.append(type(error))
        states.append(it.get_state())
    assert found == [0, 1, 2, KeyError, 4, 5]
    assert next(it, "the end") == "the end"
    assert len(set(states)) == 7

    for place, state in enumerate(states):
        it = iter(loader)
        it.set_state(state)
        assert _outcomes(it) == found[place:]


@given(
    count=st.integers(1, 12),
    bad=st.integers(0, 11),
    size=st.integers(1, 6),
    threads=st.booleans(),
    in_filter=st.booleans(),
)
def test_elements_behind_a_failing_one_are_what_they_would_be_without_it(
    count: int, bad: int, size: int, threads: bool, in_filter: bool
) -> None:
    """Whatever ran ahead of the failure runs again: on the record as it was read."""

    class Source:
        def __len__(self) -> int:
            return count

        def __getitem__(self, index: int) -> list[int]:
            return [index]

    class DrawInPlace(RandomMap):
        def random_map(self, element: list[int], rng: np.random.Generator) -> list[int]:
            element.append(int(rng.integers(2**40)))
            return element

    def check(element: list[int]) -> list[int]:
        if element[0] == bad:
            raise KeyError(tuple(element))
        return element

    failing = _Filter(check) if in_filter else _Map(check)
    batch = Batch(size, batch_fn=lambda elements: [tuple(element) for element in elements])
    options = wg.ReadOptions(2, 5) if threads else _NO_THREADS
    loader = _loader(Source(), DrawInPlace(), failing, batch, read_options=options)

    sampler = SequentialSampler(count, seed=1)
    right = [(index, *_draws(sampler, index)) for index in range(count)]
    it = iter(loader)
    found: list[Any] = []
    failed: list[Any] = []
    while True:
        try:
            found += next(it)
        except StopIteration:
            break
        except KeyError as error:
            failed.append(error.args)
            # The elements that were collected for the batch are dropped with it.
            found = [element for element in found if element[0] < bad // size * size]
    kept = [*right[: bad // size * size], *right[bad + 1 :]] if bad < count else right
    assert found == kept
    assert failed == ([(right[bad],)] if bad < count else [])


@pytest.mark.parametrize("where", ["map", "filter", "flat_map", "batch_fn", "random_map"])
def test_stop_iteration_out_of_a_function_is_an_error_and_not_the_end(where: str) -> None:
    def stop(element: Any, rng: Any = None) -> Any:
        if element in (2, [2]):
            raise StopIteration
        return element

    class Random(RandomMap):
        def random_map(self, element: Any, rng: np.random.Generator) -> Any:
            return stop(element)

    operation = {
        "map": _Map(stop),
        "filter": _Filter(lambda x: stop(x) is not None),
        "flat_map": _FlatMap(lambda x: [stop(x)]),
        "batch_fn": Batch(1, batch_fn=lambda xs: stop(xs)[0]),
        "random_map": Random(),
    }[where]
    it = iter(_loader(range(4), operation))
    assert _outcomes(it, RuntimeError) == [0, 1, RuntimeError, 3]
    with pytest.raises(RuntimeError, match="StopIteration"):
        _ = [*_loader(range(4), operation, Batch(2))]


def test_an_error_tells_where_it_happened_and_stays_what_it_is() -> None:
    class BadError(Exception):
        pass

    class Decode(Map):
        def map(self, element: int) -> int:
            raise BadError(element)

    with pytest.raises(BadError) as caught:
        next(iter(_loader(range(3), Decode())))
    assert caught.value.args == (0,)
    assert any("Decode" in note for note in caught.value.__notes__)


def test_the_state_after_an_error_is_behind_it() -> None:
    it = iter(_loader(range(6), _Map(_failing_at(1)), Batch(2)))
    with pytest.raises(KeyError):
        next(it)
    assert json.loads(it.get_state())["last_seen_indices"] == {"0": 1}
    assert next(it).tolist() == [2, 3]
