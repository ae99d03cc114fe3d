"""The chunks that reader threads have claimed, in the order in which the consumer takes them."""

import itertools
from collections import deque
from collections.abc import Sequence
from typing import Any

UNREAD: list[Any] = []
"""Marks a chunk that a thread failed to read, so that the consumer has to read it itself."""


class Ticket:
    """A chunk that a thread has claimed."""

    __slots__ = ("chunk", "error", "stop")

    def __init__(self, stop: int) -> None:
        self.stop = stop
        self.chunk: Sequence[Any] | None = None
        self.error: BaseException | None = None

    def take_error(self) -> BaseException | None:
        """Return the exception out of the read, the first time that this is called."""
        error, self.error = self.error, None
        return error


class ChunkQueue:
    """Positions `taken..next_start` as chunks: finished, or being read by a thread.

    The tickets cover these positions in order and without gaps, so `taken <= next_start <= stop`,
    and the two are equal if there is no ticket. The caller holds a lock if threads are running.

    Args:
        start: The first position.
        stop: The position after the last.

    Attributes:
        tickets: The claimed chunks.
        stop: The position after the last.
        next_start: The first position that nobody has claimed.
        taken: The position after the last chunk that the consumer has.
    """

    def __init__(self, start: int, stop: int) -> None:
        self.tickets: deque[Ticket] = deque()
        self.stop = stop
        self.next_start = self.taken = start
        self._held = 0  # How many elements the consumer's last chunk has.

    @property
    def head(self) -> Ticket | None:
        """The chunk that the consumer needs next, if it is claimed."""
        return self.tickets[0] if self.tickets else None

    @property
    def has_ready_chunk(self) -> bool:
        """Whether the consumer can take a chunk, or has to read the first one itself."""
        return bool(self.tickets) and self.tickets[0].chunk is not None

    @property
    def has_unclaimed(self) -> bool:
        """Whether there are positions that nobody has claimed."""
        return self.next_start < self.stop

    @property
    def ready_count(self) -> int:
        """How many of the next elements have been read."""
        done = itertools.takewhile(lambda ticket: ticket.chunk is not None, self.tickets)
        return sum(len(ticket.chunk or ()) for ticket in done)

    def claim(self, size: int, most_ahead: int) -> tuple[Ticket, bool] | None:
        """Claim the next chunk; return None if the consumer has to take another one first.

        Args:
            size: How many elements it should have.
            most_ahead: How many elements may be claimed that the consumer is not working on.

        Returns:
            The ticket, and whether there is room for another one.
        """
        start = self.next_start
        # The consumer works on one element; the others of its chunk count as read ahead.
        held = min(self._held, most_ahead)
        room = most_ahead - max(0, held - 1) - (start - self.taken)
        if room <= 0:
            return None
        ticket = Ticket(min(start + min(size, room), self.stop))
        self.tickets.append(ticket)
        self.next_start = ticket.stop
        return ticket, room > ticket.stop - start

    def hand_out(self) -> tuple[int, Any]:
        """Remove the first chunk; return the position after it, and the chunk."""
        ticket = self.tickets.popleft()
        self._held = ticket.stop - self.taken
        self.taken = ticket.stop
        return ticket.stop, ticket.chunk

    def pass_over(self, stop: int) -> None:
        """Record that the consumer has read up to `stop` itself. There must be no tickets."""
        self._held = stop - self.taken
        self.next_start = self.taken = stop
