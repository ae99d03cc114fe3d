"""get_element_spec: what elements look like, without reading any."""

import functools
from typing import Any, NamedTuple

import numpy as np
import pytest

import wholegrain as wg
from tests.graph.tools import R, X, source

spec: Any = wg.experimental.get_element_spec
Struct: Any = wg.experimental.ShapeDtypeStruct

_INT = Struct(shape=(), dtype=np.int64)


class ToImage(wg.transforms.Map):
    def map(self, element: Any) -> Any:
        raise AssertionError("nothing is read")

    def output_spec(self, input_spec: Any) -> Any:
        assert input_spec == _INT
        return {"image": Struct((8, None, 3), np.uint8), "label": (input_spec,)}


_IMAGE = {"image": Struct((8, None, 3), np.uint8), "label": (_INT,)}


def test_a_struct_has_a_shape_and_a_dtype() -> None:
    struct = Struct(shape=(2, None), dtype=np.float32)
    assert struct == Struct((2, None), np.float32)
    assert isinstance(struct, wg.experimental.ShapeDtypeStructProtocol)
    assert isinstance(np.zeros(2), wg.experimental.ShapeDtypeStructProtocol)
    assert not isinstance(3, wg.experimental.ShapeDtypeStructProtocol)
    with pytest.raises(AttributeError):
        setattr(struct, "shape", ())  # noqa: B010


def test_a_range_has_integers() -> None:
    assert spec(R(5)) == _INT


def test_a_transformation_says_what_it_does() -> None:
    assert spec(R(5).map(ToImage())) == _IMAGE
    assert spec(R(5).to_iter_dataset().map(ToImage())) == _IMAGE


@pytest.mark.parametrize("method", ["map", "map_with_index", "random_map"])
def test_one_that_does_not_is_named(method: str) -> None:
    keywords = {"seed": 1} if method == "random_map" else {}
    for ds in (R(5), R(5).to_iter_dataset()):
        with pytest.raises(ValueError, match="output_spec") as raised:
            spec(getattr(ds, method)(max, **keywords))
        assert "max" in str(raised.value)


def test_index_and_random_maps_say_what_they_do() -> None:
    class Noisy(wg.transforms.RandomMap):
        def random_map(self, element: Any, rng: Any) -> Any:
            return element

        def output_spec(self, input_spec: Any) -> Any:
            return (input_spec,)

    class Numbered(wg.transforms.MapWithIndex):
        def map_with_index(self, index: int, element: Any) -> Any:
            return element

        def output_spec(self, input_spec: Any) -> Any:
            return [input_spec]

    for ds in (R(5), R(5).to_iter_dataset()):
        assert spec(ds.random_map(Noisy(), seed=1)) == (_INT,)
        assert spec(ds.map_with_index(Numbered())) == [_INT]


def test_most_stages_change_nothing() -> None:
    ds = R(6).map(ToImage())
    for same in (
        ds.shuffle(seed=1),
        ds[1:4],
        ds.slice([1, 2]),
        ds.repeat(2),
        ds.filter(bool),
        ds.seed(1),
        X.WindowShuffleMapDataset(ds, window_size=2, seed=1),
        ds.to_iter_dataset(),
        ds.to_iter_dataset().filter(bool).seed(1),
        X.WithOptionsIterDataset(ds.to_iter_dataset(), X.DatasetOptions()),
        X.LimitIterDataset(ds.to_iter_dataset(), 2),
        X.CacheIterDataset(ds.to_iter_dataset()),
        X.RepeatIterDataset(ds.to_iter_dataset()),
        X.WindowShuffleIterDataset(ds.to_iter_dataset(), window_size=2, seed=1),
        X.ThreadPrefetchIterDataset(ds.to_iter_dataset(), prefetch_buffer_size=1),
        X.multithread_prefetch(ds.to_iter_dataset(), 2, 1),
        wg.MapDataset.mix([ds, R(3)]),
        wg.MapDataset.concatenate([ds, R(3)]),
        wg.IterDataset.mix([ds.to_iter_dataset(), R(3).to_iter_dataset()]),
        X.InterleaveIterDataset([ds, R(3)], cycle_length=2),
    ):
        assert spec(same) == _IMAGE, str(same)


@pytest.mark.parametrize("drop_remainder", [False, True])
def test_a_batch_has_a_dimension_more(drop_remainder: bool) -> None:
    rows = 4 if drop_remainder else None
    expected = {
        "image": Struct((rows, 8, None, 3), np.uint8),
        "label": (Struct((rows,), np.int64),),
    }
    ds = R(6).map(ToImage())
    assert spec(ds.batch(4, drop_remainder=drop_remainder)) == expected
    assert spec(ds.to_iter_dataset().batch(4, drop_remainder=drop_remainder)) == expected
    batches = ds.to_iter_dataset().batch(3, drop_remainder=True)
    assert spec(X.RebatchIterDataset(batches, 4, drop_remainder)) == expected


def test_a_batch_fn_says_what_it_does() -> None:
    class Join:
        def __call__(self, elements: Any) -> Any:
            raise AssertionError("nothing is read")

        def output_spec(self, input_spec: Any, batch_size: int, drop_remainder: bool) -> Any:
            return input_spec, batch_size, drop_remainder

    for batch_fn in (Join(), functools.partial(functools.partial(Join(), 1), x=2)):
        assert spec(R(6).batch(4, batch_fn=batch_fn)) == (_INT, 4, False)
        it = R(6).to_iter_dataset().batch(4, drop_remainder=True, batch_fn=batch_fn)
        assert spec(it) == (_INT, 4, True)
    with pytest.raises(NotImplementedError, match="output_spec"):
        spec(R(6).batch(4, batch_fn=list))


def test_a_zip_has_a_tuple() -> None:
    assert spec(X.ZipMapDataset([R(3), R(3).map(ToImage())])) == (_INT, _IMAGE)
    zipped = X.ZipIterDataset([R(3).to_iter_dataset(), R(3).to_iter_dataset()])
    assert spec(zipped) == (_INT, _INT)


class Parts(wg.transforms.FlatMap):
    max_fan_out = 1

    def flat_map(self, element: Any) -> Any:
        return [element]


class Mine(wg.MapDataset[Any]):
    def __len__(self) -> int:
        return 1

    def __getitem__(self, index: Any) -> Any:
        return index


@pytest.mark.parametrize(
    "ds",
    [
        source([1]),
        source([1]).shuffle(seed=1).batch(2).to_iter_dataset(),
        X.FlatMapMapDataset(R(3), Parts()),
        X.FlatMapIterDataset(R(3).to_iter_dataset(), Parts()),
        Mine(),
    ],
    ids=str,
)
def test_some_stages_cannot_know(ds: Any) -> None:
    with pytest.raises(NotImplementedError):
        spec(ds)


def test_trees_keep_their_type() -> None:
    class Pair(NamedTuple):
        x: Any
        y: Any

    class ToPair(wg.transforms.Map):
        def map(self, element: Any) -> Any:
            return Pair(element, element)

        def output_spec(self, input_spec: Any) -> Any:
            return Pair(input_spec, input_spec)

    batched = spec(R(3).map(ToPair()).batch(2))
    assert type(batched) is Pair
    assert batched.x == Struct((None,), np.int64)
