"""An iterator that one thread runs ahead of the consumer."""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from wholegrain._read import forks
from wholegrain._read.caution import is_careful
from wholegrain._read.shutdown import stop_at_exit

QUICK_SECONDS = 5e-5
"""Steps that take less CPU time than this are not worth a thread."""

_KEPT = 7 / 8
"""How much earlier steps count when it is judged whether steps are quick."""

Step = Callable[[], tuple[Any, Any]]
"""Advances the iterator: returns the element, and the state after it."""


class _Raised:
    """An exception that is passed to the consumer instead of an element."""

    __slots__ = ("error",)

    def __init__(self, error: BaseException) -> None:
        self.error = error


class Background:
    """Runs `step` in a thread, up to `buffer_size` results ahead of the consumer.

    The thread ends with the first exception, which the consumer receives in order. The thread keeps
    this object alive, so the consumer has to be another object that calls `stop`.

    Args:
        step: Called repeatedly in the thread.
        state: Called after a step that raised, for the state after it. If that raises too, the
            state is None.
        buffer_size: How many finished results may wait.
        steps_to_judge: After every so many steps, the thread ends if they took less CPU time than
            `QUICK_SECONDS` each, because the hand-over costs more than it saves. 0 for never.

    Attributes:
        results: The results that are ready. Use `take` to get one.
    """

    def __init__(
        self, step: Step, state: Callable[[], Any], buffer_size: int, steps_to_judge: int = 0
    ) -> None:
        self._step = step
        self._state = state
        self._buffer_size = buffer_size
        self._steps_to_judge = steps_to_judge
        self._retired = False
        self.results: deque[tuple[Any, Any]] = deque()
        # Reentrant, because the garbage collector may call `stop` at any time.
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._consumer_waits = False
        self._producer_waits = False
        self._stopped = False
        self._parent: int | None = None  # In a forked child, the process that has the thread.
        self._thread = threading.Thread(target=self._run, name="wholegrain-ahead_0", daemon=True)

    def start(self) -> None:
        """Start the thread. If this is interrupted, the caller can already call `stop`."""
        stop_at_exit(self, lambda run: run.stop(wait=False))
        forks.call_in_child(self, Background._leave_to_parent)
        self._thread.start()

    def _leave_to_parent(self) -> None:
        """Stop in a forked child, which does not have the thread and may find the lock held."""
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        if not self._retired and not self._stopped:
            self._parent, self._stopped = os.getppid(), True
            self.results.clear()

    def _run(self) -> None:
        results, step = self.results, self._step
        steps, cpu = 0, time.thread_time()
        spent = counted = 0.0
        while not self._stopped:
            if is_careful():
                self._wait_for_consumer()
            try:
                result = step()
            except BaseException as error:
                result = (_Raised(error), self._state_after_error())
            # Appending and popping are atomic. The lock is only needed for waiting.
            results.append(result)
            ended = type(result[0]) is _Raised
            del result  # Avoids a reference cycle: the error's traceback refers to this frame.
            if self._consumer_waits:
                with self._lock:
                    self._changed.notify_all()
            if ended:
                return
            steps += 1
            if steps == self._steps_to_judge:
                before, cpu = cpu, time.thread_time()
                # A step may make many elements at once, which the next steps only hand out.
                spent = _KEPT * spent + cpu - before
                counted = _KEPT * counted + steps
                if spent < counted * QUICK_SECONDS:
                    self._retire()
                    return
                steps = 0
            if len(results) >= self._buffer_size:
                with self._lock:
                    self._producer_waits = True
                    while len(results) >= self._buffer_size and not self._stopped:
                        self._changed.wait()
                    self._producer_waits = False

    def _wait_for_consumer(self) -> None:
        """Wait until the consumer needs the next result."""
        with self._lock:
            self._producer_waits = True
            while not self._stopped and (self.results or not self._consumer_waits):
                self._changed.wait()
            self._producer_waits = False

    def _retire(self) -> None:
        with self._lock:
            self._retired = True
            self._changed.notify_all()

    def _state_after_error(self) -> Any:
        """Return the state after a step that raised, or None if there is none."""
        try:
            return self._state()
        except Exception:
            return None

    def take(self) -> Any:
        """Return the next result with its state; `error_of` finds an exception in it.

        None means that steps are quick and that the thread has ended after the last result.

        Raises:
            RuntimeError: If `stop` was called, and no result is left.
        """
        results = self.results
        if not results:
            with self._lock:
                self._consumer_waits = True
                if self._producer_waits:
                    self._changed.notify_all()
                # Check again after setting the flag. The producer appends first and then checks
                # the flag, so no wake-up is lost.
                while not results and not self._stopped and not self._retired:
                    self._changed.wait()
                self._consumer_waits = False
            if not results and self._retired:
                return None
            if not results and self._parent is not None:
                raise forks.used_in_child_error(self._parent)
            if not results:
                raise RuntimeError("The thread has been stopped.")
        result = results.popleft()
        if self._producer_waits:
            with self._lock:
                self._changed.notify_all()
        return result

    @staticmethod
    def error_of(element: Any) -> BaseException | None:
        """Return the exception that was raised instead of an element, or None."""
        return element.error if type(element) is _Raised else None

    def set_buffer_size(self, buffer_size: int) -> None:
        """Change how many finished results may wait."""
        with self._lock:
            self._buffer_size = buffer_size
            self._changed.notify_all()

    def stop(self, wait: bool = True) -> None:
        """End the thread after its current step, and wait for it if `wait` is true."""
        with self._lock:
            self._stopped = True
            self._changed.notify_all()
        if wait and self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join()
