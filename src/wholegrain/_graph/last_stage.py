"""What a run passes on from its last stage."""

from __future__ import annotations

import threading
from abc import abstractmethod
from collections.abc import Callable
from typing import Any

from wholegrain._core.tolerated import FailedRecord
from wholegrain._core.types import S, State, T
from wholegrain._graph import turns
from wholegrain._graph.asked import HasStep
from wholegrain._graph.glance import Glance
from wholegrain._graph.iterator import DatasetIterator
from wholegrain._graph.run import RunContext
from wholegrain._graph.timed import with_clocks, without_clocks


class _OfLastStage:
    """An attribute that a run has if its last stage has it.

    `__getattr__` would serve all such names, but slows down every attribute access of the run.
    """

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        if instance is None:
            return self
        instance.mend()
        return getattr(instance._output, self._name)


class LastStage(HasStep, DatasetIterator[T]):
    """Passes on what does not move the stages."""

    _output: DatasetIterator[T]
    _context: RunContext
    _closed: bool
    user: int
    turn_lock: threading.RLock

    @abstractmethod
    def mend(self) -> None:
        """Replace the stages if they are torn, so that they can be asked."""

    @abstractmethod
    def note_abandoned(self) -> None:
        """Called if a method was interrupted where it could not recover."""

    @abstractmethod
    def _where_it_stands(self, ask: Callable[[], S]) -> S:
        """Ask the stages for a position, as of the element that the consumer gets next."""

    # Attributes of the last stage, if it has them.
    worker_count = _OfLastStage()
    set_worker_count = _OfLastStage()
    get_packed_batch_size_bytes = _OfLastStage()

    def _whole_run(self, method: str) -> Any:
        return self

    @property
    def worker(self) -> tuple[int, int]:
        """The share of a worker of torch that it reads, and the number of shares."""
        return self._context.worker_index, self._context.worker_count

    @property
    def reads_ahead(self) -> bool:
        return self._output.reads_ahead

    @property
    def is_within_chunk(self) -> bool:  # type: ignore[override]
        return self._output.is_within_chunk

    @property
    def moves_at_end(self) -> bool:
        return self._output.moves_at_end

    def link(self, change: Callable[[Any], Any]) -> None:
        self._output = change(self._output)

    def set_clocks(self, on: bool) -> None:
        """Add clocks around all stages, or remove them."""
        self.link(with_clocks if on else without_clocks)

    def _count_errors_from(self, state: State | None) -> None:
        if self._context.account is not None:
            self._context.account.begin_at(state)

    def errors(self) -> list[FailedRecord]:
        account = self._context.account
        return [] if account is None else account.records

    def report(self) -> Any:
        if self.user and turns.user_of(self) is not None:
            return self.last_report()  # It must not wait for `next` in another thread.
        return self._report()  # Elements that the consumer has not got yet are not counted.

    @turns.in_turn
    def _report(self) -> Any:
        self.mend()
        return self._where_it_stands(self._output.report)

    def last_report(self) -> Any:
        """Return a report without waiting for the run, which another thread may be moving."""
        return self._output.report()

    def glance(self) -> Glance:
        """Return what others may see while the run moves."""
        return Glance(self)

    @property
    def is_closed(self) -> bool:
        """Whether `close` was called."""
        return self._closed

    def get_report(self) -> Any:
        return self._output.get_report()

    def catch_up(self) -> None:
        self._output.catch_up()

    def progress(self) -> Any:
        return self._output.progress()

    def __str__(self) -> str:
        return str(self._output)
