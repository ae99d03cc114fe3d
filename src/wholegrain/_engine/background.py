"""An iterator run ahead by one thread."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Any

from wholegrain._engine.ending import stop_at_exit

Step = Callable[[], tuple[Any, Any]]
"""Advances the iterator: returns the element, and the state behind it."""


class _Raised:
    """An exception on its way to the consumer, with the state behind it."""

    __slots__ = ("error",)

    def __init__(self, error: BaseException) -> None:
        self.error = error


class Background:
    """Runs `step` in a thread, up to `buffer_size` results ahead of the consumer.

    The thread ends with the first exception, which arrives in its place. It keeps this object
    alive, so the consumer has to be another one, and to call `stop`.

    Args:
        step: Called in the thread, again and again.
        state: Called after a step that raised, for the state behind it. If that raises too,
            the state is None.
        buffer_size: How many finished results may wait.
    """

    def __init__(self, step: Step, state: Callable[[], Any], buffer_size: int) -> None:
        self._step = step
        self._state = state
        self._buffer_size = buffer_size
        self.results: deque[tuple[Any, Any]] = deque()
        """Those that are ready: to be taken with `take`."""
        # Reentrant, because the garbage collector may call `stop` at any time.
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._consumer_waits = False
        self._producer_waits = False
        self._stopped = False
        self._thread = threading.Thread(target=self._run, name="wholegrain-ahead_0", daemon=True)
        self._thread.start()
        stop_at_exit(self, lambda run: run.stop(wait=False))

    def _run(self) -> None:
        results, step = self.results, self._step
        while not self._stopped:
            try:
                result = step()
            except BaseException as error:
                result = (_Raised(error), self._state_behind())
            # Appending and popping are atomic; the lock is only for those who wait.
            results.append(result)
            ended = type(result[0]) is _Raised
            del result  # An error knows this frame: it must not know the error, or neither goes.
            if self._consumer_waits:
                with self._lock:
                    self._changed.notify_all()
            if ended:
                return
            if len(results) >= self._buffer_size:
                with self._lock:
                    self._producer_waits = True
                    while len(results) >= self._buffer_size and not self._stopped:
                        self._changed.wait()
                    self._producer_waits = False

    def _state_behind(self) -> Any:
        """Return the state behind a step that raised; None if there is none."""
        try:
            return self._state()
        except Exception:
            return None

    def take(self) -> tuple[Any, Any]:
        """Return the next result; raise the exception that ended the thread."""
        results = self.results
        if not results:
            with self._lock:
                self._consumer_waits = True
                # Looked at again after the flag is set: the producer looks at it after adding.
                while not results and not self._stopped:
                    self._changed.wait()
                self._consumer_waits = False
        result = results.popleft()
        if self._producer_waits:
            with self._lock:
                self._changed.notify_all()
        return result

    @staticmethod
    def error_of(element: Any) -> BaseException | None:
        """Return the exception that stands in an element's place, if one does."""
        return element.error if type(element) is _Raised else None

    def stop(self, wait: bool = True) -> None:
        """End the thread after its current step; wait for it unless told not to."""
        with self._lock:
            self._stopped = True
            self._changed.notify_all()
        if wait and self._thread is not threading.current_thread():
            self._thread.join()
