"""Mistakes are told at the call that made them, with what to do instead."""

import collections.abc
import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import wholegrain as wg
from wholegrain import experimental

M: Any = wg.MapDataset.range(10)
I: Any = M.to_iter_dataset()  # noqa: E741
E: Any = experimental


class Plain(wg.transforms.Map):
    def map(self, element: Any) -> Any:
        return element


class Noisy(wg.transforms.RandomMap):
    def random_map(self, element: Any, rng: np.random.Generator) -> Any:
        return element


class Splits(wg.transforms.FlatMap):
    def flat_map(self, element: Any) -> Any:
        return [element]


class TwoArguments(wg.transforms.Map):
    def map(self, element: Any, other: Any) -> Any:  # type: ignore[override]
        return element


def _loader(**changed: Any) -> Any:
    given: dict[str, Any] = {
        "data_source": [1],
        "sampler": wg.samplers.IndexSampler(1, num_epochs=1),
    }
    return wg.DataLoader(**(given | changed))


def _case(error: type[Exception], says: str, call: Callable[[], Any]) -> Any:
    return pytest.param(error, says, call, id=says[:40])


@pytest.mark.parametrize(
    ("error", "says", "call"),
    [
        # What the other kind of dataset has.
        _case(AttributeError, r"ds\.to_iter_dataset\(\)\.mp_prefetch", lambda: M.mp_prefetch()),
        _case(AttributeError, r"has no attribute 'prefetch'. Call", lambda: M.prefetch()),
        _case(AttributeError, r"\.shuffle\(seed=\.\.\.\)\.to_iter", lambda: I.shuffle(seed=1)),
        _case(AttributeError, "WindowShuffleIterDataset", lambda: I.shuffle(1)),
        _case(AttributeError, r"\.repeat\(\)\.to_iter_dataset", lambda: I.repeat()),
        _case(AttributeError, "RepeatIterDataset", lambda: I.repeat(2)),
        _case(AttributeError, "Slice before", lambda: I.slice(slice(3))),
        _case(AttributeError, "IterDataset already", lambda: I.to_iter_dataset()),
        _case(TypeError, r"`next\(iter\(ds\)\)`", lambda: I[0]),
        _case(TypeError, "An IterDataset has no elements by index", lambda: I[2:5]),
        _case(AttributeError, r"`it = iter\(ds\)`, then", lambda: M.get_state()),
        _case(AttributeError, r"then `it\.report", lambda: I.report()),
        _case(AttributeError, r"It belongs to datasets: `ds = ds\.batch", lambda: iter(M).batch(2)),
        _case(AttributeError, r"MapDataset\.range\(\.\.\.\)\.to_iter", lambda: E and _iter_range()),
        _case(AttributeError, r"`ds\[:n\]`", lambda: M.take(3)),
        _case(AttributeError, r"LimitIterDataset\(ds, n\)", lambda: I.take(3)),
        _case(AttributeError, r"ZipMapDataset\(\[ds, other\]\)", lambda: M.zip(M)),
        _case(AttributeError, "no attribute 'maps'", lambda: M.maps()),
        # Transformations.
        _case(TypeError, r"class Plain itself. Create an object: `Plain\(", lambda: M.map(Plain)),
        _case(TypeError, "`map` needs an object", lambda: I.map(Plain)),
        _case(TypeError, "for `ds.random_map", lambda: M.map(Noisy())),
        _case(TypeError, "`operations` needs an object", lambda: _loader(operations=[Plain])),
        _case(TypeError, "`map_with_index` calls it with", lambda: M.map(lambda a, b: a)),
        _case(TypeError, r"takes \(x\)", lambda: I.random_map(lambda x: x, seed=1)),
        _case(TypeError, r"as `f\(index, element\)`", lambda: M.map_with_index(lambda x: x)),
        _case(TypeError, r"takes \(element, other\)", lambda: M.map(TwoArguments())),
        _case(TypeError, r"takes \(x, k\)", lambda: M.map(lambda x, *, k: x)),
        _case(TypeError, "`max_fan_out`", lambda: E.FlatMapMapDataset(M, Splits())),
        _case(TypeError, "derived from `transforms.FlatMap`", lambda: E.FlatMapIterDataset(I, str)),
        # Numbers.
        _case(TypeError, "`batch_size` has to be a whole", lambda: M.batch("2")),
        _case(TypeError, "`shuffle` needs a whole number as seed", lambda: M.shuffle(seed="x")),
        _case(TypeError, "`seed` has to be a whole", lambda: M.random_map(Noisy(), seed="x")),
        _case(ValueError, "seed=-1", lambda: I.random_map(Noisy(), seed=-1)),
        _case(ValueError, "but got 'x'", lambda: M.seed("x")),
        _case(TypeError, "`num_epochs` has to be", lambda: M.repeat("2")),
        _case(TypeError, "but got 1.5", lambda: M.repeat(1.5)),
        _case(TypeError, r"`ds\[index\]` takes a whole", lambda: M["a"]),
        _case(TypeError, "`count` has to be", lambda: E.LimitIterDataset(I, "3")),
        _case(
            TypeError, "`cycle_length` has", lambda: E.InterleaveIterDataset([I], cycle_length="")
        ),
        _case(TypeError, "`num_threads` has to be", lambda: E.multithread_prefetch(I, "2", 1)),
        # Datasets.
        _case(TypeError, "MapDatasets, but got an Iter", lambda: wg.MapDataset.mix([M, I])),
        _case(TypeError, "list of datasets, but got range", lambda: wg.MapDataset.mix(M, [1])),
        _case(
            TypeError,
            "`mix` knows datasets by name",
            lambda: wg.MapDataset.concatenate(_mapping()),
        ),
        _case(TypeError, "put it in brackets", lambda: E.ZipIterDataset(I)),
        _case(TypeError, r"but got \[1, 2\]", lambda: E.LimitIterDataset([1, 2], 1)),
        _case(
            TypeError,
            "but got an IterDataset",
            lambda: E.WindowShuffleMapDataset(I, window_size=2, seed=1),
        ),
        _case(
            TypeError,
            r"one of them is \[1\]",
            lambda: E.InterleaveIterDataset([[1]], cycle_length=1),
        ),
        _case(TypeError, "numbers as weights", lambda: wg.MapDataset.mix([M], _strings())),
        # Options.
        _case(TypeError, "`num_workers` has to be a whole number or", lambda: _workers("two")),
        _case(ValueError, "num_workers=-1", lambda: _workers(-1)),
        _case(TypeError, "but got None", lambda: _workers(None)),
        _case(ValueError, "max_workers=0", lambda: wg.MultiprocessingOptions(max_workers=0)),
        _case(ValueError, "num_threads=-1", lambda: wg.ReadOptions(num_threads=-1)),
        _case(TypeError, r"ReadOptions\(num_threads=4\)", lambda: M.to_iter_dataset(3)),
        _case(TypeError, "`worker_init_fn` has", lambda: I.mp_prefetch(None, 3)),
        _case(TypeError, r"takes \(\)", lambda: I.mp_prefetch(None, lambda: None)),
        _case(TypeError, "needs options", lambda: E.WithOptionsIterDataset(I, {})),
        _case(
            TypeError,
            "has to be a share",
            lambda: E.DatasetOptions(filter_warn_threshold_ratio="x"),
        ),
        # The DataLoader.
        _case(TypeError, "`sampler` has to define", lambda: _loader(sampler=None)),
        _case(TypeError, "`operations` has to be a list", lambda: _loader(operations=Plain())),
        _case(TypeError, "An operation has to be", lambda: _loader(operations=[3])),
        _case(TypeError, "no `__getitem__`", lambda: _loader(data_source=iter([1]))),
        _case(TypeError, "`read_options` has to be", lambda: _loader(read_options=3)),
        _case(TypeError, "`shard_options` has to be", lambda: _loader(shard_options=(0, 1))),
        _case(TypeError, "`worker_buffer_size` has", lambda: _loader(worker_buffer_size="x")),
        # Packing.
        _case(
            TypeError,
            r"`length_struct\['x'\]` has to be",
            lambda: E.FirstFitPackIterDataset(I, length_struct={"x": "a"}, num_packing_bins=2),
        ),
        _case(
            TypeError, "must be a dict", lambda: E.ConcatThenSplitIterDataset(I, length_struct=[3])
        ),
    ],
)
def test_a_mistake_is_told_where_it_is_made(
    error: type[Exception], says: str, call: Callable[[], Any]
) -> None:
    with pytest.raises(error, match=says):
        call()


def _iter_range() -> Any:
    kind: Any = wg.IterDataset
    return kind.range(3)


def _mapping() -> Any:
    return {"a": M}


def _strings() -> Any:
    return ["x"]


def _workers(number: Any) -> Any:
    return wg.MultiprocessingOptions(num_workers=number)


def test_what_is_not_there_is_not_there_for_hasattr_either() -> None:
    assert not any(hasattr(M, name) for name in ("mp_prefetch", "get_state", "__next__"))
    assert not any(hasattr(I, name) for name in ("shuffle", "__getitem__", "__len__", "__next__"))
    assert not hasattr(wg.IterDataset, "range")
    assert getattr(I, "repeat", None) is None
    assert not isinstance(I, collections.abc.Sized)
    assert not isinstance(I, collections.abc.Iterator)
    assert np.asarray(I, dtype=object).shape == ()
    assert list(I) == list(range(10))
    assert bool(I)


def test_an_error_in_a_property_is_not_hidden() -> None:
    class Own(wg.MapDataset[int]):
        def __len__(self) -> int:
            return 1

        def __getitem__(self, index: Any) -> Any:
            return index

        @property
        def sizes(self) -> int:
            return self.lengths  # type: ignore[attr-defined,no-any-return]

    with pytest.raises(AttributeError, match="lengths"):
        _ = Own().sizes


def test_functions_that_can_be_called_are_taken() -> None:
    class Callable_:
        def __call__(self, element: Any, other: int = 1) -> Any:
            return element + other

        def method(self, element: Any) -> Any:
            return element + 1

        @classmethod
        def of_class(cls, element: Any) -> Any:
            return element + 1

    @functools.wraps(lambda element, other: None)
    def wrapped(element: Any) -> Any:
        return element + 1

    functions: list[Any] = [
        lambda x, y=1: x + y,
        lambda *args: args[0] + 1,
        lambda x, **options: x + 1,
        lambda x, *, k=1: x + k,
        Callable_(),
        Callable_().method,
        Callable_.of_class,
        functools.partial(lambda y, x: x + y, 1),
        wrapped,
        (1).__add__,
    ]
    for function in functions:
        assert list(M.map(function)) == list(range(1, 11))
        assert list(I.map(function)) == list(range(1, 11))
    assert list(M.map(str)) == [str(x) for x in range(10)]


def test_counts_may_be_whole_floats_and_numpy_integers() -> None:
    assert len(M.repeat(np.int32(2))) == 20
    assert list(E.LimitIterDataset(I, 4 / 2)) == [0, 1]
    assert wg.MultiprocessingOptions(num_workers=np.int64(2)).num_workers == 2  # type: ignore[arg-type]


_GOOD = {"x": np.arange(3), "y": np.arange(2)}


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        (3, "the element is of type int"),
        ({"x": np.arange(3)}, r"no feature 'y', but \['x'\]"),
        ({"x": np.zeros((2, 2)), "y": np.arange(2)}, r"'x' of this element is float64\[2, 2\]"),
        ({"x": "abc", "y": np.arange(2)}, "'x' of this element is"),
        ({"x": [[1], [2, 3]], "y": np.arange(2)}, "'x' is not an array"),
        ({"x": np.arange(30), "y": np.arange(2)}, "This happened in FirstFitPackIterDataset"),
    ],
)
def test_packing_says_which_stage_and_which_feature(bad: Any, says: str) -> None:
    ds = wg.MapDataset.source([_GOOD, bad]).to_iter_dataset()
    packed = E.FirstFitPackIterDataset(ds, length_struct={"x": 8, "y": 4}, num_packing_bins=2)
    with pytest.raises((TypeError, ValueError, KeyError)) as caught:
        list(packed)
    assert "FirstFitPackIterDataset" in str(caught.value.__notes__)
    caught.match(says)


def test_splitting_says_which_stage_and_which_feature() -> None:
    bad = {"x": np.zeros((2, 2)), "y": np.arange(2)}
    ds = wg.MapDataset.source([_GOOD, bad]).to_iter_dataset()
    split = E.ConcatThenSplitIterDataset(ds, length_struct={"x": 8, "y": 8})
    with pytest.raises(ValueError, match=r"the feature 'x' in a row are int64\[n\], float64\[n, 2"):
        list(split)


def test_names_that_are_spelt_wrong_are_suggested() -> None:
    with pytest.raises(AttributeError) as caught:
        _ = wg.MapDatset
    assert (caught.value.name, caught.value.obj) == ("MapDatset", wg)
