"""Splits each element into parts."""

import bisect
import itertools
import operator
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from wholegrain._core.failure import Failure, PartlyFailed, can_be_recorded
from wholegrain._core.names import transform_name
from wholegrain._core.origins import TracedFlatMap
from wholegrain._core.tolerated import Tolerated, read_again, tolerated
from wholegrain._core.types import FlatMaps, Indices, S, State, T
from wholegrain._graph.chunks import after_failure, for_each
from wholegrain._graph.element_iterator import FunctionIterator
from wholegrain._graph.iterator import DatasetIterator, go_to_state_of
from wholegrain._graph.kinds import AnyDataset, OneParentIterNode, OneParentMapNode
from wholegrain._graph.map_dataset import MapDataset
from wholegrain._graph.user_functions import check_flat_map
from wholegrain._state.spec import CheckpointSpec
from wholegrain._state.validate import copy_state, wrong_state

if TYPE_CHECKING:
    from wholegrain._graph.tracing import Tracer


class FlatMapMapDataset(OneParentMapNode[T]):
    """The parts of each element, at `max_fan_out` indices per element.

    If an element has fewer parts, its remaining indices are None.

    Args:
        parent: The dataset whose elements are split.
        transform: Splits an element. It has to return the same parts each time.
    """

    checkpoint = CheckpointSpec(fixed=("transform.max_fan_out",), free=("transform",))

    def __init__(self, parent: MapDataset[S], transform: FlatMaps[S, T]) -> None:
        super().__init__(parent)
        check_flat_map(transform, needs_fan_out=True)
        self._transform = transform

    @property
    def sparse(self) -> bool:
        return True

    @property
    def _period(self) -> int | None:
        found = self.parent._period
        return None if found is None else found * self._transform.max_fan_out

    def __len__(self) -> int:
        fan_out, length = self._transform.max_fan_out, len(self.parent)
        if length >= sys.maxsize / fan_out:
            return sys.maxsize
        return fan_out * length

    def getitem(self, index: int) -> T | None:
        at, part = divmod(index, self._transform.max_fan_out)
        # A failure that is tolerated counts for the first part.
        read = self.parent.getitem
        parts = self._split(read_again(read, at) if part else read(at))
        return parts[part] if part < len(parts) else None

    def getitems(self, indices: Indices) -> Sequence[T | None]:
        positions, parts = np.divmod(indices, self._transform.max_fan_out)
        # Read and split each parent element once, however many of its parts were requested.
        distinct, which = np.unique(positions, return_inverse=True)
        split = for_each(self._split_each, self, distinct, self.parent.getitems(distinct))
        pairs = zip(which.tolist(), parts.tolist(), strict=True)
        if type(split) is not PartlyFailed:
            return [split[at][part] if part < len(split[at]) else None for at, part in pairs]
        # If an element failed, all of its indices fail.
        return PartlyFailed([_part_of(split[at], part) for at, part in pairs])

    def _split_each(self, results: list[Any], elements: Sequence[Any]) -> None:
        results.extend(map(self._split, elements))

    def _split(self, element: Any) -> Sequence[Any]:
        if element is None:
            return ()
        given: Any = self._transform.flat_map(element)
        parts: Sequence[Any] = given if isinstance(given, Sequence) else list(given)
        if len(parts) > self._transform.max_fan_out:
            raise ValueError(
                f"`{transform_name(self._transform)}.flat_map` gave {len(parts)} parts, more than"
                f" its max_fan_out={self._transform.max_fan_out}. Raise `max_fan_out`."
            )
        return parts

    def source_index(self, index: int) -> int:
        return self.parent.source_index(index // self._transform.max_fan_out)

    def _stop_in_parent(self, number: int, stop: int) -> int | None:
        return -(-stop // self._transform.max_fan_out)

    def _positions_of(self, keys: Sequence[Indices], stop: int) -> Indices:
        fan_out: int = self._transform.max_fan_out
        return (keys[0][:, None] * fan_out + np.arange(fan_out)).reshape(-1)

    @property
    def _element_spec(self) -> Any:
        raise NotImplementedError("The element spec after a flat map is not known.")

    def _about(self, name: str) -> str:
        return f"{name} leaves gaps: `ds[i]` may be None, and iteration skips them."

    def __str__(self) -> str:
        return f"FlatMapMapDataset(transform={transform_name(self._transform)})"


def _part_of(parts: Sequence[Any] | Failure, part: int) -> Any:
    if not isinstance(parts, Failure):
        return parts[part] if part < len(parts) else None
    found = tolerated(parts)
    if found is None:
        return parts
    # The failure counts once, and a substitute has parts like any other element.
    made = () if found.element is None else found.element
    element = made[part] if part < len(made) else None
    events = () if part else found.events
    return Failure(Tolerated(events, element, found.ends_good), parts.stage, parts.at)


class FlatMapIterDataset(OneParentIterNode[T]):
    """The parts of each element, in order.

    Args:
        parent: The dataset whose elements are split.
        transform: Splits an element into any number of parts.
    """

    checkpoint = CheckpointSpec(free=("transform",), rereads=True)

    def __init__(self, parent: AnyDataset[S], transform: FlatMaps[S, T]) -> None:
        super().__init__(parent)
        check_flat_map(transform, needs_fan_out=False)
        self._transform = transform

    def open(self) -> DatasetIterator[T]:
        return FlatMapDatasetIterator(self._parent.__iter__(), self._transform)

    def _traced(self, tracer: "Tracer") -> Any:
        traced = tracer.passing(self)
        traced._transform = TracedFlatMap(self._transform)
        return traced

    _period = None  # An element may have any number of parts.

    @property
    def _element_spec(self) -> Any:
        raise NotImplementedError("The element spec after a flat map is not known.")

    def __str__(self) -> str:
        return f"FlatMapIterDataset(transform={transform_name(self._transform)})"


class FlatMapDatasetIterator(FunctionIterator[T]):
    """A position among the parts of an element, and the parent's state before that element.

    An element stays the current one until a part of the next one is returned. If the parent
    supports `put_back`, a chunk of elements is split at a time, and the parent is put back to the
    current one.
    """

    def __init__(self, parent: DatasetIterator[S], transform: FlatMaps[S, T]) -> None:
        super().__init__(parent, transform)
        self._fan_out = sys.maxsize  # How many parts an element of the last chunk had, if known.
        self.forget_read()

    def forget_read(self) -> None:
        self._splits: Sequence[Any] = ()  # The parts of each element of the chunk that follows.
        self._hold([])

    def _hold(self, splits: Sequence[Sequence[Any]], start: tuple[Any, int] = (None, 0)) -> None:
        """Hold the parts of some elements; `start` is the position before the first part.

        A position is the parent's state (None if it is the current one) and a number of parts.
        """
        self._start, self._cursor, self._at = start, 0, 0
        self._ends = list(itertools.accumulate(map(len, splits)))
        self._parts: Sequence[Any] = (
            splits[0] if len(splits) == 1 else list(itertools.chain.from_iterable(splits))
        )
        self._before: State | None = None  # The parent's state before the first, if it was asked.

    def __next__(self) -> T:
        for part in self.take(1):
            return part
        raise StopIteration

    def take(self, count: int) -> list[T]:
        while self._cursor >= len(self._parts):
            try:
                self._go_on(count)
            except StopIteration:
                return []
        cursor, parts = self._cursor, self._parts
        if type(parts) is list:
            taken = parts[cursor : cursor + count]
            self.pass_over(len(taken))
            return taken
        self.pass_over(1)
        return [parts[cursor]]  # One at a time: reading a part may fail.

    def pass_over(self, count: int) -> None:
        self._cursor += count
        at = bisect.bisect_left(self._ends, self._cursor)
        if at != self._at and self._chunks:
            if at > self._at:
                self.parent.pass_over(at - self._at)
            else:
                self.parent.put_back(self._at - at)
        self._at = at

    def put_back(self, count: int) -> None:
        self.pass_over(-count)

    def _go_on(self, count: int) -> None:
        """Hold the parts of the next elements. About `count` parts will be needed."""
        before, part = self._position()
        start = self.parent.get_state() if before is None else before, part
        last = self._parts_of_last(part)
        if self._chunks:
            self.parent.pass_over(len(self._ends) - self._at)
        splits = self._splits
        self._hold([], start)
        if not splits:
            splits = self._split_chunk(max(1, count // self._fan_out), last)
        before = self._before
        if type(splits[0]) is Failure:
            self._hold([])
            self._splits = splits[1:]
            if self._chunks:
                self.parent.pass_over(1)
            self.raise_explained(splits[0])
        # Lists are held together, up to an element that failed.
        stop = 1
        while stop < len(splits) and type(splits[stop]) is type(splits[0]) is list:
            stop += 1
        self._hold(splits[:stop], start)
        self._before, self._splits = before, splits[stop:]

    def _parts_of_last(self, part: int) -> int:
        """Return how many parts the last element that is held has; `part` if none is held."""
        ends = self._ends
        return ends[-1] - (ends[-2] if len(ends) > 1 else 0) if ends else part

    def _split_chunk(self, count: int, last: int) -> Sequence[Any]:
        """Return the parts of each of the next elements of the parent.

        Args:
            count: How many elements.
            last: How many parts the element before them has, which the state at the end tells.
        """
        parent = self.parent  # With the same clock, if clocks are switched while it reads.
        before = parent.get_state()
        try:
            elements = self._inputs.take(parent, count if self._chunks else 1)
        except BaseException as error:
            if can_be_recorded(error):
                self.check_open()
                self.forget_read()
            raise
        if not elements:
            self._start = before, last
            raise StopIteration
        splits: list[Any] = []
        try:
            self._split_each(splits, elements)
            self._fan_out = max(1, sum(map(len, splits)) // len(splits))
        except BaseException as error:
            splits = after_failure(error, splits, self._split_each, self, elements)
        if self._chunks:
            parent.put_back(len(elements))
        self._before = before
        return splits

    def _split_each(self, results: list[Any], elements: Sequence[Any]) -> None:
        for element in elements:
            parts: Iterable[Any] = self._transform.flat_map(element)
            if type(parts) is not list and not (
                hasattr(parts, "__len__") and hasattr(parts, "__getitem__")
            ):
                parts = list(parts)
            results.append(parts)

    def _position(self) -> tuple[State | None, int]:
        if not self._cursor:
            return self._start
        if not self._at:
            return self._before, self._cursor
        return None, self._cursor - self._ends[self._at - 1]

    def get_state(self) -> State:
        before, part = self._position()
        parent = self.parent.get_state() if before is None else copy_state(before)
        return {"parent": parent, "next_index_in_buffer": part}

    def check_state(self, state: State) -> None:
        self.check_parts(state, "parent", "next_index_in_buffer")

    def go_to(self, state: State) -> None:
        part = operator.index(state["next_index_in_buffer"])
        go_to_state_of(self.parent, state["parent"])
        self.forget_read()
        if part:
            try:
                self._go_on(1)
            except StopIteration:
                self._start = None, part  # At the end the part number stays as it is.
                return
            if part > len(self._parts):
                found = len(self._parts)
                raise wrong_state(self, f"{part} parts were read of an element with {found}")
            self.pass_over(part)

    def close(self) -> None:
        position = self._position()
        super().close()
        self._start = position
