"""Batches of elements of similar lengths, in a fixed set of shapes."""

from __future__ import annotations

import dataclasses
import operator
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from wholegrain._core import tree
from wholegrain._core.failure import can_be_recorded
from wholegrain._core.mask import with_mask
from wholegrain._core.origins import Traced, TracedCall, TracedTest, in_rows
from wholegrain._core.types import State
from wholegrain._graph.iterator import DatasetIterator, TransformIterator, go_to_state_of
from wholegrain._graph.kinds import OneParentIterNode
from wholegrain._packing.buckets import BucketPlan, Buckets, plan_buckets
from wholegrain._packing.padded import padded_batch
from wholegrain._state.spec import CheckpointSpec
from wholegrain._state.validate import (
    WrongStateError,
    copy_state,
    list_of,
    number_of,
    part_of,
    wrong_state,
)
from wholegrain.sharding import ShardOptions, check_shard_options

if TYPE_CHECKING:
    from wholegrain._graph.tracing import Tracer

_KEEP_STATE_EVERY = 64
"""The parent's state is kept before every element whose number is a multiple of this."""


class BucketIterDataset(OneParentIterNode[Any]):
    """Batches of elements of similar lengths; see `IterDataset.bucket`."""

    checkpoint = CheckpointSpec(
        fixed=("plan.boundaries", "plan.batch_sizes", "plan.remainder"),
        free=("plan.length", "load", "shard"),
        rereads=True,
    )
    makes_batches = True

    def __init__(
        self,
        parent: Any,
        length: Any,
        boundaries: Any,
        batch_sizes: Any = None,
        budget: Any = None,
        *,
        pad_value: Any = 0,
        pad_to_boundary: bool = True,
        remainder: Any = "drop",
        shard_options: ShardOptions | None = None,
        load: Callable[[Any], Any] | None = None,
    ) -> None:
        super().__init__(parent)
        self._shard = check_shard_options(shard_options or ShardOptions(0, 1))
        self._plan = plan_buckets(
            length,
            boundaries,
            batch_sizes,
            budget,
            pad_value,
            pad_to_boundary,
            remainder,
            self._shard.shard_count,
        )
        if self._shard.shard_count > 1 and remainder == "keep":
            raise ValueError(
                'With several hosts, remainder="keep" would give them batches of different sizes.'
                ' Use "drop" or "pad".'
            )
        if load is not None and not callable(load):
            raise TypeError(f"`load` has to be a function, but got {load!r}.")
        self._load = load
        self._opened_as: type[BucketDatasetIterator] = BucketDatasetIterator

    def open(self) -> DatasetIterator[Any]:
        return self._opened_as(self._parent.__iter__(), self._plan, self._shard, self._load)

    def _traced(self, tracer: Tracer) -> Any:
        traced: Any = tracer.passing(self)
        traced._opened_as = _TracedBucketIterator
        traced._plan = dataclasses.replace(self._plan, length=TracedTest(self._plan.length))
        traced._load = None if self._load is None else TracedCall(self._load)
        return traced

    @property
    def _element_spec(self) -> Any:
        raise NotImplementedError(f"The element spec of {self} is not known without reading.")

    def _label(self) -> str:
        return f"bucket({', '.join(map(str, self._plan.boundaries))})"

    def _about(self, name: str) -> str:
        sizes = zip(self._plan.batch_sizes, self._plan.boundaries, strict=True)
        shapes = ", ".join(f"{size} x {boundary}" for size, boundary in sizes)
        return f"{name} holds elements until a batch is full. The shapes of batches: {shapes}."

    def __str__(self) -> str:
        return f"BucketIterDataset(boundaries={list(self._plan.boundaries)})"


class BucketDatasetIterator(TransformIterator[Any]):
    """A position between two batches.

    The state holds no elements. It is the parent's state from before the oldest element that is
    held, how many elements were placed since, and how many of each bucket were returned since: each
    bucket returns its elements in order, so a restored iterator reads those elements again and
    knows which of them to leave out.
    """

    def __init__(
        self,
        parent: DatasetIterator[Any],
        plan: BucketPlan,
        shard: ShardOptions,
        load: Callable[[Any], Any] | None,
    ) -> None:
        super().__init__(parent)
        self._plan = plan
        self._shard = shard
        self._load = load
        self._stand_at_parent()

    def _stand_at_parent(self) -> None:
        """Begin with empty buckets at the parent's position."""
        self._buckets = Buckets(self._plan)
        self._waiting: deque[Any] = deque()  # Elements that were read and not placed.
        self._placed = 0
        self._failed = 0  # Elements that failed since the oldest kept state.
        # The parent's states, each with the number of elements placed, failed and arrived then.
        self._kept: deque[tuple[int, int, list[int], State]] = deque()

    def __next__(self) -> Any:
        full = None
        while full is None:
            if not self._waiting and not self._read():
                return self._next_rest()
            full = self._place(self._waiting.popleft())
        return self._batch(full)

    def _read(self) -> bool:
        """Read elements up to the next one before which the state is kept; False at the end."""
        due = self._placed % _KEEP_STATE_EVERY
        if not due and (not self._kept or self._kept[-1][0] != self._placed):
            arrived = list(self._buckets.arrived)
            self._kept.append((self._placed, self._failed, arrived, self.parent.get_state()))
        try:
            self._waiting.extend(self.parent.take(_KEEP_STATE_EVERY - due))
        except Exception as error:
            if can_be_recorded(error):
                self._failed += 1
            raise
        return bool(self._waiting)

    def _place(self, element: Any, skip: tuple[int, ...] = ()) -> int | None:
        """Put an element into its bucket; return the bucket if it is full."""
        try:
            full = self._buckets.add(self._placed, element, skip)
        except Exception as error:
            if can_be_recorded(error):
                self._failed += 1
            self.explain(error, self._plan.length)
            raise
        self._placed += 1
        return full

    def _next_rest(self) -> Any:
        bucket = None if self._plan.remainder == "drop" else self._buckets.next_rest()
        if bucket is None:
            raise StopIteration
        return self._batch(bucket)

    def _batch(self, bucket: int) -> Any:
        """Return the batch of a bucket: the rows of this host."""
        plan, shard = self._plan, self._shard
        held = self._buckets.take(bucket)
        self._forget_states()
        width = plan.boundaries[bucket]
        if not plan.pad_to_boundary:
            width = max(length for _, _, length in held)
        size = plan.batch_sizes[bucket] if plan.remainder == "pad" else len(held)
        here = size // shard.shard_count
        start = shard.shard_index * here
        own = held[start : start + here]
        # A host without rows reads one to know the structure of a batch.
        rows = [element for _, element, _ in own or held[:1]]
        lengths = [length for _, _, length in own or held[:1]]
        try:
            if self._load is not None:
                rows = [self._load(row) for row in rows]
            batch = self._joined(rows, lengths, (here, width), len(own))
        except Exception as error:
            self.explain(error, self._load or self._plan.length)
            raise
        if self.observed is not None:
            filled = sum(length for _, _, length in own)
            self.observed.times_of(self.observed_as).note_cells(filled, here * width)
        return batch

    def _joined(
        self, rows: list[Any], lengths: list[int], shape: tuple[int, int], filled: int
    ) -> Any:
        """Return a batch of a shape, in which so many rows are no padding."""
        plan, (here, width) = self._plan, shape
        batch = padded_batch(rows, lengths, width, here if filled else here + 1, plan.pad_value)
        if not filled:
            batch = tree.map_leaves(lambda leaf: leaf[1:], batch)
        return with_mask(batch, np.arange(here) < filled) if plan.remainder == "pad" else batch

    def _forget_states(self) -> None:
        """Forget states from before the oldest element that is held."""
        kept, oldest = self._kept, min(self._buckets.oldest, self._placed)
        while len(kept) > 1 and kept[1][0] <= oldest:
            kept.popleft()

    @property
    def moves_at_end(self) -> bool:
        return True

    def get_state(self) -> State:
        if not self._kept:
            return self._state_of(0, 0, [0] * len(self._plan.boundaries), self.parent.get_state())
        return self._state_of(*self._kept[0])

    def _state_of(self, placed: int, failed: int, arrived: list[int], parent: State) -> State:
        emitted = self._buckets.emitted
        given = [max(0, now - then) for now, then in zip(emitted, arrived, strict=True)]
        return {
            "parent": copy_state(parent),
            "placed": self._placed - placed,
            "failed": self._failed - failed,
            "emitted": given,
        }

    def check_state(self, state: State) -> None:
        self.check_parts(state, "parent", "placed", "failed")
        emitted = list_of(state, "emitted", self)
        if len(emitted) != len(self._plan.boundaries) or sum(emitted) > state["placed"]:
            raise wrong_state(
                self, f"it has returned {emitted} elements of its buckets, of {state['placed']}"
            )

    def go_to(self, state: State) -> None:
        placed, failed = number_of(state, "placed", self), number_of(state, "failed", self)
        skip = tuple(map(operator.index, list_of(state, "emitted", self)))
        go_to_state_of(self.parent, part_of(state, "parent", self))
        self._stand_at_parent()
        while self._placed < placed or self._failed < failed:
            try:
                if not self._waiting and not self._read():
                    raise wrong_state(self, f"the data end before {placed} elements")
                self._place(self._waiting.popleft(), skip)
                if self._placed > placed:
                    raise wrong_state(self, "other elements fail than before")
            except WrongStateError:
                raise
            except Exception as error:
                # The elements that failed were raised before the state was taken.
                if not can_be_recorded(error) or self._failed > failed:
                    raise
        self._buckets.emitted = list(skip)
        self._forget_states()

    def close(self) -> None:
        self._waiting.clear()
        super().close()


class _TracedBucketIterator(BucketDatasetIterator):
    """The same, of elements that carry their origins."""

    def _joined(
        self, rows: list[Any], lengths: list[int], shape: tuple[int, int], filled: int
    ) -> Any:
        batch = super()._joined([row.value for row in rows], lengths, shape, filled)
        own = in_rows(batch, [(row.origins, 1) for row in rows[:filled]])
        return Traced(batch, own.origins, shape[0])
