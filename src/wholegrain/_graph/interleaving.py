"""What an iterator of interleaved datasets keeps besides the open ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic

from wholegrain._core.types import State, T
from wholegrain._graph.iterator import DatasetIterator
from wholegrain._graph.open_ahead import OpenAhead
from wholegrain._graph.pace import Pace
from wholegrain._read.waiting import Probe
from wholegrain._state.interleave import Cycle
from wholegrain._state.validate import copy_state


class Upcoming(Generic[T]):
    """The datasets that are not open yet, in order.

    Args:
        open_dataset: Returns an iterator of a dataset; None if the dataset is missing.
        count: The number of datasets.
        ahead: How many datasets are opened ahead, and by how many threads.
    """

    def __init__(
        self,
        open_dataset: Callable[[int], DatasetIterator[T] | None],
        count: int,
        ahead: tuple[int, int],
    ) -> None:
        self._num_ahead, num_threads = ahead
        self.opener: OpenAhead[T] = OpenAhead(open_dataset, num_threads)
        self.count = count
        self.start_over()

    def start_over(self) -> None:
        """Continue with the first dataset."""
        self.next = 0
        self._states: dict[int, State] = {}  # At which some of them start.
        self._ended: set[int] = set()  # Datasets that have ended and are not opened.

    def go_to(self, cycle: Cycle) -> None:
        """Continue where a state says."""
        self.next = cycle.next_dataset
        self._states, self._ended = cycle.future_states, cycle.ended_datasets

    @property
    def are_left(self) -> bool:
        """Whether there may be datasets to open."""
        return self.next < self.count

    def open_next(self) -> tuple[int, DatasetIterator[T]] | None:
        """Open the next dataset that is not missing; return its number and iterator."""
        while self.next < self.count:
            number = self.next
            self.next += 1
            iterator = None if number in self._ended else self.opener.open(number)
            if iterator is not None:
                state = self._states.pop(number, None)
                if state is not None:
                    iterator.set_state(state)
                return number, iterator
        return None

    def open_ahead(self) -> None:
        """Start opening the next datasets in threads."""
        last = min(self.next + self._num_ahead, self.count)
        self.opener.start(sorted(set(range(self.next, last)) - self._ended))

    def states(self) -> dict[int, State] | None:
        """Return the states at which some of them start, for a state of the iterator."""
        return copy_state(self._states) if self._states else None

    def ended(self) -> list[int] | None:
        """Return those that have ended, if they are not known to by their number."""
        ended = self._ended
        return sorted(ended) if ended and max(ended) >= self.next else None


class Reading:
    """How the open datasets are read.

    Args:
        ahead: Whether threads read ahead, even if reading does not block.
        share: How many datasets are open, which share the limits of one chunk.

    Attributes:
        ahead: Whether threads read ahead.
        probe: Measures whether reading blocks.
        pace: How many elements of a dataset are read at a time, while threads do not read ahead.
    """

    __slots__ = ("ahead", "pace", "probe")

    def __init__(self, ahead: bool, share: int) -> None:
        self.ahead = ahead
        self.probe = Probe()
        self.pace = Pace(share)
