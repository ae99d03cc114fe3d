import pickle
from typing import Generic, TypeVar

import numpy as np
import pytest

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
