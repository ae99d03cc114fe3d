"""Packs sequences into rows of a fixed length, with little padding."""

import dataclasses
import functools
import operator
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from wholegrain._core.origins import Traced, spans_of
from wholegrain._core.types import State
from wholegrain._graph.iterator import DatasetIterator, TransformIterator, go_to_state_of
from wholegrain._graph.kinds import OneParentIterNode
from wholegrain._packing.features import PackingPlan, plan_packing
from wholegrain._packing.overflow import Overflow, fitting
from wholegrain._packing.packed_batch import PackedBatch, Row
from wholegrain._packing.recycling import RecycledArrays
from wholegrain._packing.row_order import RowOrder
from wholegrain._state.spec import CheckpointSpec
from wholegrain._state.validate import WrongStateError, copy_state

if TYPE_CHECKING:
    from wholegrain._graph.tracing import Tracer

# The maximum number of elements per read of the parent: a larger read is no cheaper per element.
_ELEMENTS_PER_READ = 256

_ORIGINS = "wholegrain origins"
"""The meta feature in which origins pass through packing."""


class _PackIterDataset(OneParentIterNode[Row]):
    """What first-fit and best-fit packing share: everything except the choice of a bin."""

    checkpoint = CheckpointSpec(
        fixed=(
            "plan.features",
            "plan.num_bins",
            "plan.max_sequences_per_bin",
            "seed",
            "shuffle_bins",
            "group_by_feature",
        ),
        rereads=True,
    )

    _best_fit: bool

    def __init__(
        self,
        parent: Any,
        *,
        length_struct: Any,
        num_packing_bins: int,
        seed: int = 0,
        shuffle_bins: bool = True,
        shuffle_bins_group_by_feature: str | None = None,
        meta_features: Sequence[str] = (),
        pack_alignment_struct: Any = None,
        padding_struct: Any = None,
        max_sequences_per_bin: int | None = None,
        overflow: Overflow = "error",
    ) -> None:
        plan = plan_packing(
            length_struct=length_struct,
            num_packing_bins=num_packing_bins,
            meta_features=meta_features,
            pack_alignment_struct=pack_alignment_struct,
            padding_struct=padding_struct,
            max_sequences_per_bin=max_sequences_per_bin,
            best_fit=self._best_fit,
        )
        super().__init__(fitting(parent, plan, overflow))
        self._plan = plan
        self._seed = seed
        self._shuffle_bins = shuffle_bins
        self._group_by_feature = shuffle_bins_group_by_feature

    def open(self) -> DatasetIterator[Row]:
        row_order = RowOrder(self._seed, self._shuffle_bins, self._group_by_feature)
        return PackingDatasetIterator(self._parent.__iter__(), self._plan, row_order)

    def _traced(self, tracer: "Tracer") -> Any:
        # A meta feature that has no length becomes a list with an entry for each element of a row.
        plan = self._plan
        lists = (*plan.list_features, _ORIGINS)
        traced: Any = self.with_parents([tracer(self._parent).map(_with_origins)])
        traced._plan = dataclasses.replace(plan, list_features=lists)
        names = [feature.path[0] for feature in plan.features if not feature.is_meta]
        return traced.map(functools.partial(_with_spans, tuple(map(str, names))))

    @property
    def _element_spec(self) -> Any:
        raise NotImplementedError(f"The element spec of {self} is not known without reading.")

    def __str__(self) -> str:
        return type(self).__name__


class FirstFitPackIterDataset(_PackIterDataset):
    """Rows of a fixed length, with each element in the first row that has room for it.

    Elements are flat dicts of arrays of different lengths. `num_packing_bins` rows are filled
    together. When an element fits into none of them, they are returned, and the element starts the
    next rows. For each feature, a row also has `<feature>_segment_ids`, which number the elements
    of a row from 1 (0 is padding), and `<feature>_positions`, which count the cells of an element.

    Args:
        parent: The dataset whose elements are packed.
        length_struct: For each feature, the length of a row. Other features are dropped.
        num_packing_bins: How many rows are filled together. More of them leave less padding.
        seed: Selects the order of the rows. It is not derived from `ds.seed`.
        shuffle_bins: Whether to return the rows of each packed batch in a random order. Without
            it, the first rows tend to hold short sequences.
        shuffle_bins_group_by_feature: A feature by whose mean value the rows are sorted before
            shuffling, such as an epoch number.
        meta_features: Features without segment ids and positions. Those that are not in
            `length_struct` become a list with one entry for each element of the row.
        pack_alignment_struct: For each feature, a number at whose multiples sequences start.
        padding_struct: For each feature, the value of empty cells; 0 by default.
        max_sequences_per_bin: The maximum number of elements in a row.
        overflow: What becomes of an element that is longer than a row: "split" packs its parts as
            elements of their own, "truncate" its beginning, "drop" leaves it out, and "error"
            raises.

    Example:
        >>> ds = FirstFitPackIterDataset(
        ...     tokens, length_struct={"tokens": 2048}, num_packing_bins=64
        ... )
    """

    _best_fit = False


class BestFitPackIterDataset(_PackIterDataset):
    """Rows of a fixed length, with each element in the fullest row that has room for it.

    It leaves a little less padding than `FirstFitPackIterDataset` and takes the same arguments.
    """

    _best_fit = True


class PackingDatasetIterator(TransformIterator[Row]):
    """A position among the rows of a packed batch.

    The state holds no elements. A restored iterator packs the batch again, from the parent's state
    before its first element, and continues at `next_row`.
    """

    def __init__(
        self,
        parent: DatasetIterator[Any],
        plan: PackingPlan,
        row_order: RowOrder,
    ) -> None:
        super().__init__(parent)
        self._plan = plan
        self._row_order = row_order
        # Two batches are in use, one being filled and one being returned. The consumer may hold a
        # third.
        self._memory = RecycledArrays(max_spare=3 * 3 * len(plan.features))
        self._next_row = 0
        self._counter = 0  # Rows returned, over all batches.
        self._forget_batches()

    def _forget_batches(self) -> None:
        self._emitting: PackedBatch | None = None
        self._order: list[int] = []
        self._filling: PackedBatch | None = None
        self._waiting: list[Any] = []  # Elements that are not yet in a row.
        # The parent's states before the first element of the batch that is being returned (between
        # batches: the next one), of the batch that is being filled, and of `_waiting`. None means
        # the parent's current state.
        self._start: State | None = None
        self._filling_start: State | None = None
        self._waiting_start: State | None = None

    def __next__(self) -> Row:
        if self._emitting is None:
            self._start_emitting(self._pack_batch())
        assert self._emitting is not None
        row = self._emitting.row(self._order[self._next_row])
        self._next_row += 1
        self._counter += 1
        if self._next_row == len(self._order):
            self._emitting = None
            self._start = self._filling_start
            self._next_row = 0
        return row

    def _pack_batch(self) -> PackedBatch:
        """Pack elements until one does not fit or the parent ends."""
        while self._waiting or self._read():
            if self._filling is None:
                self._start_filling()
                self._start = self._filling_start
            assert self._filling is not None
            self._filling.add(self._waiting)
            if self._waiting:
                packed = self._filling
                self._start_filling()
                self._filling.add(self._waiting)
                return packed
        if self._filling is None or not self._filling.num_rows:
            raise StopIteration
        packed = self._filling
        self._filling = self._filling_start = None
        return packed

    def _read(self) -> bool:
        """Read elements to be packed; return False at the end.

        A row that is still empty accepts one element of any length. So as many elements can be read
        at once as there are empty rows: only without an empty row could an element be the first of
        a new batch, whose state has to be saved.
        """
        sure = self._plan.num_bins if self._filling is None else self._filling.num_empty_rows
        if not sure or self._filling is None:
            self._waiting_start = self.parent.get_state()
        self._waiting = list(self.parent.take(min(max(sure, 1), _ELEMENTS_PER_READ)))
        return bool(self._waiting)

    def _start_filling(self) -> None:
        try:
            self._filling = PackedBatch(self._plan, self._waiting[0], self._memory)
        except Exception:
            del self._waiting[0]
            raise
        self._filling_start = self._waiting_start

    def _start_emitting(self, packed: PackedBatch) -> None:
        first = self._counter - self._next_row  # The same for a restored batch, so its order is.
        self._order = self._row_order.of(packed, first)
        if self._next_row >= len(self._order):
            raise WrongStateError(
                f"The state says that {self._next_row} rows of a packed batch were read, but it"
                f" has {len(self._order)}. Was the state taken from another dataset?"
            )
        self._emitting = packed
        if self.observed is not None:
            self.observed.times_of(self.observed_as).note_cells(*packed.cells())

    def get_packed_batch_size_bytes(self) -> int:
        """Return the memory that the rows of one packed batch take.

        Raises:
            ValueError: Before the first element was packed.
        """
        batch = self._filling or self._emitting
        if batch is None:
            raise ValueError(
                "The size of a packed batch is known after its first element has been read: call"
                " `next` first."
            )
        return batch.nbytes

    def get_state(self) -> State:
        start = self._start
        return {
            "parent": self.parent.get_state() if start is None else copy_state(start),
            "next_row": self._next_row,
            "counter": self._counter,
        }

    def check_state(self, state: State) -> None:
        self.check_parts(state, "parent", "next_row", "counter")
        # The number of rows is known only after packing again, but it cannot exceed the bins.
        if state["next_row"] and state["next_row"] >= self._plan.num_bins:
            raise WrongStateError(
                f"The state says that {state['next_row']} rows of a packed batch were read, and"
                f" more follow; but with num_packing_bins={self._plan.num_bins} it has no more than"
                f" {self._plan.num_bins}. Was it taken from another pipeline?"
            )
        if state["next_row"] > state["counter"]:
            raise WrongStateError(
                f"The state says that {state['next_row']} rows of a packed batch were read, but"
                f" only {state['counter']} rows of all batches. Was it changed?"
            )

    def go_to(self, state: State) -> None:
        go_to_state_of(self.parent, state["parent"])
        self._next_row = operator.index(state["next_row"])
        self._counter = operator.index(state["counter"])
        self._forget_batches()

    def read_held(self) -> None:
        """Read the elements of a batch again of which rows were returned already."""
        if self._next_row and self._emitting is None:
            self._start_emitting(self._pack_batch())

    def close(self) -> None:
        start = self._start
        self._forget_batches()
        self._start = start
        super().close()


def _with_origins(element: Traced) -> Row:
    return {**element.value, _ORIGINS: element.origins}


def _with_spans(features: Sequence[str], row: Row) -> Traced:
    members = row.pop(_ORIGINS)
    segments = {name: row[f"{name}_segment_ids"] for name in features}
    return Traced(row, spans_of(segments, members))
