"""Positions in pipelines that tolerate elements that fail."""

from __future__ import annotations

import copy
import re
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple, TypeGuard

from wholegrain._core.errors import stage_notes, takes_place
from wholegrain._core.failure import can_be_recorded
from wholegrain._core.tolerated import Event, FailedRecord, Tolerated
from wholegrain._core.types import State, T
from wholegrain._graph.error_rules import Rule
from wholegrain._graph.iterator import DatasetIterator, TransformIterator, go_to_state_of
from wholegrain._graph.tolerance import Counts
from wholegrain._state.validate import copy_state

_PROGRAMMING = (NameError, ImportError, SyntaxError, MemoryError, NotImplementedError)
_PLACE = re.compile(r"element (-?\d+) there, element -?\d+ of the pipeline, index (-?\d+) of")
_STAGE = re.compile(r"This happened in (.*?), (?:element|at) ")


def can_be_tolerated(error: BaseException) -> TypeGuard[Exception]:
    """Return whether an exception may be the fault of a record rather than of the program."""
    ends = isinstance(error, (StopIteration, Tolerated))
    return isinstance(error, Exception) and not ends and not isinstance(error, _PROGRAMMING)


def text_of(error: BaseException) -> str:
    """Return an exception as text."""
    return f"{type(error).__name__}: {error}"[:500]


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
        try:  # As `_read` does, without the cost of two more calls.
            taken: list[T] = self.parent.take(count)
        except Exception as error:
            if not can_be_recorded(error):
                raise
            taken = self._read(_raising_first(error, lambda: self.parent.take(count)))
        else:
            self._counts.good, self._last = True, None
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
        return FailedRecord(text_of(error), self._rule.policy_name, stage, at, None, index)

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


def _raising_first(error: Exception, read: Callable[[], Any]) -> Callable[[], Any]:
    """Return a function that raises an error when it is first called, and then reads."""
    errors = [error]

    def read_on() -> Any:
        if errors:
            raise errors.pop()
        return read()

    return read_on


class _Read(NamedTuple):
    """What was read from the parent: an element, or an error in its place."""

    element: Any
    error: Exception | None
    after: State

    @property
    def is_good(self) -> bool:
        return self.error is None


class ReplacingIterator(OnErrorIterator[T]):
    """Puts the next element that does not fail in the place of those that do.

    After the last one that does not fail, it is the first one of all. What is read ahead of a
    failure is kept with the states of the parent, so every element has its own place.
    """

    def __init__(self, parent: DatasetIterator[Any], rule: Rule) -> None:
        super().__init__(parent, rule)
        self._start = parent.get_state()
        self._ahead: deque[_Read] = deque()
        self._position: State | None = None  # The parent's, if elements were read ahead.

    def __next__(self) -> T:
        if self._ahead:
            read = self._ahead.popleft()
        else:
            try:
                element: T = self.parent.__next__()
            except StopIteration:
                raise
            except Exception as error:
                if not can_be_recorded(error) or not takes_place(error):
                    raise
                read = _Read(None, error, self.parent.get_state())
            else:
                self._counts.good, self._position = True, None
                return element
        self._position = read.after if self._ahead else None
        if read.error is None:
            self._counts.good = True
            return read.element  # type: ignore[no-any-return]
        if not can_be_tolerated(read.error):
            raise read.error
        substitute = self._substitute()
        if substitute is None:
            raise read.error
        self._position = read.after
        event = Event(self._rule.uid, self._record(read.error))
        self._counts.tolerate(Tolerated((event,), substitute.element))
        return copy.deepcopy(substitute.element)  # type: ignore[no-any-return]

    def _read_on(self) -> _Read:
        try:
            element = self.parent.__next__()
        except StopIteration:
            raise
        except Exception as error:
            if not can_be_recorded(error) or not takes_place(error):
                raise
            return _Read(None, error, self.parent.get_state())
        return _Read(element, None, self.parent.get_state())

    def _substitute(self) -> _Read | None:
        """Return the next element that does not fail, or else the first one; None without any."""
        for read in self._ahead:
            if read.is_good:
                return read
        try:
            while True:
                self._ahead.append(self._read_on())
                if self._ahead[-1].is_good:
                    return self._ahead[-1]
        except StopIteration:
            pass
        end = self.parent.get_state()
        go_to_state_of(self.parent, self._start)
        try:
            while not (read := self._read_on()).is_good:
                if read.after == end:
                    return None
            return read
        except StopIteration:
            return None
        finally:
            go_to_state_of(self.parent, end)

    def get_state(self) -> State:
        position = self._position
        return self._counts.wrapped(
            self.parent.get_state() if position is None else copy_state(position)
        )

    def go_to(self, state: State) -> None:
        super().go_to(state)
        self._ahead.clear()
        self._position = None

    def close(self) -> None:
        self._ahead.clear()
        super().close()
