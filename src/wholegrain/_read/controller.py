"""How many workers there should be, found out while they work."""

import dataclasses

_WINDOW_S = 0.1
"""How long things are watched before they are judged."""

_LONGEST_WINDOW_S = 2.0
"""The same where elements come so slowly that there were too few to tell."""

_STARVED = 0.1
"""A consumer that waits for this share of the time has too few workers."""

_SATED = 0.02
"""One that waits for less than this has enough, or too many."""

_WINDOWS_TO_SHRINK = 8
_FIRST_REST = 8
_LONGEST_REST = 512
_LARGEST_ROOM = 64


@dataclasses.dataclass(slots=True)
class Observation:
    """What was seen since the last one.

    Args:
        seconds: How long that is.
        waited: How many of them the consumer waited for an element.
        given: How many elements it got.
        was_full: Whether workers had nothing to do because there was no room for more elements.
        buffered_bytes: The memory of elements that are ready or on their way.
        worker_bytes: The memory of all workers.
    """

    seconds: float
    waited: float
    given: int
    was_full: bool
    buffered_bytes: int
    worker_bytes: int


class Controller:
    """Adds workers while the consumer waits and that helps, and removes what is not needed.

    It changes nothing but speed: the caller sees to it that elements and their order do not
    depend on who makes them.

    Args:
        most_workers: How many there may be.
        most_bytes: How much memory workers and elements may take.
        grows_room: Whether more elements may be held ready than at first, too.
    """

    def __init__(self, most_workers: int, most_bytes: int, *, grows_room: bool) -> None:
        self._most_workers = most_workers
        self._most_bytes = most_bytes
        self._grows_room = grows_room
        self.wanted = 1
        """How many workers there should be."""
        self.room = 1
        """How many times as many elements as at first may be held ready."""
        self._before = 0  # How many there were before the try that is under way; 0 if none is.
        self._rate_before = 0.0
        self._rest = 0  # For so many windows nothing is tried.
        self._next_rest = _FIRST_REST
        self._sated = 0
        self._skip = 0

    @property
    def is_watching(self) -> bool:
        """Whether it might want more workers, if the consumer goes on waiting."""
        return self.wanted < self._most_workers

    def is_due(self, seconds: float, given: int) -> bool:
        """Say whether so much time, in which so many elements came, is enough to judge by."""
        return seconds >= _WINDOW_S and (given > 2 * self.wanted or seconds >= _LONGEST_WINDOW_S)

    def learn(self, seen: Observation) -> None:
        """Judge what was seen."""
        if self._skip:
            self._skip -= 1  # A new worker has to start, and an old one to finish.
            return
        if seen.buffered_bytes + seen.worker_bytes > self._most_bytes:
            self._save_memory(seen)
            return
        waited = seen.waited / seen.seconds
        rate = seen.given / seen.seconds
        if self._before:
            self._judge_try(waited, rate)
        elif waited > _STARVED:
            self._sated = 0
            self._want_more(seen, rate)
        elif waited < _SATED and seen.given:
            self._sated += 1
            if self._sated >= _WINDOWS_TO_SHRINK and self.wanted > 1 and not self._rest:
                self._sated = 0
                self._try(self.wanted - 1, rate)
        self._rest = max(0, self._rest - 1)

    def _want_more(self, seen: Observation, rate: float) -> None:
        if seen.was_full and self._grows_room and self.room < _LARGEST_ROOM:
            if seen.worker_bytes + 2 * seen.buffered_bytes <= self._most_bytes:
                self.room *= 2
            return
        if self._rest or self.wanted >= self._most_workers:
            return
        more = min(2 * self.wanted, self._most_workers)
        each = seen.worker_bytes / self.wanted
        while more > self.wanted and seen.buffered_bytes + each * more > self._most_bytes:
            more -= 1
        if more > self.wanted:
            self._try(more, rate)

    def _try(self, count: int, rate: float) -> None:
        self._before, self._rate_before = self.wanted, rate
        self.wanted = count
        self._skip = 1

    def _judge_try(self, waited: float, rate: float) -> None:
        before, self._before = self._before, 0
        if self.wanted > before:
            # At least a third of what each one more could do.
            needed = 1 + (self.wanted / before - 1) / 3
            if waited > _STARVED and rate < needed * self._rate_before:
                self._go_back(before)
            else:
                self._next_rest = _FIRST_REST
        elif waited > _SATED:
            self._go_back(before)

    def _go_back(self, count: int) -> None:
        self.wanted = count
        self._skip = 1
        self._rest = self._next_rest
        self._next_rest = min(2 * self._next_rest, _LONGEST_REST)

    def _save_memory(self, seen: Observation) -> None:
        self._before = 0
        if seen.buffered_bytes > seen.worker_bytes and self.room > 1:
            self.room //= 2
        elif self.wanted > 1:
            self._go_back(self.wanted - 1)
