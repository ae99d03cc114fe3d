"""Tolerates elements that fail: leaves them out, or replaces them."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, TypeGuard

import numpy as np

from wholegrain._core.errors import stage_notes
from wholegrain._core.failure import Failure, PartlyFailed, can_be_recorded, to_raise_once
from wholegrain._core.log import logger
from wholegrain._core.stack import Empty
from wholegrain._core.tolerated import (
    Event,
    FailedRecord,
    Tolerated,
    settled,
    with_element,
)
from wholegrain._core.types import Indices, NDArray, State, T
from wholegrain._graph.chunks import raise_failure, read_after
from wholegrain._graph.error_rules import Rule, keeps_places, origin_of
from wholegrain._graph.iterator import DatasetIterator, TransformIterator, go_to_state_of
from wholegrain._graph.kinds import OneParentIterNode, OneParentMapNode
from wholegrain._graph.map_dataset import MapDataset
from wholegrain._graph.tolerance import Counts
from wholegrain._state.counting import CountingRule
from wholegrain._state.spec import CheckpointSpec

_MOST_SUBSTITUTES = 64
"""How many substitutes are tried for an element. If all of them fail, so does the element."""

_PROGRAMMING = (NameError, ImportError, SyntaxError, MemoryError, NotImplementedError)
_PLACE = re.compile(r"element (-?\d+) there, element -?\d+ of the pipeline, index (-?\d+) of")
_STAGE = re.compile(r"This happened in (.*?), (?:element|at) ")


def can_be_tolerated(error: BaseException) -> TypeGuard[Exception]:
    """Return whether an exception may be the fault of a record rather than of the program."""
    ends = isinstance(error, (StopIteration, Tolerated))
    return isinstance(error, Exception) and not ends and not isinstance(error, _PROGRAMMING)


def _text_of(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"[:500]


class OnErrorMapDataset(OneParentMapNode[T]):
    """The parent, with its failed elements missing or replaced."""

    keeps_size = True
    not_traced = (
        "`on_error` on a MapDataset, because elements that fail or are replaced keep their places"
        " there. On an IterDataset, `on_error` can be traced"
    )
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
            logger().warning("%s: a read of several elements failed: %s", self, _text_of(passed))
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
        record = FailedRecord(_text_of(error), name, str(stage), at, source, number, epoch)
        element = None
        if policy == "replace":
            element = self._substitute(index)
            if element is None:
                return failure
        elif not isinstance(policy, str):
            try:
                element = policy(error, record)
            except Exception as another:
                if not can_be_recorded(another):
                    raise
                return Failure(another, self, index)
        event = Event(self._rule.uid, record, index // max(len(self), 1))
        return Failure(Tolerated((event,), element), stage, at)

    def _substitute(self, index: int) -> Any:
        """Return the element that replaces the one at `index`; None if none can be read.

        It is from the same epoch, and depends on the index alone. Substitutes are spread over the
        epoch, because broken records often follow each other.
        """
        length = len(self)
        epoch, position = divmod(index, length)
        for attempt in range(1, _MOST_SUBSTITUTES + 1):
            at = epoch * length + _scattered(position, attempt) % length
            (element,) = self._read_substitute(at)
            if element is not None and type(element) is not Failure:
                return element
        return None

    def _read_substitute(self, at: int) -> Sequence[Any]:
        try:
            return self.parent.getitems(np.array([at]))
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
    counting = CountingRule(tolerates=True)
    gives_place = True

    def __init__(self, parent: Any, rule: Rule) -> None:
        super().__init__(parent)
        if rule.policy == "replace":
            raise ValueError(
                'on_error("replace") needs to read another element, so it belongs on a MapDataset,'
                " before `to_iter_dataset()`. On an IterDataset, give a function that returns the"
                ' substitute, or use "skip".'
            )
        self._rule = rule.for_length(None)

    @property
    def only_chooses(self) -> bool:  # type: ignore[override]
        """Whether it returns elements of its parent as they are, and no substitutes."""
        return self._rule.policy == "skip"

    @property
    def rule(self) -> Rule:
        """What is tolerated, and how much of it."""
        return self._rule

    def open(self) -> DatasetIterator[T]:
        return OnErrorIterator(self._parent.__iter__(), self._rule)

    def _about(self, name: str) -> str:
        return f"{name}: {self._rule.about}"

    def _label(self) -> str:
        return f"on_error({self._rule.policy_name})"

    def __str__(self) -> str:
        return f"OnErrorIterDataset(policy={self._rule.policy_name})"


class OnErrorIterator(TransformIterator[T]):
    """A position in the parent, and how many failures were tolerated before it."""

    def __init__(self, parent: DatasetIterator[Any], rule: Rule) -> None:
        super().__init__(parent)
        self._rule = rule
        self._counts = Counts(self.context.account)
        self._last: BaseException | None = None  # The failure just before this position.

    def __next__(self) -> T:
        return self._read(self.parent.__next__)  # type: ignore[no-any-return]

    def take(self, count: int) -> list[T]:
        if not self.takes_back:
            return super().take(count)
        taken: list[T] = self._read(lambda: self.parent.take(count))
        if not taken:
            self._check_end()
        return taken

    def _read(self, read: Callable[[], Any]) -> Any:
        while True:
            try:
                found = read()
            except StopIteration:
                self._check_end()
                raise
            except Exception as error:
                if not can_be_recorded(error) or not can_be_tolerated(error):
                    raise
                substitute = self._tolerate(error)
                if substitute is None:
                    continue
                return substitute
            self._counts.good, self._last = True, None
            return found

    @property
    def takes_back(self) -> bool:
        return self._rule.policy == "skip" and self.parent.takes_back

    def put_back(self, count: int) -> None:
        self.parent.put_back(count)

    def pass_over(self, count: int) -> None:
        self.parent.pass_over(count)

    def _tolerate(self, error: Exception) -> Any:
        record = self._record(error)
        policy = self._rule.policy
        element = policy(error, record) if callable(policy) else None
        self._last = error
        self._counts.tolerate(Tolerated((Event(self._rule.uid, record),), element))
        return element

    def _record(self, error: BaseException) -> FailedRecord:
        stage, at, index = str(self.parent), None, None
        for note in stage_notes(error):
            if found := _STAGE.search(note):
                stage = found[1]
            if found := _PLACE.search(note):
                at, index = int(found[1]), int(found[2])
        return FailedRecord(_text_of(error), self._rule.policy_name, stage, at, None, index)

    def _check_end(self) -> None:
        """Raise if an iterator of the user's has ended because it failed."""
        last, self._last = self._last, None
        origin: Any = self.parent
        while origin._parents if isinstance(origin, DatasetIterator) else ():
            origin = origin._parents[0]
        if last is not None and not type(origin).__module__.startswith("wholegrain."):
            last.add_note(
                f"{type(origin).__name__} has ended with this error, so `on_error` cannot go on"
                " after it. Its `__next__` has to be able to continue with the next element; a"
                " generator cannot."
            )
            raise last

    @property
    def moves_at_end(self) -> bool:
        return True

    def get_state(self) -> State:
        return self._counts.wrapped(self.parent.get_state())

    def check_state(self, state: State) -> None:
        super().check_state(self._counts.unwrapped(state, self._rule))

    def go_to(self, state: State) -> None:
        inner = self._counts.unwrapped(state, self._rule)
        go_to_state_of(self.parent, inner)
        self._counts.go_to({} if inner is state else state)
        self._last = None
