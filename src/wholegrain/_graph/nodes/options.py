"""Nodes that change no element: a seed for stages downstream, options for the whole pipeline."""

from wholegrain._core.stack import Empty
from wholegrain._core.types import IndexT, T
from wholegrain._graph.iterator import DatasetIterator, TransformIterator
from wholegrain._graph.kinds import AnyDataset, IndexTransform, OneParentIterNode
from wholegrain._graph.map_dataset import MapDataset
from wholegrain._graph.seeds import checked_base_seed
from wholegrain._state.counting import CountingRule
from wholegrain._state.spec import CheckpointSpec
from wholegrain.options import DatasetOptions


class SeedMapDataset(IndexTransform[T]):
    """The parent, with a seed from which stages downstream derive theirs."""

    keeps_size = True
    checkpoint = CheckpointSpec(position="parent")

    def __init__(self, parent: MapDataset[T], seed: int | None) -> None:
        super().__init__(parent)
        self.base_seed = checked_base_seed(seed)

    def parent_index(self, index: IndexT) -> IndexT:
        return index

    def _label(self) -> str:
        return f"seed({self.base_seed})"

    def __str__(self) -> str:
        return "WithOptionsMapDataset"


class WithOptionsIterDataset(OneParentIterNode[T]):
    """The parent, with options for all stages of the pipeline, upstream and downstream of it.

    If several nodes set the same option, the most downstream one wins.

    Args:
        parent: The pipeline so far.
        options: The options to set.
    """

    keeps_size = True
    checkpoint = CheckpointSpec(free=("options",), position="parent")
    counting = CountingRule()

    def __init__(self, parent: AnyDataset[T], options: DatasetOptions) -> None:
        super().__init__(parent)
        if not hasattr(options, "merge"):
            raise TypeError(
                "`WithOptionsIterDataset` needs options, such as"
                f" `DatasetOptions(filter_raise_threshold_ratio=0.9)`, but got {options!r}."
            )
        self.options = options

    def open(self) -> DatasetIterator[T]:
        return PassingIterator(self._parent.__iter__())

    def _label(self) -> str:
        return "options"

    def __str__(self) -> str:
        return f"WithOptionsIterDataset(options={self.options})"


class SeedIterDataset(OneParentIterNode[T]):
    """The parent, with a seed from which stages downstream derive theirs."""

    keeps_size = True
    checkpoint = CheckpointSpec(position="parent")
    counting = CountingRule()

    def __init__(self, parent: AnyDataset[T], seed: int | None) -> None:
        super().__init__(parent)
        self.base_seed = checked_base_seed(seed)

    def open(self) -> DatasetIterator[T]:
        return PassingIterator(self._parent.__iter__())

    def _label(self) -> str:
        return f"seed({self.base_seed})"

    def __str__(self) -> str:
        return "WithOptionsIterDataset"


class PassingIterator(TransformIterator[T]):
    """Returns the parent's elements unchanged."""

    def __init__(self, parent: DatasetIterator[T]) -> None:
        super().__init__(parent)

    def __next__(self) -> T:
        return next(self.parent)  # type: ignore[no-any-return]

    def next_into(self, empty: Empty) -> T:
        """Return the next element in memory from `empty`, if the parent supports that."""
        next_into = getattr(self.parent, "next_into", None)
        return next(self.parent) if next_into is None else next_into(empty)  # type: ignore[no-any-return]

    def take(self, count: int) -> list[T]:
        return self.parent.take(count)

    @property
    def moves_at_end(self) -> bool:
        return self.parent.moves_at_end

    @property
    def takes_back(self) -> bool:
        return self.parent.takes_back

    def put_back(self, count: int) -> None:
        self.parent.put_back(count)

    def pass_over(self, count: int) -> None:
        self.parent.pass_over(count)

    def _get_next_index(self) -> int:
        return self.parent._get_next_index()

    def _set_next_index(self, index: int) -> None:
        self.parent._set_next_index(index)
