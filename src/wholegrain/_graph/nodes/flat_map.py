"""Splits each element into parts."""

import contextlib
import operator
import sys
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from wholegrain._core.failure import Failure, PartlyFailed, can_be_recorded
from wholegrain._core.names import transform_name
from wholegrain._core.types import FlatMaps, Indices, S, State, T
from wholegrain._graph.chunks import for_each
from wholegrain._graph.iterator import DatasetIterator, TransformIterator, go_to_state_of
from wholegrain._graph.kinds import AnyDataset, OneParentIterNode, OneParentMapNode
from wholegrain._graph.map_dataset import MapDataset
from wholegrain._graph.user_functions import check_flat_map
from wholegrain._state.spec import CheckpointSpec
from wholegrain._state.validate import copy_state, wrong_state


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
        parts = self._split(self.parent.getitem(at))
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

    @property
    def _element_spec(self) -> Any:
        raise NotImplementedError("The element spec after a flat map is not known.")

    def _about(self, name: str) -> str:
        return f"{name} leaves gaps: `ds[i]` may be None, and iteration skips them."

    def __str__(self) -> str:
        return f"FlatMapMapDataset(transform={transform_name(self._transform)})"


def _part_of(parts: Sequence[Any] | Failure, part: int) -> Any:
    if isinstance(parts, Failure):
        return parts
    return parts[part] if part < len(parts) else None


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

    _period = None  # An element may have any number of parts.

    @property
    def _element_spec(self) -> Any:
        raise NotImplementedError("The element spec after a flat map is not known.")

    def __str__(self) -> str:
        return f"FlatMapIterDataset(transform={transform_name(self._transform)})"


class FlatMapDatasetIterator(TransformIterator[T]):
    """A position among the parts of an element, and the parent's state before that element."""

    def __init__(self, parent: DatasetIterator[S], transform: FlatMaps[S, T]) -> None:
        super().__init__(parent)
        self._transform = transform
        self._parts: Sequence[Any] = ()
        self._next_part = 0
        self._before_element = parent.get_state()

    def __next__(self) -> T:
        part = self._next_part
        parts = self._parts
        while part >= len(parts):
            parts = self._split_next()
            part = 0
        self._next_part = part + 1
        return parts[part]  # type: ignore[no-any-return]

    def take(self, count: int) -> list[T]:
        part, parts = self._next_part, self._parts
        while part >= len(parts):
            try:
                parts = self._split_next()
            except StopIteration:
                return []
            part = 0
        if type(parts) is not list:  # Reading a part may fail.
            self._next_part = part + 1
            return [parts[part]]
        self._next_part = stop = min(part + count, len(parts))
        return parts[part:stop]

    def _split_next(self) -> Sequence[Any]:
        before = self.parent.get_state()
        try:
            element = next(self.parent)
        except StopIteration:
            self._before_element = before
            self._parts = ()
            raise
        except BaseException as error:
            if not can_be_recorded(error):
                raise
            self.check_open()
            self._skip()
            raise
        try:
            parts: Iterable[Any] = self._transform.flat_map(element)
            if type(parts) is not list and not (
                hasattr(parts, "__len__") and hasattr(parts, "__getitem__")
            ):
                parts = list(parts)
        except BaseException as error:
            if not can_be_recorded(error):
                raise
            self._skip()
            self.explain(error, self._transform)
            raise
        self._before_element = before
        self._parts, self._next_part = parts, 0  # type: ignore[assignment]
        return self._parts

    def _skip(self) -> None:
        """Move past an element that failed."""
        self._before_element = self.parent.get_state()
        self._parts, self._next_part = (), 0

    def get_state(self) -> State:
        return {
            "parent": copy_state(self._before_element),
            "next_index_in_buffer": self._next_part,
        }

    def check_state(self, state: State) -> None:
        self.check_parts(state, "parent", "next_index_in_buffer")

    def go_to(self, state: State) -> None:
        next_part = operator.index(state["next_index_in_buffer"])
        go_to_state_of(self.parent, state["parent"])
        self._parts, self._next_part = (), 0
        self._before_element = self.parent.get_state()
        if next_part:
            with contextlib.suppress(StopIteration):  # At the end the part number stays as it is.
                if next_part > len(self._split_next()):
                    raise wrong_state(
                        self, f"{next_part} parts were read of an element with {len(self._parts)}"
                    )
            self._next_part = next_part

    def close(self) -> None:
        self._parts = ()
        super().close()

    def __str__(self) -> str:
        return f"FlatMapDatasetIterator(transform={transform_name(self._transform)})"
