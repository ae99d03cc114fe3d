"""Requests to object stores: many at a time, each repeated until it succeeds or is hopeless.

All requests of a process share a bounded number of threads, each with a connection. So a thousand
sources need no more of them than one. A reader waits for its requests in its own thread, where a
signal can interrupt it.
"""

from __future__ import annotations

import contextlib
import os
import random
import re
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, InvalidStateError, wait
from typing import Any, Generic, TypeVar

from wholegrain._core.interruption import is_interruption
from wholegrain._core.log import logger
from wholegrain._read import shutdown
from wholegrain.sources.remote_options import RemoteOptions, options_for, without_user

T = TypeVar("T")

Send = Callable[[], T]
"""Sends a request and returns the answer; called again for every attempt."""

# How long a thread without work waits for some before it ends.
_IDLE_S = 30.0
# The average first pause. Later ones double, up to `RemoteOptions.max_pause_s`.
_FIRST_PAUSE_S = 0.2
# How long a read may take before a log line says what it waits for, and how often it says so again.
_QUIET_S = 5.0
# How often a reader looks at most whether one of its requests has to be sent a second time.
_LOOK_S = 0.05
# How long after the deadline and two time-outs a reader gives up itself, because the library that
# sends its request does not keep to its time-out. A busy machine may be late by seconds.
_GRACE_S = 10.0
_STATUS = re.compile(r"status code: (\d{3})")
_WORTH_RETRYING = {408, 425, 429}
_FINAL_TYPES = (FileNotFoundError, PermissionError, ImportError, TypeError, ValueError)
_FINAL_NAMES = {
    *("NotFoundError", "PermissionDeniedError", "UnauthenticatedError", "InvalidPathError"),
    *("NotSupportedError", "PreconditionError", "UnknownConfigurationKeyError"),
    *("NoCredentialsError", "ParamValidationError", "ChangedError"),
}


class UnansweredError(Exception):
    """All attempts at a request have failed."""

    @classmethod
    def after(cls, attempts: int, elapsed_s: float, problem: str) -> UnansweredError:
        """Return the error for a request that has taken too long."""
        return cls(
            f"{problem}, after {attempts} attempts in {elapsed_s:.0f} s;"
            " `RemoteOptions(deadline_s=...)` sets how long to try"
        )


def is_final(error: BaseException) -> bool:
    """Return whether the same request would fail again with the same error."""
    if type(error).__name__ in _FINAL_NAMES or isinstance(error, _FINAL_TYPES):
        return True
    status = _STATUS.search(str(error))
    if status is None:
        return "builder error" in str(error)  # The request cannot be made from the settings.
    code = int(status[1])
    return 400 <= code < 500 and code not in _WORTH_RETRYING


def answer(error: BaseException) -> str:
    """Return what a store answered, in one line and without the library's own dump."""
    if isinstance(error, TimeoutError):
        return "no answer in time"
    text = str(error).partition("\n\nDebug source:")[0]
    return without_user(re.sub(r"\s+", " ", text).strip())[:500] or type(error).__name__


class _Request(Generic[T]):
    """One request and its answer. Up to two threads send it, each until it is answered."""

    def __init__(self, url: str, options: RemoteOptions, send: Send[T]) -> None:
        self.options = options
        self.answer: Future[T] = Future()
        self.made_at = time.monotonic()
        self.sent_at: float | None = None
        self.senders = 0
        self.attempts = 0  # of all senders
        self._url = url
        self._send = send
        self._lock = threading.Lock()
        self._told_at = self.made_at

    def add_sender(self) -> None:
        """Count a thread that is going to call `run`."""
        with self._lock:
            self.senders += 1

    def run(self) -> None:
        """Send the request until there is an answer. An error counts if no other thread sends."""
        try:
            found = self._persist()
        except BaseException as error:
            with self._lock:
                self.senders -= 1
                if self.senders == 0:
                    with contextlib.suppress(InvalidStateError):
                        self.answer.set_exception(error)
        else:
            with contextlib.suppress(InvalidStateError):  # The other thread was quicker.
                self.answer.set_result(found)

    def _persist(self) -> T:
        """Send until the answer is there, an error is final, or the deadline has passed."""
        attempt = 0
        while not self.answer.done():  # It is, too, if nobody waits for it any more.
            attempt += 1
            self.attempts += 1
            self.sent_at = self.sent_at or time.monotonic()
            try:
                return self._send()
            except Exception as error:
                now = time.monotonic()
                if is_final(error) or self.answer.done() or shutdown.exiting.is_set():
                    raise
                left = self.sent_at + self.options.deadline_s - now
                if left <= 0:
                    raise UnansweredError.after(
                        self.attempts, now - self.sent_at, answer(error)
                    ) from error
                self._tell(error, attempt, now)
            most = min(self.options.max_pause_s, _FIRST_PAUSE_S * 2**attempt)
            time.sleep(min(left, random.uniform(0, most)))  # The last attempt is at the deadline.
        raise UnansweredError("nobody waits for the answer any more")

    def _tell(self, error: Exception, attempt: int, now: float) -> None:
        if now - self._told_at >= _QUIET_S:
            self._told_at = now
            logger().warning(
                "%s: %s. Attempt %d has failed after %.0f s; trying again until %.0f s have"
                " passed.",
                *(self._url, answer(error), attempt, now - (self.sent_at or now)),
                self.options.deadline_s,
            )


class Requests:
    """The threads of this process that send requests, started when they are needed."""

    def __init__(self) -> None:
        self._most = options_for("").max_connections
        self._ready = threading.Condition()
        # None ends one thread. All threads see everything that is queued, and only under the lock.
        self._queue: deque[_Request[Any] | None] = deque()
        self._threads: set[threading.Thread] = set()
        self._idle = 0
        self._taken_at = time.monotonic()
        shutdown.stop_at_exit(self, Requests._stop)

    def all(self, url: str, options: RemoteOptions, sends: Sequence[Send[T]]) -> list[T]:
        """Return the answers to several requests about the object at `url`."""
        requests = [_Request(url, options, send) for send in sends]
        try:
            for request in requests:
                self._submit(request)
            waiting = requests
            while waiting:
                pause = max(_LOOK_S, min(self._look(request) for request in waiting))
                done, _ = wait([request.answer for request in waiting], pause, FIRST_EXCEPTION)
                for future in done:
                    future.result()  # raises if it failed
                waiting = [request for request in waiting if request.answer not in done]
            return [request.answer.result() for request in requests]
        finally:
            for request in requests:
                request.answer.cancel()  # Nothing more is sent for it.

    def one(self, url: str, options: RemoteOptions, send: Send[T]) -> T:
        """Return the answer to a request about the object at `url`."""
        return self.all(url, options, [send])[0]

    def _look(self, request: _Request[Any]) -> float:
        """Send a request a second time if it is slow, and return when to look again, in seconds."""
        now = time.monotonic()
        # A request that waits for a thread is not late as long as threads take requests.
        began = request.sent_at or max(request.made_at, self._taken_at)
        # The last attempt begins at the deadline, and connects and reads within a time-out each. A
        # library that does not keep to its time-out must not keep the reader.
        options = request.options
        left = began + options.deadline_s + 2 * options.timeout_s + _GRACE_S - now
        if left <= 0 and not request.answer.done():
            raise UnansweredError.after(request.attempts, now - began, "no answer in time")
        hedge_after = options.hedge_after_s
        if hedge_after is None or request.senders > 1:
            return left
        if request.sent_at is None:
            return min(left, hedge_after)
        late = now - request.sent_at - hedge_after
        if late < 0:
            return min(left, -late)
        self._submit(request)
        return left

    def _submit(self, request: _Request[Any]) -> None:
        with self._ready:
            request.add_sender()
            self._queue.append(request)
            if len(self._queue) > self._idle and len(self._threads) < self._most:
                self._start_thread()
            self._ready.notify()

    def _start_thread(self) -> None:
        thread = threading.Thread(target=self._run, name="wholegrain-remote", daemon=True)
        self._threads.add(thread)
        try:
            thread.start()
        except BaseException as error:
            if not thread.is_alive():
                self._threads.discard(thread)
            is_refused = isinstance(error, RuntimeError) and not is_interruption(error)
            if not is_refused or not self._threads:
                raise  # Otherwise, the threads that there are do the work.

    def _run(self) -> None:
        while (request := self._take()) is not None:
            request.run()
            del request  # Or the answer would stay until the next request.

    def _take(self) -> _Request[Any] | None:
        """Return the next request; None if this thread has to end."""
        with self._ready:
            self._idle += 1
            has_work = self._ready.wait_for(lambda: self._queue, _IDLE_S)
            self._idle -= 1
            request = self._queue.popleft() if has_work else None
            self._taken_at = time.monotonic()
            if request is None:
                self._threads.discard(threading.current_thread())
            return request

    def _stop(self) -> None:
        with self._ready:
            self._queue.extend([None] * len(self._threads))
            self._ready.notify_all()


_lock = threading.Lock()
_requests: tuple[int, Requests] | None = None


def _after_fork() -> None:
    global _lock
    _lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def requests() -> Requests:
    """Return the requests of this process. A forked child gets its own."""
    global _requests
    with _lock:
        if _requests is None or _requests[0] != os.getpid():
            _requests = (os.getpid(), Requests())
        return _requests[1]
