"""What the consumer sees of a pool of workers between two decisions about their number."""

import time
from collections.abc import Callable

from wholegrain._read.controller import Controller, Observation

_MEMORY_EVERY_S = 0.5


class Load:
    """Measures for the controller. The time before the first element is start-up and not measured.

    Args:
        controller: Decides how many workers there should be.
    """

    def __init__(self, controller: Controller) -> None:
        self._controller = controller
        self._since: float | None = None
        self._worker_bytes = 0
        self._weighed_at = 0.0
        self._open_window(None)

    def _open_window(self, now: float | None) -> None:
        self._since, self._waited, self._given, self._was_full = now, 0.0, 0, False

    def note_given(self, count: int) -> None:
        """Record that elements are handed out."""
        if self._since is None:
            self._open_window(time.perf_counter())
        else:
            self._given += count

    def note_waited(self, seconds: float) -> None:
        """Record that the consumer waited."""
        self._waited += seconds

    def note_full(self) -> None:
        """Record that workers are idle because the buffer has no room for another span."""
        self._was_full = True

    def note_starting(self) -> None:
        """Measure again from now on: a worker is starting, so its effect cannot be seen yet."""
        if self._since is not None:
            self._open_window(time.perf_counter())

    def consider(self, nbytes: int, weigh: Callable[[], int]) -> None:
        """Let the controller decide, if enough was measured.

        Args:
            nbytes: How many bytes the elements occupy that are ready or being made.
            weigh: Returns how much memory the workers use.
        """
        if self._since is None:
            return
        now = time.perf_counter()
        seconds = now - self._since
        if not self._controller.is_due(seconds, self._given):
            return
        if now - self._weighed_at > _MEMORY_EVERY_S:
            self._weighed_at = now
            self._worker_bytes = weigh()
        self._controller.learn(
            Observation(
                seconds, self._waited, self._given, self._was_full, nbytes, self._worker_bytes
            )
        )
        self._open_window(now)
