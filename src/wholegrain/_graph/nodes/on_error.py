"""Tolerates elements that fail: leaves them out, or replaces them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from wholegrain._core.failure import Failure, PartlyFailed, can_be_recorded, to_raise_once
from wholegrain._core.log import logger
from wholegrain._core.origins import Origins, Traced
from wholegrain._core.stack import Empty
from wholegrain._core.tolerated import (
    Event,
    FailedRecord,
    Tolerated,
    settled,
    with_element,
)
from wholegrain._core.types import Indices, NDArray, T
from wholegrain._graph.chunks import raise_failure, read_after
from wholegrain._graph.error_rules import Rule, keeps_places, origin_of, source_of
from wholegrain._graph.iterator import DatasetIterator
from wholegrain._graph.kinds import ElementTransform, OneParentIterNode, OneParentMapNode
from wholegrain._graph.map_dataset import MapDataset
from wholegrain._graph.steps import steps_of
from wholegrain._graph.tolerant_iterators import (
    OnErrorIterator,
    ReplacingIterator,
    can_be_tolerated,
    text_of,
)
from wholegrain._state.counting import CountingRule
from wholegrain._state.spec import CheckpointSpec

if TYPE_CHECKING:
    from wholegrain._graph.tracing import Tracer

_MOST_SUBSTITUTES = 64
"""How many substitutes are tried for an element. If all of them fail, so does the element."""


class OnErrorMapDataset(OneParentMapNode[T]):
    """The parent, with its failed elements missing or replaced."""

    keeps_size = True
    checkpoint = CheckpointSpec(
        free=("rule.policy_name", "rule.budget", "rule.consecutive"), position="parent"
    )

    def __init__(self, parent: MapDataset[Any], rule: Rule) -> None:
        super().__init__(parent)
        self._rule = rule.for_length(len(parent))

    @property
    def rule(self) -> Rule:
        """What is tolerated, and how much of it."""
        return self._rule

    @property
    def sparse(self) -> bool:
        if self._rule.policy == "replace":
            return not keeps_places(self.parent)
        return self.parent.sparse or self._rule.policy == "skip"

    @property
    def gives_place(self) -> bool:
        """Whether elements are missing only if they fail."""
        return keeps_places(self.parent)

    @property
    def stacks(self) -> bool:  # type: ignore[override]
        return self.parent.stacks

    def gather(self, indices: Indices) -> NDArray[Any] | None:
        return self.parent.gather(indices)

    def getitem(self, index: int) -> T | None:
        if not -(2**63) <= index < 2**63:
            return self.parent.getitem(index)
        (element,) = self.getitems(np.array([index]))
        element = settled(element)
        if type(element) is Failure:
            raise_failure(element)
        return element  # type: ignore[no-any-return]

    def getitem_into(self, index: int, empty: Empty) -> T | None:
        try:
            return self.parent.getitem_into(index, empty)
        except Exception as error:
            if not can_be_recorded(error) or not can_be_tolerated(error):
                raise
            return settled(self._tolerate(Failure(error, self.parent, index), index))  # type: ignore[no-any-return]

    def getitems(self, indices: Indices) -> Sequence[T | None]:
        parent = self.parent
        try:
            elements = parent.getitems(indices)
        except Exception as error:
            if not can_be_recorded(error) or not can_be_tolerated(error):
                raise
            elements = read_after(error, parent.getitem, indices.tolist(), parent, indices)
        for passed in to_raise_once():  # Reading the elements one by one has helped.
            logger().warning("%s: a read of several elements failed: %s", self, text_of(passed))
        if type(elements) is not PartlyFailed:
            return elements
        return PartlyFailed(
            [
                self._tolerate(element, int(index)) if type(element) is Failure else element
                for element, index in zip(elements, indices, strict=True)
            ]
        )

    def _tolerate(self, failure: Failure, index: int) -> Any:
        """Return what takes the place of a failed element."""
        error = failure.error
        if type(error) is Tolerated:
            if error.element is not None or self._rule.policy != "replace":
                return failure
            # A record in quarantine, or skipped upstream: this rule replaces it.
            return with_element(failure, self._substitute(index))
        if not can_be_tolerated(error):
            return failure
        stage = failure.stage if isinstance(failure.stage, MapDataset) else self.parent
        at = failure.at if failure.stage is stage else index
        source, number, epoch = origin_of(stage, at)
        policy = self._rule.policy
        name = self._rule.policy_name
        record = FailedRecord(text_of(error), name, str(stage), at, source, number, epoch)
        element = None
        if policy == "replace":
            element = self._substitute(index)
            if element is None:
                return failure
        elif not isinstance(policy, str):
            try:
                element = self._made(policy(error, record), stage, at)
            except Exception as another:
                if not can_be_recorded(another):
                    raise
                return Failure(another, self, index)
        event = Event(self._rule.uid, record, index // max(len(self), 1))
        return Failure(Tolerated((event,), element), stage, at)

    def _made(self, element: Any, stage: Any, at: int) -> Any:
        """Return what a function has made in the place of an element of a stage."""
        return element

    def _traced(self, tracer: Tracer) -> Any:
        return _TracedOnError(tracer(self.parent), self._rule)

    def _substitute(self, index: int) -> Any:
        """Return the element that replaces the one at `index`; None if none can be read.

        It is from the same epoch, and depends on the index alone. Substitutes are spread over the
        epoch, because broken records often follow each other.
        """
        length = len(self)
        epoch, position = divmod(index, length)
        for attempt in range(1, _MOST_SUBSTITUTES + 1):
            at = epoch * length + _scattered(position, attempt) % length
            (element,) = self._read_one(self.parent, at)
            if element is not None and type(element) is not Failure:
                return element
        return None

    def _read_one(self, dataset: MapDataset[Any], at: int) -> Sequence[Any]:
        try:
            return dataset.getitems(np.array([at]))
        except Exception as error:
            if not can_be_recorded(error):
                raise
            return (None,)

    def _about(self, name: str) -> str:
        return f"{name}: {self._rule.about}"

    def _label(self) -> str:
        return f"on_error({self._rule.policy_name})"

    def __str__(self) -> str:
        return f"OnErrorMapDataset(policy={self._rule.policy_name})"


class _TracedOnError(OnErrorMapDataset[Any]):
    """The same, of elements that carry their origins. A substitute has those of its own record."""

    def _made(self, element: Any, stage: Any, at: int) -> Any:
        return None if element is None else Traced(element, self._origins(stage, at))

    def _origins(self, stage: Any, at: int) -> Origins:
        """Return where an element comes from that a stage could not read or compute."""
        source, index = source_of(stage, at)
        if hasattr(source, "origin_at"):
            return (source.origin_at(index),)
        if not isinstance(stage, ElementTransform):
            return ()
        (read,) = self._read_one(stage.parent, at)  # What the function was called with.
        return read.origins if isinstance(read, Traced) else ()


def _scattered(position: int, attempt: int) -> int:
    """Return a number of 64 bits that depends on two others, by the splitmix64 function."""
    mixed = (position * 0x9E3779B97F4A7C15 + attempt * 0xD1B54A32D192ED03) & 0xFFFFFFFFFFFFFFFF
    mixed = (mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9 & 0xFFFFFFFFFFFFFFFF
    mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EB & 0xFFFFFFFFFFFFFFFF
    return mixed ^ (mixed >> 31)


class OnErrorIterDataset(OneParentIterNode[T]):
    """The parent, without its failed elements, or with what a function returns for them."""

    keeps_size = True
    checkpoint = CheckpointSpec(
        free=("rule.policy_name", "rule.budget", "rule.consecutive"), position="parent"
    )
    gives_place = True

    def __init__(self, parent: Any, rule: Rule) -> None:
        super().__init__(parent)
        steps = steps_of(parent) if isinstance(rule.budget, float) else None
        self._rule = rule.for_length(None if steps is None else steps.total)

    @property
    def replaces_failed(self) -> bool:
        """Whether another element takes the place of one that fails."""
        return self._rule.policy == "replace"

    @property
    def counting(self) -> CountingRule | None:
        """The effect on positions. A substitute is an element of a later position."""
        return None if self.replaces_failed else CountingRule(tolerates=True)

    def _traced(self, tracer: Tracer) -> Any:
        traced: Any = tracer.passing(self)
        policy = self._rule.policy
        if callable(policy):
            # Which record has failed is not known here, so what a function returns has no origins.
            traced._rule = replace(self._rule, policy=_TracedPolicy(policy))
        return traced

    @property
    def rule(self) -> Rule:
        """What is tolerated, and how much of it."""
        return self._rule

    def open(self) -> DatasetIterator[T]:
        kind = ReplacingIterator if self.replaces_failed else OnErrorIterator
        return kind(self._parent.__iter__(), self._rule)

    def _about(self, name: str) -> str:
        return f"{name}: {self._rule.about}"

    def _label(self) -> str:
        return f"on_error({self._rule.policy_name})"

    def __str__(self) -> str:
        return f"OnErrorIterDataset(policy={self._rule.policy_name})"


class _TracedPolicy:
    def __init__(self, policy: Callable[[Exception, FailedRecord], Any]) -> None:
        self._policy = policy
        self.__name__ = getattr(policy, "__name__", str(policy))

    def __call__(self, error: Exception, record: FailedRecord) -> Traced | None:
        element = self._policy(error, record)
        return None if element is None else Traced(element, ())
