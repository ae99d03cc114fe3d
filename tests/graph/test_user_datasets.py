"""Datasets and iterators of the user's are full members of a pipeline."""

from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np
import pytest

import wholegrain as wg
from tests.graph.tools import END, READ_OPTIONS, R, X, as_lists, finishes, source
from wholegrain.testing import check_iter_dataset, check_map_dataset

T = TypeVar("T")


class Squares(wg.MapDataset[int]):
    """The least that is needed: no call of `super().__init__`, no slices."""

    def __init__(self, length: int) -> None:
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: Any) -> Any:
        return (index % self.length) ** 2


class Plus(wg.MapDataset[int]):
    """In the middle of a pipeline."""

    def __init__(self, parent: wg.MapDataset[int], amount: int) -> None:
        super().__init__(parent)
        self.amount = amount

    def __len__(self) -> int:
        return len(self._parent)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return self.slice(index)
        element = self._parent[index]
        return None if element is None else element + self.amount


class Bulk(Plus):
    """Reads many at once."""

    calls: int = 0

    def _getitems(self, indices: Sequence[int]) -> Sequence[Any]:
        Bulk.calls += 1
        return tuple(self[index] for index in indices)


def test_the_least_that_is_needed() -> None:
    ds = Squares(5)
    assert list(ds) == [0, 1, 4, 9, 16]
    assert ds.parents == ()
    assert list(ds.map(lambda x: x + 1)) == [1, 2, 5, 10, 17]
    assert list(ds.shuffle(seed=1).repeat(2)) == [R(5).shuffle(seed=1)[i] ** 2 for i in range(10)]
    assert as_lists(ds.batch(2)) == [[0, 1], [4, 9], [16]]
    assert list(ds.slice(slice(1, 4))) == [1, 4, 9]
    assert list(ds.seed(1).random_map(lambda x, _: x)) == [0, 1, 4, 9, 16]
    assert list(wg.MapDataset.concatenate([ds, Squares(2)])) == [0, 1, 4, 9, 16, 0, 1]
    assert list(source(ds)) == [0, 1, 4, 9, 16]
    assert str(ds) == "Squares"
    for options in READ_OPTIONS:
        assert list(ds.to_iter_dataset(options)) == [0, 1, 4, 9, 16]
    check_map_dataset(ds)


@pytest.mark.parametrize("cls", [Plus, Bulk])
def test_in_the_middle(cls: Any) -> None:
    ds = cls(R(10).shuffle(seed=1), 5).map(lambda x: x * 2).batch(3)
    expected = [(R(10).shuffle(seed=1)[i] + 5) * 2 for i in range(10)]
    assert [x for batch in ds for x in batch] == expected
    assert cls(R(3), 1).parents[0] is not None
    check_map_dataset(cls(R(10).shuffle(seed=1), 5)[2:8].repeat(2), epochs=3)
    check_map_dataset(cls(R(10).filter(bool), 5))
    check_iter_dataset(cls(R(10), 5).to_iter_dataset().batch(3))


def test_filters_above_a_users_dataset_are_seen() -> None:
    with pytest.raises(ValueError, match="filter"):
        Plus(R(5).filter(bool), 1).batch(2)


def test_a_dataset_that_reads_many_is_asked_for_many() -> None:
    Bulk.calls = 0
    assert list(Bulk(R(2000), 0).map(abs)) == list(range(2000))
    assert 0 < Bulk.calls < 200


@pytest.mark.parametrize(
    "returned", [lambda x: x[:-1], lambda x: x + x[:1], lambda _: []], ids=["fewer", "more", "none"]
)
def test_a_chunk_of_another_length_is_refused(returned: Any) -> None:
    class Wrong(Squares):
        def _getitems(self, indices: Sequence[int]) -> Sequence[Any]:
            return returned([self[index] for index in indices])  # type: ignore[no-any-return]

    with pytest.raises(ValueError, match=r"Wrong\._getitems. was asked for 3") as raised:
        Wrong(10).getitems(np.array([1, 2, 3]))
    assert "one for each index" in str(raised.value)


def test_a_chunk_may_be_any_sequence() -> None:
    class Arrays(Squares):
        def _getitems(self, indices: Sequence[int]) -> Any:
            return np.array(indices) ** 2

    expected = [[0, 1, 4], [9, 16, 25], [36, 49, 64], [81]]
    assert as_lists(Arrays(10).to_iter_dataset(wg.ReadOptions(0)).batch(3)) == expected
    assert as_lists(Arrays(10).batch(3)) == expected
    long: Any = Arrays(3000).to_iter_dataset(wg.ReadOptions(0)).batch(1000)
    assert [len(batch) for batch in long] == [1000, 1000, 1000]


def test_the_factories_belong_to_the_class() -> None:
    assert list(Squares.range(3)) == [0, 1, 2]
    assert list(Squares.source("ab")) == ["a", "b"]
    assert not hasattr(Squares(3), "range")
    assert not hasattr(R(3), "source")
    assert not hasattr(R(3), "mix")


def test_the_bases_are_abstract() -> None:
    bases: list[Any] = [wg.MapDataset, wg.IterDataset, wg.DatasetIterator]
    for base in bases:
        with pytest.raises(TypeError, match="abstract"):
            base()


def test_classes_take_type_arguments() -> None:
    class Typed(wg.MapDataset[T]):
        def __len__(self) -> int:
            return 1

        def __getitem__(self, index: Any) -> Any:
            return index

    assert Typed[int]()[3] == 3
    assert wg.IterDataset[int] is not None
    assert wg.DatasetIterator[dict[str, np.ndarray[Any, Any]]] is not None


def test_parents_may_be_one_or_several() -> None:
    class Joined(wg.MapDataset[Any]):
        def __len__(self) -> int:
            return 2

        def __getitem__(self, index: Any) -> Any:
            return tuple(parent[index] for parent in self.parents)

    one, two = R(2), R(5, 7)
    assert Joined(one).parents == (one,)
    assert Joined([one, two]).parents == (one, two)
    assert list(Joined((one, two))) == [(0, 5), (1, 6)]
    assert Joined().parents == ()
    with pytest.raises(ValueError, match="unpack"):
        Joined([one, two])._parent  # noqa: B018


# In order.


class Pairwise(wg.IterDataset[Any]):
    """Two elements at a time, as a user would write it."""

    def __iter__(self) -> wg.DatasetIterator[Any]:
        return PairwiseIterator(self._parent.__iter__())


class PairwiseIterator(wg.DatasetIterator[Any]):
    def __init__(self, parent: wg.DatasetIterator[Any]) -> None:
        super().__init__(parent)
        self._count = 0

    def __next__(self) -> Any:
        first = next(self._parent)
        second = next(self._parent)
        self._count += 1
        return first, second

    def get_state(self) -> dict[str, Any]:
        return {"parent": self._parent.get_state(), "count": self._count}

    def set_state(self, state: dict[str, Any]) -> None:
        self._parent.set_state(state["parent"])
        self._count = state["count"]


class Counter(wg.IterDataset[int]):
    """A source of its own, whose iterator does not call `super().__init__`."""

    def __init__(self, stop: int) -> None:
        self.stop = stop

    def __iter__(self) -> wg.DatasetIterator[int]:
        return CounterIterator(self.stop)


class CounterIterator(wg.DatasetIterator[int]):
    def __init__(self, stop: int) -> None:
        self.stop, self.position = stop, 0

    def __next__(self) -> int:
        if self.position >= self.stop:
            raise StopIteration
        self.position += 1
        return self.position - 1

    def get_state(self) -> dict[str, Any]:
        return {"position": self.position}

    def set_state(self, state: dict[str, Any]) -> None:
        self.position = state["position"]


_OVER: dict[str, Any] = {
    "map": lambda ds: ds.map(lambda x: x),
    "map_with_index": lambda ds: ds.map_with_index(lambda i, x: (i, x)),
    "random_map": lambda ds: ds.random_map(lambda x, rng: (x, rng.integers(9)), seed=1),
    "filter": lambda ds: ds.filter(lambda x: x != 2),
    "batch": lambda ds: ds.batch(2),
    "limit": lambda ds: X.LimitIterDataset(ds, 3),
    "repeat": lambda ds: X.RepeatIterDataset(ds, 2),
    "cache": lambda ds: X.CacheIterDataset(ds),
    "windows": lambda ds: X.WindowShuffleIterDataset(ds, window_size=2, seed=1),
    "mix": lambda ds: wg.IterDataset.mix([ds, ds]),
    "zip": lambda ds: X.ZipIterDataset([ds, ds]),
    "interleave": lambda ds: X.InterleaveIterDataset([ds, ds], cycle_length=2),
    "thread": lambda ds: X.ThreadPrefetchIterDataset(ds, prefetch_buffer_size=2),
    "one worker": lambda ds: X.multithread_prefetch(ds, 1, 1),
    "rebatch": lambda ds: X.RebatchIterDataset(ds.batch(2), 3),
}


@pytest.mark.parametrize("over", _OVER)
def test_every_stage_takes_a_users_dataset(over: str) -> None:
    mine, ours = _OVER[over](Counter(6)), _OVER[over](R(6).to_iter_dataset())
    assert str(finishes(lambda: list(mine))) == str(finishes(lambda: list(ours)))
    if over != "cache":  # Which may say more after a restore than before.
        check_iter_dataset(mine, max_restores=6)


def test_a_users_dataset_takes_every_stage() -> None:
    for parent in (R(6), R(6).to_iter_dataset(), Counter(6), R(6).to_iter_dataset().map(abs)):
        ds = Pairwise(parent)
        assert list(ds) == [(0, 1), (2, 3), (4, 5)]
        check_iter_dataset(ds.map(sum).batch(2))
    seeded = Pairwise(R(6).seed(3).to_iter_dataset())
    assert list(seeded.random_map(lambda x, _: x)) == [(0, 1), (2, 3), (4, 5)]
    two = X.multithread_prefetch(Pairwise(R(8).to_iter_dataset()), 2, 1)
    assert finishes(lambda: list(two)) == [(0, 2), (1, 3), (4, 6), (5, 7)]


def test_the_defaults_of_an_iterator() -> None:
    it = iter(Counter(5))
    assert iter(it) is it
    it.start_prefetch()
    assert it.take(3) == [0]
    it.close()
    it.close()
    assert list(it) == [1, 2, 3, 4]  # What it does after `close` is the user's to say.
    assert it.take(3) == []
    assert str(it) == "CounterIterator"
    with pytest.raises(NotImplementedError):
        wg.experimental.get_next_index(it)
    with pytest.raises(NotImplementedError):
        wg.experimental.set_next_index(it, 1)


def test_an_iterator_knows_its_parents() -> None:
    class Two(wg.DatasetIterator[Any]):
        def __next__(self) -> Any:
            return [next(parent) for parent in self._parents]

        def get_state(self) -> dict[str, Any]:
            return {}

        def set_state(self, state: dict[str, Any]) -> None: ...

    one, other = iter(R(3)), iter(R(3))
    it = Two([one, other])
    assert next(it) == [0, 0]
    it.close()
    for parent in (one, other):
        with pytest.raises(ValueError, match="closed"):
            next(parent)
    assert next(Two(iter(R(3)))) == [0]


def test_ends_stay_ends() -> None:
    it: Any = iter(Counter(2).map(abs).filter(lambda _: True).batch(2))
    assert [as_lists([next(it, END)]) for _ in range(3)] == [[[0, 1]], [END], [END]]


def test_an_iterator_has_to_be_one() -> None:
    class Generated(wg.IterDataset[int]):
        def __iter__(self) -> Any:
            yield from range(3)

    with pytest.raises(TypeError, match="returned a generator") as raised:
        iter(Generated().map(abs))
    assert "get_state" in str(raised.value)


# Functions on datasets.


def test_pipe_calls_a_function_with_the_dataset() -> None:
    def total(ds: Any, start: int, *, factor: int) -> Any:
        return factor * sum(ds, start)

    assert R(5).pipe(total, 1, factor=2) == 22
    assert R(5).to_iter_dataset().pipe(total, 1, factor=2) == 22
    limited = R(5).to_iter_dataset().pipe(X.LimitIterDataset, count=2)
    assert list(limited) == [0, 1]


def test_apply_goes_by_the_class_of_the_transformation() -> None:
    class Add(wg.transforms.Map):
        def map(self, element: int) -> int:
            return element + 1

    class Odd(wg.transforms.Filter):
        def filter(self, element: int) -> bool:
            return element % 2 == 1

    class Number(wg.transforms.MapWithIndex):
        def map_with_index(self, index: int, element: int) -> int:
            return 10 * index + element

    class Noise(wg.transforms.RandomMap):
        def random_map(self, element: int, rng: np.random.Generator) -> int:
            return element + 100 * int(rng.integers(1, 5))

    for ds in (R(6), R(6).to_iter_dataset()):
        assert list(ds.apply(Add())) == [1, 2, 3, 4, 5, 6]
        assert list(ds.apply([Add(), Odd()])) == [1, 3, 5]
        assert list(ds.apply([Number()])) == [0, 11, 22, 33, 44, 55]
        assert as_lists(ds.apply((Add(), wg.transforms.Batch(4)))) == [[1, 2, 3, 4], [5, 6]]
        batch = wg.transforms.Batch(4, drop_remainder=True, batch_fn=sum)
        assert list(ds.apply(batch)) == [6]
        assert ds.apply([]) is ds
        noisy = ds.seed(1).apply(Noise())
        assert list(noisy) == list(ds.seed(1).random_map(Noise()))
        assert list(wg.experimental.apply_transformations(ds, [Add()])) == [1, 2, 3, 4, 5, 6]
        with pytest.raises(ValueError, match="seed"):
            ds.apply(Noise())


def test_transforms_are_abstract() -> None:
    for name in ("Map", "RandomMap", "MapWithIndex", "Filter", "FlatMap", "TfRandomMap"):
        with pytest.raises(TypeError, match="abstract"):
            getattr(wg.transforms, name)()
