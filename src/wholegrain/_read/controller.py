"""Adapts the number of workers while they run."""

import dataclasses

from wholegrain._read.hill_climb import HillClimb

_WINDOW_S = 0.1
"""How long to measure before a decision."""

_LONGEST_WINDOW_S = 2.0
"""The longest measurement, if elements are so slow that few arrive."""

_STARVED = 0.1
"""A consumer that waits for more than this share of the time has too few workers."""

_SATED = 0.02
"""A consumer that waits for less than this share of the time has enough workers, or too many."""

_WINDOWS_TO_SHRINK = 8
_FIRST_REST = 8
_LONGEST_REST = 512
_LARGEST_ROOM = 64


@dataclasses.dataclass(slots=True)
class Observation:
    """The measurements since the last decision.

    Args:
        seconds: The length of the measurement.
        waited: How many of these seconds the consumer waited for an element.
        given: How many elements the consumer received.
        was_full: Whether workers were idle because the buffer was full.
        buffered_bytes: The memory of elements that are ready or being made.
        worker_bytes: The memory of all workers.
    """

    seconds: float
    waited: float
    given: int
    was_full: bool
    buffered_bytes: int
    worker_bytes: int


class Controller:
    """Adds workers while the consumer waits and more workers help; removes superfluous ones.

    It affects only speed: the caller ensures that elements and their order do not depend on the
    number of workers.

    Args:
        most_workers: The largest number of workers.
        most_bytes: How much memory workers and elements may use together.
        grows_room: Whether the buffer may grow beyond its initial size.
    """

    def __init__(self, most_workers: int, most_bytes: int, *, grows_room: bool) -> None:
        self._most_workers = most_workers
        self._most_bytes = most_bytes
        self._grows_room = grows_room
        self.room = 1
        """The factor by which the initial size of the buffer may grow."""
        self._climb = HillClimb(1, first_rest=_FIRST_REST, longest_rest=_LONGEST_REST)
        self._sated = 0
        self._skip = 0

    @property
    def wanted(self) -> int:
        """How many workers there should be."""
        return self._climb.count

    @property
    def is_watching(self) -> bool:
        """Whether more workers may be added if the consumer keeps waiting."""
        return self.wanted < self._most_workers

    def is_due(self, seconds: float, given: int) -> bool:
        """Return whether a measurement of this length and number of elements is sufficient."""
        return seconds >= _WINDOW_S and (given > 2 * self.wanted or seconds >= _LONGEST_WINDOW_S)

    def learn(self, seen: Observation) -> None:
        """Adapt the number of workers to a measurement."""
        if self._skip:
            self._skip -= 1  # A new worker has to start first, or an old one to finish.
            return
        if seen.buffered_bytes + seen.worker_bytes > self._most_bytes:
            self._save_memory(seen)
            return
        waited = seen.waited / seen.seconds
        rate = seen.given / seen.seconds
        if self._climb.trial:
            self._judge_trial(waited, rate)
        elif waited > _STARVED:
            self._sated = 0
            self._want_more(seen, rate)
        elif waited < _SATED and seen.given:
            self._sated += 1
            may_shrink = self.wanted > 1 and not self._climb.is_resting
            if self._sated >= _WINDOWS_TO_SHRINK and may_shrink:
                self._sated = 0
                self._try(self.wanted - 1, rate)
        self._climb.pass_window()

    def _want_more(self, seen: Observation, rate: float) -> None:
        if seen.was_full and self._grows_room and self.room < _LARGEST_ROOM:
            if seen.worker_bytes + 2 * seen.buffered_bytes <= self._most_bytes:
                self.room *= 2
            return
        if self._climb.is_resting or self.wanted >= self._most_workers:
            return
        more = min(2 * self.wanted, self._most_workers)
        each = seen.worker_bytes / self.wanted
        while more > self.wanted and seen.buffered_bytes + each * more > self._most_bytes:
            more -= 1
        if more > self.wanted:
            self._try(more, rate)

    def _try(self, count: int, rate: float) -> None:
        self._climb.attempt(count, rate)
        self._skip = 1

    def _judge_trial(self, waited: float, rate: float) -> None:
        if self._climb.trial > 1:
            # Require at least a third of the ideal speed-up.
            needed = 1 + (self._climb.trial - 1) / 3
            keep = waited <= _STARVED or self._climb.has_gained(rate, needed)
        else:
            keep = waited <= _SATED
        self._climb.end_trial(keep=keep)
        self._skip = 0 if keep else 1

    def _save_memory(self, seen: Observation) -> None:
        self._climb.drop_trial()
        if seen.buffered_bytes > seen.worker_bytes and self.room > 1:
            self.room //= 2
        elif self.wanted > 1:
            self._climb.go_back(self.wanted - 1)
            self._skip = 1
