"""The first elements of a dataset."""

from wholegrain._core.types import T
from wholegrain._core.whole_number import whole_count
from wholegrain._graph.iterator import DatasetIterator, TransformIterator
from wholegrain._graph.kinds import AnyDataset, OneParentIterNode
from wholegrain._state.counting import CountingRule
from wholegrain._state.spec import CheckpointSpec


class LimitIterDataset(OneParentIterNode[T]):
    """The first `count` elements, or all if there are fewer.

    Args:
        parent: The dataset to read from.
        count: The number of elements, at least 1.
    """

    keeps_size = True
    only_chooses = True
    checkpoint = CheckpointSpec(free=("count",))
    _period = None  # It ends.

    def __init__(self, parent: AnyDataset[T], count: int) -> None:
        super().__init__(parent)
        count = whole_count("count", count)
        if count <= 0:
            raise ValueError(f"`LimitIterDataset` needs a positive count, but got count={count}.")
        self._count = count

    @property
    def counting(self) -> CountingRule:
        return CountingRule(counter="count_elements_read", limit=self._count)

    def open(self) -> DatasetIterator[T]:
        return LimitDatasetIterator(self._parent.__iter__(), self._count)

    def __str__(self) -> str:
        return f"LimitIterDataset(count={self._count})"


class LimitDatasetIterator(TransformIterator[T]):
    """A position in a LimitIterDataset."""

    state_fields = ("count_elements_read",)

    def __init__(self, parent: DatasetIterator[T], count: int) -> None:
        super().__init__(parent)
        self._count = count
        self.count_elements_read = 0

    def __next__(self) -> T:
        if self.count_elements_read >= self._count:
            self.check_open()
            raise StopIteration
        element: T = next(self.parent)
        self.count_elements_read += 1
        return element

    def take(self, count: int) -> list[T]:
        left = self._count - self.count_elements_read
        if left <= 0:
            self.check_open()
            return []
        elements: list[T] = self.parent.take(min(count, left))
        self.count_elements_read += len(elements)
        return elements

    @property
    def takes_back(self) -> bool:
        return self.parent.takes_back

    def put_back(self, count: int) -> None:
        self.parent.put_back(count)
        self.count_elements_read -= count

    def pass_over(self, count: int) -> None:
        self.parent.pass_over(count)
        self.count_elements_read += count

    def _get_next_index(self) -> int:
        return self.count_elements_read

    def _set_next_index(self, index: int) -> None:
        self.parent._set_next_index(index)
        self.count_elements_read = index

    def __str__(self) -> str:
        return f"LimitDatasetIterator(count={self._count})"
