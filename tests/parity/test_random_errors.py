"""Arguments that Grain refuses are refused here, with errors of the same class."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import wholegrain as wg
from wholegrain._state.validate import WrongStateError

grain: Any = pytest.importorskip("grain")

_WHOLE = st.one_of(
    st.integers(-3, 6), st.sampled_from([2**32 - 1, 2**32, np.int64(2), np.int64(0), True])
)
_OTHER = st.sampled_from([1.5, 2.0, "a", "", b"b", None, (), [], {}, [1], object(), int, print])


def _same(element: Any, *_: Any) -> Any:
    return element


def _iterate(g: Any, length: int) -> Any:
    return g.MapDataset.range(length).to_iter_dataset()


# Each of them takes a package and one argument that may be wrong. Left out are those that Grain
# takes and fails on later, such as windows of no elements or a negative number of threads.
_CALLS: dict[str, Callable[[Any, Any], Any]] = {
    "range(stop)": lambda g, v: len(g.MapDataset.range(v)),
    "range(step)": lambda g, v: len(g.MapDataset.range(0, 5, v)),
    "ds[index]": lambda g, v: g.MapDataset.range(5)[v],
    "source[index]": lambda g, v: g.MapDataset.source([1, 2, 3])[v],
    "map[index]": lambda g, v: g.MapDataset.range(5).map(_same)[v],
    "shuffle[index]": lambda g, v: g.MapDataset.range(5).shuffle(seed=1)[v],
    "batch[index]": lambda g, v: g.MapDataset.range(5).batch(2)[v],
    "map(transform)": lambda g, v: g.MapDataset.range(5).map(v)[0],
    "filter(transform)": lambda g, v: g.MapDataset.range(5).filter(v)[0],
    "batch(size)": lambda g, v: g.MapDataset.range(5).batch(v)[0],
    "iter batch(size)": lambda g, v: list(_iterate(g, 5).batch(v)),
    "rebatch(size)": lambda g, v: g.experimental.RebatchIterDataset(_iterate(g, 3), v),
    "repeat(epochs)": lambda g, v: g.MapDataset.range(3).repeat(v),
    "iter repeat(epochs)": lambda g, v: g.experimental.RepeatIterDataset(_iterate(g, 3), v),
    "limit(count)": lambda g, v: g.experimental.LimitIterDataset(_iterate(g, 3), v),
    "shuffle(seed)": lambda g, v: g.MapDataset.range(5).shuffle(v),
    "seed(seed).shuffle()": lambda g, v: g.MapDataset.range(5).seed(v).shuffle(),
    "seed(seed).random_map()": lambda g, v: g.MapDataset.range(5).seed(v).random_map(_same),
    "random_map(seed)[0]": lambda g, v: g.MapDataset.range(5).random_map(_same, seed=v)[0],
    "iter(random_map(seed))": lambda g, v: iter(_iterate(g, 5).random_map(_same, seed=v)),
    "random_map[index]": lambda g, v: g.MapDataset.range(5).random_map(_same, seed=1)[v],
    "ReadOptions(threads)": lambda g, v: g.ReadOptions(num_threads=v),
    "ReadOptions(buffer)": lambda g, v: g.ReadOptions(prefetch_buffer_size=v),
    "ThreadPrefetch(size)": lambda g, v: g.experimental.ThreadPrefetchIterDataset(
        _iterate(g, 3), prefetch_buffer_size=v
    ),
    "set_state(next_index)": lambda g, v: iter(_iterate(g, 5)).set_state({"next_index": v}),
    "apply(transform)": lambda g, v: g.MapDataset.range(3).apply(v),
    "mix(datasets)": lambda g, v: g.MapDataset.mix(v),
    "concatenate(datasets)": lambda g, v: g.MapDataset.concatenate(v),
    "zip(datasets)": lambda g, v: g.experimental.ZipMapDataset(v),
    "iter zip(datasets)": lambda g, v: g.experimental.ZipIterDataset(v),
    "index_shuffle(index)": lambda g, v: g.experimental.index_shuffle(v, 4, 1, 4),
    "index_shuffle(max_index)": lambda g, v: g.experimental.index_shuffle(2, v, 1, 4),
    "index_shuffle(seed)": lambda g, v: g.experimental.index_shuffle(2, 4, v, 4),
    "index_shuffle(rounds)": lambda g, v: g.experimental.index_shuffle(2, 4, 1, v),
    "batch_and_pad(batch_size)": lambda g, v: g.experimental.batch_and_pad([1, 2], batch_size=v),
}


def _error(call: Callable[[Any, Any], Any], package: Any, value: Any) -> type[Exception] | None:
    try:
        call(package, value)
    except Exception as error:
        return type(error)
    return None


@pytest.mark.parametrize("name", _CALLS)
@given(value=_WHOLE)
def test_whole_numbers_are_taken_or_refused_alike(name: str, value: Any) -> None:
    found, expected = (_error(_CALLS[name], package, value) for package in (wg, grain))
    assert found is expected or _is_also(found, expected)


def _is_also(found: type[Exception] | None, expected: type[Exception] | None) -> bool:
    """Whether an error of ours for bad states is caught by who expects Grain's."""
    return found is WrongStateError and expected is not None and issubclass(found, expected)


@pytest.mark.parametrize("name", _CALLS)
@given(value=_OTHER)
def test_what_grain_refuses_is_refused(name: str, value: Any) -> None:
    expected = _error(_CALLS[name], grain, value)
    found = _error(_CALLS[name], wg, value)
    if expected is not None:
        assert found is expected or _is_also(found, expected)
    else:  # Grain takes 1.5 in places, and looks at other things only when iterating.
        assert found in (None, TypeError, ValueError, WrongStateError)


_LENGTHS = st.lists(st.integers(0, 3), max_size=3)


@given(lengths=_LENGTHS, weights=st.lists(st.sampled_from([0, 0.5, 1, 2]), max_size=3))
def test_mixtures_are_taken_or_refused_alike(lengths: list[int], weights: list[float]) -> None:
    def mix(g: Any, weights: Any) -> Any:
        return g.MapDataset.mix([g.MapDataset.range(length) for length in lengths], weights)

    def iter_mix(g: Any, weights: Any) -> Any:
        return g.IterDataset.mix([_iterate(g, length) for length in lengths], weights)

    for call in (mix, iter_mix):
        expected = _error(call, grain, weights)
        if len(weights) != len(lengths):
            expected = ValueError  # Grain's is an AssertionError.
        assert _error(call, wg, weights) is expected
        assert _error(call, wg, None) is _error(call, grain, None)


@given(lengths=_LENGTHS)
def test_zips_are_taken_or_refused_alike(lengths: list[int]) -> None:
    def zip_map(g: Any, _: Any) -> Any:
        return g.experimental.ZipMapDataset([g.MapDataset.range(length) for length in lengths])

    def zip_iter(g: Any, strict: bool) -> Any:
        datasets = [_iterate(g, length) for length in lengths]
        return list(g.experimental.ZipIterDataset(datasets, strict=strict))

    assert _error(zip_map, wg, None) is _error(zip_map, grain, None)
    for strict in (True, False):
        assert _error(zip_iter, wg, strict) is _error(zip_iter, grain, strict)


_STAGES: dict[str, Callable[[Any], Any]] = {
    "map": lambda ds: ds.map(_same),
    "filter": lambda ds: ds.filter(bool),
    "shuffle": lambda ds: ds.shuffle(),
    "random_map": lambda ds: ds.random_map(_same),
    "seed": lambda ds: ds.seed(3),
    "batch": lambda ds: ds.batch(2),
    "repeat": lambda ds: ds.repeat(2),
    "repeat forever": lambda ds: ds.repeat(),
    "slice": lambda ds: ds[1:],
    "to_iter_dataset": lambda ds: ds.to_iter_dataset(),
}


@given(stages=st.lists(st.sampled_from(sorted(_STAGES)), max_size=5))
def test_stages_follow_each_other_or_are_refused_alike(stages: list[str]) -> None:
    def build(g: Any, _: Any) -> None:
        ds = g.MapDataset.range(6)
        for stage in stages:
            ds = _STAGES[stage](ds)

    found, expected = _error(build, wg, None), _error(build, grain, None)
    assert found is expected or (found and expected and issubclass(found, expected))
