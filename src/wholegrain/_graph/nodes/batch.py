"""Stacks several elements into one."""

import functools
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from wholegrain._core import tree
from wholegrain._core.elements import nbytes
from wholegrain._core.errors import add_stage_note
from wholegrain._core.failure import Failure, PartlyFailed, joined
from wholegrain._core.origins import TracedBatch
from wholegrain._core.stack import Empty, GrowingBatch, has_large_arrays, stack
from wholegrain._core.tolerated import group_of, joined_members, note_single
from wholegrain._core.types import Indices, State, T
from wholegrain._core.whole_number import whole_number
from wholegrain._graph.chunks import for_each, raise_failure, read_singly
from wholegrain._graph.dataset import Dataset
from wholegrain._graph.iterator import DatasetIterator, TransformIterator
from wholegrain._graph.kinds import OneParentIterNode, OneParentMapNode
from wholegrain._graph.map_dataset import MapDataset
from wholegrain._graph.pace import LARGEST_CHUNK, Pace
from wholegrain._state.counting import CountingRule
from wholegrain._state.spec import CheckpointSpec

if TYPE_CHECKING:
    from wholegrain._graph.tracing import Tracer

BatchFn = Callable[[Sequence[Any]], Any]

# The maximum number of members per read of the parent: a larger read is no cheaper per element.
_MEMBERS_PER_READ = 1 << 15

# Large members are copied in portions of this size, so that they are still in the CPU's cache.
_BYTES_AT_ONCE = 1 << 20
_SECONDS_PER_BYTE = 1e-9  # Several times what copying a byte takes.


def check_batch_size(batch_size: Any) -> int:
    """Return `batch_size` as an int; raise if it is not a positive number."""
    size = whole_number("batch_size", batch_size)
    if size <= 0:
        raise ValueError(f"A batch needs at least one element, but got batch_size={size}.")
    return size


class _Batches(Dataset[Any]):
    """What both kinds of batches say of themselves."""

    makes_batches = True
    _batch_size: int
    _drop_remainder: bool
    _batch_fn: BatchFn | None

    @property
    def _element_spec(self) -> Any:
        return _batch_spec(
            self._parent._element_spec, self._batch_size, self._drop_remainder, self._batch_fn
        )

    def _label(self) -> str:
        return f"batch({self._batch_size})"

    def _size_from(self, size: float) -> float:
        return size * self._batch_size if self._batch_fn is None else 0.0

    def __str__(self) -> str:
        settings = f"batch_size={self._batch_size}, drop_remainder={self._drop_remainder}"
        return f"{type(self).__name__}({settings})"


class BatchMapDataset(_Batches, OneParentMapNode[T]):
    """Consecutive elements of an epoch stacked together, by index."""

    checkpoint = CheckpointSpec(fixed=("batch_size", "drop_remainder"), free=("batch_fn",))

    def __init__(
        self,
        parent: MapDataset[Any],
        batch_size: int,
        drop_remainder: bool,
        batch_fn: BatchFn | None,
    ) -> None:
        super().__init__(parent)
        self._batch_size = check_batch_size(batch_size)
        self._drop_remainder = drop_remainder
        self._batch_fn = batch_fn
        if parent.sparse:
            raise ValueError(
                "`batch` cannot follow `filter` or a flat map on a MapDataset, because some of the"
                " elements are missing. Call `to_iter_dataset()` first:\n"
                "    ds.filter(...).to_iter_dataset().batch(...)"
            )
        self._follow_parents()

    def _follow_parents(self) -> None:
        super()._follow_parents()
        self._parent_length = len(self.parent)
        whole, rest = divmod(self._parent_length, self._batch_size)
        self._length = whole if self._drop_remainder or not rest else whole + 1

    def __len__(self) -> int:
        return self._length

    @property
    def chunk_hint(self) -> int:
        return -(-self.parent.chunk_hint // self._batch_size)

    @property
    def stacks(self) -> bool:  # type: ignore[override]
        return self._batch_fn is None

    def getitem(self, index: int) -> T | None:
        return self._read_batch(index, None)

    def getitem_into(self, index: int, empty: Empty) -> T | None:
        return self._read_batch(index, empty)

    def _read_batch(self, index: int, empty: Empty | None) -> T | None:
        epoch, position = divmod(index, self._length)
        first = position * self._batch_size
        last = min(first + self._batch_size, self._parent_length)
        start = epoch * self._parent_length
        if abs(start + last) >= 2**63:  # A late epoch of an infinite dataset: no int64 array.
            positions = range(start + first, start + last)
            return self._batch([self.parent.getitem(position) for position in positions], empty)  # type: ignore[no-any-return]
        members = np.arange(start + first, start + last)
        if self._batch_fn is None:
            rows: Any = self.parent.gather(members)
            if rows is not None:
                return rows  # type: ignore[no-any-return]
        return self._batch(self._read_members(members), empty)  # type: ignore[no-any-return]

    def _read_members(self, members: Indices) -> Sequence[Any]:
        elements = self.parent.getitems(members)
        if type(elements) is PartlyFailed:
            found = joined_members(elements)
            if isinstance(found, Failure):
                raise_failure(found)
            elements, failures = found
            note_single(failures)
        return elements

    def getitems(self, indices: Indices) -> Sequence[T | None]:
        if not len(indices):
            return []
        if not self._length:
            raise ZeroDivisionError(f"{self} is empty: there is no batch to read.")
        lowest, highest = int(indices.min()), int(indices.max())
        fits = self._first_member(lowest) >= -(2**63) and self._first_member(highest + 1) <= 2**63
        if not fits or (self._batch_fn is None and self._gathers()):
            return read_singly(self.getitem, indices.tolist(), self, indices)  # type: ignore[no-any-return]
        step = max(1, _MEMBERS_PER_READ // self._batch_size)
        starts = range(0, len(indices), step)
        return joined([self._read_batches(indices[start : start + step]) for start in starts])

    def _first_member(self, index: int) -> int:
        """Return where a batch starts in the parent, as an int of any size."""
        epoch, position = divmod(index, self._length)
        return epoch * self._parent_length + position * self._batch_size

    def _gathers(self) -> bool:
        """Whether the elements are rows of one array, so that a batch is one gather."""
        return self.parent.gather(np.arange(0)) is not None

    def _read_batches(self, indices: Indices) -> list[Any]:
        """Read the members of several batches at once."""
        epochs, positions = np.divmod(indices, self._length)
        firsts = positions * self._batch_size
        sizes = np.minimum(self._batch_size, self._parent_length - firsts)
        ends = np.cumsum(sizes)
        # The indices of a batch's members count up from its first member.
        starts = epochs * self._parent_length + firsts
        members = np.arange(ends[-1]) + np.repeat(starts - (ends - sizes), sizes)
        elements = self.parent.getitems(members)
        groups: Sequence[Any] = [
            elements[end - size : end]
            for end, size in zip(ends.tolist(), sizes.tolist(), strict=True)
        ]
        if type(elements) is PartlyFailed:
            # A batch fails with the first of its members that failed and was not replaced.
            groups = PartlyFailed([group_of(list(group), is_whole=False) for group in groups])
        return for_each(self._batch_each, self, indices, groups)

    def _batch_each(self, batches: list[Any], groups: Sequence[Any]) -> None:
        batches.extend(map(self._batch, groups))

    def _batch(self, elements: Sequence[Any], empty: Empty | None = None) -> Any:
        for element in elements:
            if element is None:
                raise ValueError(
                    f"{self} found None among the elements of a batch: an element is missing. Call"
                    " `to_iter_dataset()` before `batch` to leave missing elements out."
                )
        if self._batch_fn is None:
            return stack(elements, empty)
        try:
            return self._batch_fn(list(elements))
        except ValueError as error:
            add_stage_note(error, f"This happened in `batch_fn` of {self}.")
            raise

    def source_index(self, index: int) -> int:
        epoch, position = divmod(index, self._length)
        return self.parent.source_index(epoch * self._parent_length + position * self._batch_size)

    def _stop_in_parent(self, number: int, stop: int) -> int | None:
        return -(-stop // self._length) * self._parent_length if self._length else 0

    def _positions_of(self, keys: Sequence[Indices], stop: int) -> Indices:
        epochs, positions = np.divmod(keys[0], self._parent_length)
        batches = positions // self._batch_size
        kept = batches < self._length  # The remainder of an epoch may be dropped.
        found: Indices = epochs[kept] * self._length + batches[kept]
        return found

    def _traced(self, tracer: "Tracer") -> Any:
        traced = tracer.passing(self)
        traced._batch_fn = TracedBatch(stack if self._batch_fn is None else self._batch_fn)
        return traced


class BatchIterDataset(_Batches, OneParentIterNode[T]):
    """Consecutive elements stacked together, in order."""

    checkpoint = CheckpointSpec(
        fixed=("batch_size", "drop_remainder"), free=("batch_fn",), position="regrouped"
    )

    def __init__(
        self, parent: Any, batch_size: int, drop_remainder: bool, batch_fn: BatchFn | None
    ) -> None:
        super().__init__(parent)
        self._batch_size = check_batch_size(batch_size)
        self._drop_remainder = drop_remainder
        self._batch_fn = batch_fn

    @property
    def counting(self) -> CountingRule:
        return CountingRule(self._batch_size, self._drop_remainder)

    def open(self) -> DatasetIterator[T]:
        return BatchDatasetIterator(
            self._parent.__iter__(), self._batch_size, self._drop_remainder, self._batch_fn
        )

    def _traced(self, tracer: "Tracer") -> Any:
        traced = tracer.passing(self)
        traced._batch_fn = TracedBatch(stack if self._batch_fn is None else self._batch_fn)
        return traced


class BatchDatasetIterator(TransformIterator[T]):
    """A position between two batches."""

    def __init__(
        self,
        parent: DatasetIterator[Any],
        batch_size: int,
        drop_remainder: bool,
        batch_fn: BatchFn | None,
    ) -> None:
        super().__init__(parent)
        self._batch_size = batch_size
        self._drop_remainder = drop_remainder
        self._batch_fn: BatchFn = stack if batch_fn is None else batch_fn
        self._stacks = batch_fn is None
        self._at_once = batch_size  # How many members to take at a time; fewer if they are large.
        # Parents with columnar data can return a whole batch in one call.
        self._take_stacked = getattr(parent, "take_stacked", None) if self._stacks else None
        # Members that were taken for the next batches, to save calls, and put back. None if there
        # can be no such members, or if a whole batch may be taken past them.
        takes_more = parent.takes_back and self._take_stacked is None
        self._read: list[Any] | None = [] if takes_more else None
        self._pace = Pace()

    def __next__(self) -> T:
        if self._take_stacked is not None:
            batch: T | None = self._take_stacked(self._batch_size)
            if batch is not None:
                return batch
        return self._next_batch()  # type: ignore[no-any-return]

    def _next_batch(self) -> Any:
        read, size = self._read, self._batch_size
        if read and len(read) >= size:  # The usual case of small batches, with few calls.
            members = read[:size]
            self.parent.pass_over(size)
            del read[:size]
        else:
            members = self._members()
        try:
            return self._batch_fn(members)
        except Exception as error:
            self.explain(error, self._batch_fn)
            raise

    def next_into(self, empty: Empty) -> T:
        """Return the next batch in memory from `empty`, if the batch function allows that."""
        return self._next_batch_into(empty) if self._stacks else next(self)

    def _next_batch_into(self, empty: Empty) -> Any:
        began = time.perf_counter()
        members, batch = self._take(self._at_once), None
        self._at_once = self._batch_size
        if members and has_large_arrays(members[0]):
            size = nbytes(members[0])
            # Members that were just computed are in the cache, so copy them soon. Members that
            # were ready before are in no cache, so nothing is gained by smaller portions.
            if time.perf_counter() - began > len(members) * size * _SECONDS_PER_BYTE:
                self._at_once = min(self._batch_size, max(1, _BYTES_AT_ONCE // size))
            if len(members) < self._batch_size:
                batch = self._grown(members, empty)
        if batch is None:
            members = self._members(members)
        try:
            return stack(members, empty) if batch is None else batch.finish()
        except Exception as error:
            self.explain(error, self._batch_fn)
            raise

    def _grown(self, members: list[Any], empty: Empty) -> GrowingBatch:
        """Take the rest of a batch, and stack members as they arrive."""
        batch = GrowingBatch(self._batch_size, empty)
        while members:
            for member in members:
                batch.add(member)
            missing = self._batch_size - len(batch)
            members = self._take(min(missing, self._at_once)) if missing else []
        if missing and self._drop_remainder:
            raise StopIteration
        return batch

    def _members(self, members: list[Any] | None = None) -> list[Any]:
        """Take the members of a batch, after those that were already taken."""
        size = self._batch_size
        if members is None:
            members = self._take(size)
        if not members:
            raise StopIteration
        while len(members) < size:
            more = self._take(size - len(members))
            if not more:
                if self._drop_remainder:
                    raise StopIteration
                break
            members += more
        return members

    def _take(self, count: int) -> list[Any]:
        """Take at most `count` members; none at the end."""
        read = self._read
        if read:
            members = read[:count]
            self.parent.pass_over(len(members))
            del read[:count]
            return members
        if read is None or count >= LARGEST_CHUNK:
            return self.parent.take(count)
        parent = self.parent  # With the same clock, if clocks are switched while it reads.
        members = self._pace.take(parent, max(count, self._pace.count))
        if len(members) > count:
            parent.put_back(len(members) - count)
            read += members[count:]
            del members[count:]
        return members

    def go_to(self, state: State) -> None:
        super().go_to(state)
        self._forget_read()

    def _forget_read(self) -> None:
        if self._read:
            self._read = []

    def close(self) -> None:
        self._forget_read()
        super().close()

    @property
    def moves_at_end(self) -> bool:
        return self._drop_remainder or self.parent.moves_at_end

    def _get_next_index(self) -> int:
        return -(-self.parent._get_next_index() // self._batch_size)

    def _set_next_index(self, index: int) -> None:
        self.parent._set_next_index(index * self._batch_size)
        self._forget_read()

    def __str__(self) -> str:
        return (
            f"BatchDatasetIterator(batch_size={self._batch_size},"
            f" drop_remainder={self._drop_remainder})"
        )


def _batch_spec(spec: Any, batch_size: int, drop_remainder: bool, batch_fn: Any) -> Any:
    if batch_fn is None:
        from wholegrain._core.spec import ShapeDtypeStruct

        rows = batch_size if drop_remainder else None
        return tree.map_leaves(
            lambda leaf: ShapeDtypeStruct(shape=(rows, *leaf.shape), dtype=leaf.dtype), spec
        )
    while isinstance(batch_fn, functools.partial):
        batch_fn = batch_fn.func
    output_spec = getattr(batch_fn, "output_spec", None)
    if output_spec is None:
        raise NotImplementedError(
            "The element spec after a custom `batch_fn` is not known: give the function an"
            " attribute `output_spec(input_spec, batch_size, drop_remainder)`."
        )
    return output_spec(spec, batch_size, drop_remainder)
