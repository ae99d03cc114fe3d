import operator
import pickle
from collections.abc import Sequence
from typing import Any, Generic, SupportsIndex, TypeVar

import numpy as np
import pytest

import wholegrain as wg
from wholegrain import sources
from wholegrain.sources import RandomAccessDataSource
from wholegrain.testing import check_source

T = TypeVar("T")


class Squares(RandomAccessDataSource[int]):
    def __init__(self, length: int) -> None:
        super().__init__()
        self._length = length

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int) -> int:
        return index * index


class Wrapped(RandomAccessDataSource[T], Generic[T]):
    def __init__(self, source: RandomAccessDataSource[T]) -> None:
        super().__init__()
        self.source = source

    def __len__(self) -> int:
        return len(self.source)

    def __getitem__(self, index: int) -> T:
        return self.source[index]


def test_a_subclass_calls_the_constructor_and_is_a_source() -> None:
    source = Wrapped(Squares(4))
    assert [source[index] for index in range(len(source))] == [0, 1, 4, 9]
    check_source(pickle.loads(pickle.dumps(source)))


@pytest.mark.parametrize("value", [[1], (1,), range(3), np.arange(3), {}, "text"])
def test_whatever_has_a_length_and_items_is_a_source(value: object) -> None:
    assert isinstance(value, RandomAccessDataSource)


@pytest.mark.parametrize("value", [iter([1]), (x for x in [1]), 5, None])
def test_iterators_are_not_sources(value: object) -> None:
    assert not isinstance(value, RandomAccessDataSource)


class Liar(RandomAccessDataSource[int]):
    """Says that it has ten records, but has five."""

    def __len__(self) -> int:
        return 10

    def __getitem__(self, index: SupportsIndex) -> int:
        return [0, 1, 2, 3, 4][operator.index(index)]


class BulkLiar(Liar):
    def __getitems__(self, indices: list[int]) -> list[int]:
        return [index for index in indices if index < 5]


@pytest.mark.parametrize("source", [Liar(), BulkLiar()])
def test_a_record_that_is_not_there_is_named_and_those_before_it_are_read(source: Liar) -> None:
    pipelines: list[Any] = [
        wg.MapDataset.source(source).to_iter_dataset(),
        wg.MapDataset.source(source).to_iter_dataset(wg.ReadOptions(0, 0)),
        wg.DataLoader(data_source=source, sampler=wg.samplers.SequentialSampler(10)),
    ]
    for pipeline in pipelines:
        it = iter(pipeline)
        assert [next(it) for _ in range(5)] == [0, 1, 2, 3, 4]
        with pytest.raises(IndexError) as raised:
            next(it)
        assert "index 5 of the source" in "".join(raised.value.__notes__)


def test_sources_that_read_many_records_at_once_say_so() -> None:
    class Many(sources.SupportsBatchedReadRandomAccessDataSource[int]):
        def __init__(self) -> None:
            self.asked: list[list[int]] = []

        def __len__(self) -> int:
            return 100

        def __getitem__(self, index: int) -> int:
            raise AssertionError("it reads many at once")

        def __getitems__(self, indices: Sequence[int]) -> Sequence[int]:
            self.asked.append(list(indices))
            return [2 * index for index in indices]

    source = Many()
    ds = wg.MapDataset.source(source).slice([5, 3, 5, 3])
    assert ds.batch(4)[0].tolist() == [10, 6, 10, 6]
    assert source.asked == [[5, 3, 5, 3]]
    assert isinstance(source, sources.SupportsBatchedReadRandomAccessDataSource)
    assert not isinstance([1, 2], sources.SupportsBatchedReadRandomAccessDataSource)
