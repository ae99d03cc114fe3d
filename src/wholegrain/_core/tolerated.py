"""Failures that a pipeline tolerates: what `on_error` says about them, as values.

A tolerated failure keeps the place of its element, as every failure does: it is a `Failure` in its
chunk, and an exception between iterators. So it is in the same place of the stream for any number
of threads and workers. The consumer's process counts it when its turn comes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from wholegrain._core.failure import Failure


@dataclass(frozen=True)
class FailedRecord:
    """An element that could not be read or computed, and what was done about it.

    Attributes:
        error: The exception, as text.
        policy: What was done: "skip", "replace", or the name of a function.
        stage: The stage that failed.
        element: The index of the element in that stage, counted on over epochs.
        source: The source that the record came from.
        index: The index of the record in the source.
        epoch: The epoch, from 0.
    """

    error: str
    policy: str
    stage: str
    element: int | None = None
    source: str | None = None
    index: int | None = None
    epoch: int | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return the fields, for JSON."""
        return asdict(self)

    def __str__(self) -> str:
        parts = [] if self.index is None else [f"record {self.index}"]
        if self.source is not None:
            parts.append(f"of {self.source}")
        if self.epoch is not None:
            parts.append(f"in epoch {self.epoch}")
        where = " ".join(parts) or "an element"
        return f"{where}: {self.error} (in {self.stage})"


class Event(NamedTuple):
    """A tolerated failure.

    Args:
        rule: The id of the rule that tolerates it.
        record: What failed.
        epoch: The epoch of the dataset that has the rule.
        after_good: Whether an element without a failure came since the event before it.
    """

    rule: str
    record: FailedRecord
    epoch: int = 0
    after_good: bool = False


class Tolerated(Exception):
    """Tolerated failures in the place of an element.

    Attributes:
        events: The failures; none for a record that is in quarantine.
        element: What replaces the element, or was made from replaced ones; None if it is missing.
        ends_good: Whether the last part of the element did not fail.
    """

    def __init__(
        self, events: Sequence[Event] = (), element: Any = None, ends_good: bool = False
    ) -> None:
        super().__init__()
        self.events = tuple(events)
        self.element = element
        self.ends_good = ends_good

    def __reduce__(self) -> Any:
        return Tolerated, (self.events, self.element, self.ends_good)

    def __str__(self) -> str:
        return "; ".join(str(event.record) for event in self.events) or "a record in quarantine"


def tolerated(element: Any) -> Tolerated | None:
    """Return the Tolerated of a Failure in a chunk; None for anything else."""
    if type(element) is Failure and type(element.error) is Tolerated:
        return element.error
    return None


def replaced(element: Any) -> bool:
    """Return whether an element of a chunk failed and has a replacement."""
    found = tolerated(element)
    return found is not None and found.element is not None


def with_element(failure: Failure, element: Any) -> Failure:
    """Return the same tolerated failure with what a stage has made of its replacement."""
    was: Any = failure.error
    return Failure(Tolerated(was.events, element, was.ends_good), failure.stage, failure.at)


def joined_members(members: Sequence[Any]) -> tuple[list[Any], Tolerated] | Failure:
    """Return the members of a group without their failures, and the failures of the group.

    If a member failed and that is not tolerated, the whole group fails: that Failure is returned.
    """
    plain, events = [], []
    good = False
    for member in members:
        if type(member) is not Failure:
            plain.append(member)
            good = True
            continue
        found = tolerated(member)
        if found is None:
            return member
        plain.append(found.element)
        for event in found.events:
            events.append(event._replace(after_good=event.after_good or good))
            good = False
        good = found.ends_good
    return plain, Tolerated(events, None, good)


def group_of(members: Sequence[Any], *, is_whole: bool) -> Any:
    """Return a group of members as one element of a chunk, which may be a Failure.

    Args:
        members: The members, some of which may be Failures.
        is_whole: Whether the group is missing if one of its members is.
    """
    if not any(type(member) is Failure for member in members):
        return members
    found = joined_members(members)
    if isinstance(found, Failure):
        return found
    plain, failures = found
    if not is_whole or all(member is not None for member in plain):
        failures.element = type(members)(plain)  # type: ignore[call-arg]
    return Failure(failures)


class _Reader(threading.local):
    noted: list[Any] | None = None  # What happened to the element that is read alone.


_reader = _Reader()
_MISSING, _GOOD = object(), object()


def note_single(found: Tolerated) -> None:
    """Record what failed in an element that this thread reads alone, not in a chunk."""
    noted = _reader.noted
    if noted is not None:
        noted += found.events or (_MISSING,)
        if found.ends_good:
            noted.append(_GOOD)


def read_alone(read: Callable[..., Any], *arguments: Any) -> Any:
    """Return an element of a chunk that is read alone: a Failure if something was tolerated."""
    outer = _reader.noted
    noted: list[Any] = []
    _reader.noted = noted
    try:
        element = read(*arguments)
    finally:
        _reader.noted = outer
    if not noted:
        return element
    events = [event for event in noted if type(event) is Event]
    return Failure(Tolerated(events, element, noted[-1] is _GOOD))


def read_again(read: Callable[..., Any], *arguments: Any) -> Any:
    """Return an element, without counting what was tolerated in it: that is done elsewhere."""
    element = read_alone(read, *arguments)
    found = tolerated(element)
    if found is None:
        return element
    if found.element is None:
        note_single(Tolerated())
    return found.element


def raising(read: Callable[[int], Any]) -> Callable[[int], Any]:
    """Return a function that reads an element, and raises what was tolerated in its place."""

    def read_one(index: int) -> Any:
        element = read_alone(read, index)
        if type(element) is Failure:
            raise element.error
        return element

    return read_one


def settled(element: Any) -> Any:
    """Return the element of a chunk for a reader of single elements: it may be missing."""
    found = tolerated(element)
    if found is None:
        return element
    note_single(found)
    return found.element
