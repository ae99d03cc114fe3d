"""How long rows take, for the report of a run that consists of nothing but them."""

import contextlib
import time
from collections.abc import Iterator
from typing import Any

from wholegrain._core.rows import MADE_TOGETHER

# So many rows are made for the clock alone, before so many others.
TIMED_ROWS = max(64, MADE_TOGETHER)
_ROWS_BETWEEN = 100 * TIMED_ROWS


class RowTimes:
    """Notes when rows are read, and how many were made since: no row has a clock of its own.

    Args:
        observed: What is seen of the run.
        dataset: Its only stage.
    """

    def __init__(self, observed: Any, dataset: Any) -> None:
        self._observed = observed
        self._times = observed.times_of(dataset)
        self._row_s = 0.0
        self._given = 0  # of those that were read last
        self._seen = time.perf_counter()
        self._rows_until_timed = 0

    @contextlib.contextmanager
    def reading(self) -> Iterator[None]:
        """Read more rows."""
        start, computed = time.perf_counter(), time.process_time()
        self._observed.entered(start)
        try:
            yield
        finally:
            self._given = 0
            self._seen = end = time.perf_counter()
            self._times.own += end - start
            # Others may decode meanwhile: that is no idle waiting.
            self._times.computing += min(end - start, time.process_time() - computed)
            self._observed.left(end, end - start)

    def note(self, given: int) -> None:
        """Note how many rows were given since the last were read."""
        now = time.perf_counter()
        count = max(0, given - self._given)
        seconds = min(count * self._row_s, now - self._seen)
        self._given, self._seen = given, now
        self._rows_until_timed -= count
        self._times.elements += count
        self._times.own += seconds
        self._times.computing += seconds
        # It will be found to have passed between two reads.
        self._observed.consumer.note_wait(seconds)

    @property
    def asks_for_clock(self) -> bool:
        """Whether it is time to see again what a row takes."""
        return self._rows_until_timed <= 0

    @contextlib.contextmanager
    def timing(self) -> Iterator[None]:
        """Make `TIMED_ROWS` rows."""
        start = time.perf_counter()
        yield
        self._row_s = (time.perf_counter() - start) / TIMED_ROWS
        self._rows_until_timed = _ROWS_BETWEEN
