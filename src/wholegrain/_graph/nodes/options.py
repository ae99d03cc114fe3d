"""Nodes that change no element: a seed for stages downstream, options for the whole pipeline."""

from collections.abc import Sequence

from wholegrain._core.types import IndexT, Indices, T
from wholegrain._graph.iterator import DatasetIterator
from wholegrain._graph.kinds import AnyDataset, IndexTransform, OneParentIterNode
from wholegrain._graph.map_dataset import MapDataset
from wholegrain._graph.passing import PassingIterator
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

    def _positions_of(self, keys: Sequence[Indices], stop: int) -> Indices:
        return keys[0]

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
    only_chooses = True
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
    only_chooses = True
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
