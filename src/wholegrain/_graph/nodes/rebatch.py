"""Changes the size of batches."""

import contextlib
import operator
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from wholegrain._core import elements, tree
from wholegrain._core.failure import can_be_recorded
from wholegrain._core.origins import Traced, join_rows, split_rows
from wholegrain._core.spec import ShapeDtypeStruct
from wholegrain._core.types import State, T
from wholegrain._core.whole_number import whole_count
from wholegrain._graph.iterator import DatasetIterator, TransformIterator, go_to_state_of
from wholegrain._graph.kinds import AnyDataset, OneParentIterNode
from wholegrain._state.spec import CheckpointSpec
from wholegrain._state.validate import copy_state, wrong_state

if TYPE_CHECKING:
    from wholegrain._graph.tracing import Tracer


class RebatchIterDataset(OneParentIterNode[T]):
    """The rows of the parent's batches, in batches of another size.

    Args:
        parent: A dataset of batches: trees of arrays with the same first dimension.
        batch_size: The number of rows in a new batch.
        drop_remainder: Whether to drop a short batch at the end.
    """

    checkpoint = CheckpointSpec(fixed=("batch_size", "drop_remainder"), rereads=True)

    def __init__(
        self, parent: AnyDataset[T], batch_size: int, drop_remainder: bool = False
    ) -> None:
        super().__init__(parent)
        batch_size = whole_count("batch_size", batch_size)
        if batch_size <= 0:
            raise ValueError(f"A batch needs at least one row, but got batch_size={batch_size}.")
        self._batch_size = batch_size
        self._drop_remainder = drop_remainder

    def _traced(self, tracer: "Tracer") -> Any:
        # The origins of each row are rows of one more array, and are cut and joined with the rest.
        rebatched: Any = self.with_parents([tracer(self._parent).map(_with_origins)])
        return rebatched.map(join_rows)

    def open(self) -> DatasetIterator[T]:
        return RebatchDatasetIterator(
            self._parent.__iter__(), self._batch_size, self._drop_remainder
        )

    @property
    def _element_spec(self) -> Any:
        rows = self._batch_size if self._drop_remainder else None
        return tree.map_leaves(
            lambda leaf: ShapeDtypeStruct(shape=(rows, *leaf.shape[1:]), dtype=leaf.dtype),
            self._parent._element_spec,
        )

    def __str__(self) -> str:
        return (
            f"RebatchIterDataset(batch_size={self._batch_size},"
            f" drop_remainder={self._drop_remainder})"
        )


class RebatchDatasetIterator(TransformIterator[T]):
    """A position among the rows of the parent's batch, and the state before that batch."""

    def __init__(self, parent: DatasetIterator[Any], batch_size: int, drop_remainder: bool) -> None:
        super().__init__(parent)
        self._batch_size = batch_size
        self._drop_remainder = drop_remainder
        self._before_batch = parent.get_state()
        self._batch: Any = None
        self._rows = 0
        self._next_row = 0

    def __next__(self) -> T:
        parts: list[Any] = []
        missing = self._batch_size
        while missing:
            if self._next_row >= self._rows:
                try:
                    self._read_batch()
                except StopIteration:
                    break
            start = self._next_row
            stop = min(start + missing, self._rows)
            parts.append(_cut(self._batch, start, stop))
            self._next_row = stop
            missing -= stop - start
        if not parts or (missing and self._drop_remainder):
            raise StopIteration
        return parts[0] if len(parts) == 1 else _join(parts)  # type: ignore[no-any-return]

    def _read_batch(self) -> None:
        before = self.parent.get_state()
        try:
            batch = next(self.parent)
            rows = _count_rows(batch)
        except StopIteration:
            self._before_batch = before
            raise
        except BaseException as error:
            if not can_be_recorded(error):
                raise
            # Move past the batch that failed.
            self.check_open()
            self._before_batch = self.parent.get_state()
            self._batch, self._rows, self._next_row = None, 0, 0
            raise
        self._before_batch = before
        self._batch, self._rows, self._next_row = batch, rows, 0

    def get_state(self) -> State:
        return {"parent": copy_state(self._before_batch), "batch_idx": self._next_row}

    def check_state(self, state: State) -> None:
        self.check_parts(state, "parent", "batch_idx")

    def go_to(self, state: State) -> None:
        next_row = operator.index(state["batch_idx"])
        go_to_state_of(self.parent, state["parent"])
        self._before_batch = self.parent.get_state()
        self._batch, self._rows, self._next_row = None, 0, 0
        if next_row:
            with contextlib.suppress(StopIteration):  # At the end the row number stays as it is.
                self._read_batch()
                if next_row > self._rows:
                    raise wrong_state(
                        self, f"{next_row} rows were read of a batch with {self._rows}"
                    )
            self._next_row = next_row

    def close(self) -> None:
        self._batch, self._rows = None, 0
        super().close()

    def __str__(self) -> str:
        return (
            f"RebatchDatasetIterator(batch_size={self._batch_size},"
            f" drop_remainder={self._drop_remainder})"
        )


def _count_rows(batch: Any) -> int:
    leaves = tree.leaves(batch)
    if not leaves or not hasattr(leaves[0], "__len__"):
        raise TypeError(
            "`RebatchIterDataset` takes batches, trees of arrays with rows, but got"
            f" {elements.describe(batch)}. Call `batch` first."
        )
    rows = len(leaves[0])
    if not rows:
        raise ValueError(
            "`RebatchIterDataset` got a batch without rows. Filter empty batches out first."
        )
    return rows


def _cut(batch: Any, start: int, stop: int) -> Any:
    return tree.map_leaves(lambda leaf: leaf[start:stop], batch)


def _join(parts: Sequence[Any]) -> Any:
    return tree.zip_leaves(np.concatenate, parts)


def _with_origins(batch: Traced) -> tuple[Any, Any]:
    return split_rows(batch, _count_rows(batch.value))
