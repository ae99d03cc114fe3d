"""A worker process: runs an iterator and sends its elements.

A worker has two threads. The first runs the iterator, as far ahead of the consumer as back-pressure
allows. The second receives messages from the consumer, and ends the process when the consumer is
gone, whatever the first thread is doing.

A finished element is sent at once, unless elements come so fast that sending would be a large part
of the work. Then they are collected for up to a millisecond. If the next element takes long after
all, the waiting consumer sends `NUDGE`, and the second thread sends the collected elements.
"""

import contextlib
import functools
import os
import pickle
import queue
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable
from typing import Any, NoReturn

from wholegrain._workers import program, startup
from wholegrain._workers.backend import Message
from wholegrain._workers.failures import pack_error
from wholegrain._workers.messages import (
    BEGUN,
    COUNTER,
    END,
    ERROR,
    HELLO,
    MAX_AHEAD,
    MAX_AHEAD_BYTES,
    NUDGE,
    PLAIN,
    RECORDS,
    REPORT,
    REPOSITION,
    SPAN,
    TAKEN,
    Job,
)
from wholegrain._workers.pickling import dumps
from wholegrain._workers.transport import Encoder

_MAX_TOGETHER = 256
_MAX_TOGETHER_BYTES = 1 << 15
_QUICK_S = 500e-6
_MAX_WAIT_S = 1e-3
# Immutable, so that all elements of a message can be pickled together later.
_NUMBERS = frozenset({int, float, bool, type(None), complex})
_STRINGS = frozenset({str, bytes})
_MAX_STRING = 1 << 12
_REPORT_EVERY_S = 0.25


def run_worker(
    packed: bytes, send: Callable[[Message], None], receive: Callable[[], Message]
) -> NoReturn:
    """Run a worker until the consumer is gone. A backend calls this in a process of its own.

    It ends the process, because a pipeline cannot be interrupted in any other way.

    Args:
        packed: The result of `WorkerSpec.packed`.
        send: Sends a message to the consumer. It raises `OSError` if the consumer is gone.
        receive: Waits for a message from the consumer. It raises `EOFError` if the consumer is
            gone. It is called in another thread than `send`.
    """
    job, copy = pickle.loads(packed)
    content = bytearray(copy.inline)
    run(job, send, receive, lambda: program.load(copy, content), lambda: Encoder(None))


def run(
    job: Job,
    send: Callable[[Message], None],
    receive: Callable[[], Message],
    load: Callable[[], program.Factory],
    make_encoder: Callable[[], Encoder],
    on_end: Callable[[], None] = lambda: None,
) -> NoReturn:
    """Run a worker until the consumer is gone.

    Args:
        job: The worker's settings.
        send: Sends a message.
        receive: Waits for a message.
        load: Returns the factory of the iterator.
        make_encoder: Returns the encoder of elements; called after the program is loaded.
        on_end: Called when the consumer is gone.
    """
    try:
        startup.run(job.startup)
        # Workers forked from one process would otherwise draw the same random numbers.
        for name in ("random", "numpy.random"):
            if name in sys.modules:
                sys.modules[name].seed()
        Worker(job, send, receive, on_end).run(load, make_encoder)
    except (EOFError, OSError):
        pass  # The consumer is gone.
    except BaseException:
        traceback.print_exc()
        leave(1)
    leave(0)


def leave(code: int) -> NoReturn:
    """Exit the process at once, from any thread, after flushing the output streams."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    os._exit(code)


class Worker:
    """Runs one iterator for one consumer."""

    def __init__(
        self,
        job: Job,
        send: Callable[[Message], None],
        receive: Callable[[], Message],
        on_end: Callable[[], None],
    ) -> None:
        self._job = job
        self._send_message = send
        self._receive_message = receive
        self._on_end = on_end
        self._encoder: Encoder
        self._commands: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._sending = threading.Lock()
        # Finished elements that were not sent yet, each with its wire state and size. The second
        # thread may send them too, so only the atomic append and popleft are used.
        self._held: deque[tuple[Any, int | bytes, int]] = deque()
        self._held_kind = PLAIN
        self._held_bytes = 0
        self._held_since = 0.0
        self._finished_at = self._begun = 0.0
        self._last_wire_state: int | bytes = b""
        # Back-pressure: elements and bytes ahead of the consumer, and the bytes of each message.
        self._ahead = 2 * job.buffer_size + 1
        self._generation = job.generation
        self._made = 0
        self._taken = 0
        self._bytes_ahead = 0
        self._sent = 0
        self._messages: deque[tuple[int, int]] = deque()
        self._ended = False
        self._spans: deque[tuple[int, bytes, int]] = deque()
        self._singly = job.singly
        self._says_begun = bool(job.singly)
        self._get_report: Callable[[], Any] | None = None
        self._report_at = 0.0

    def run(
        self, load: Callable[[], program.Factory], make_encoder: Callable[[], Encoder]
    ) -> NoReturn:
        """Make the iterator and run it until the process ends."""
        threading.Thread(target=self._listen, name="wholegrain-listen", daemon=True).start()
        self._send((HELLO, os.getpid()))
        job = self._job
        try:
            if job.init_fn is not None:
                pickle.loads(job.init_fn)(job.index, job.count)
            iterator: Any = load()(job.index, job.count)
            if job.state is not None:
                iterator.set_state(pickle.loads(job.state))
        except BaseException as error:
            self._give_up(error)
        # Created after the program is loaded, because it records the classes that came with it.
        self._encoder = make_encoder()
        self._get_report = getattr(iterator, "get_report", None)
        if hasattr(iterator, "next_into"):
            empty = self._encoder.empty
            self._produce(iterator, lambda: iterator.next_into(empty))
        else:
            self._produce(iterator, functools.partial(next, iterator))

    def _produce(self, iterator: program.WorkerIterator, advance: Callable[[], Any]) -> NoReturn:
        no_commands = self._commands.empty
        while True:
            ahead = self._made - self._taken
            if (
                self._ended
                or not no_commands()
                or (
                    ahead >= self._ahead
                    and (ahead >= MAX_AHEAD or self._bytes_ahead >= MAX_AHEAD_BYTES)
                )
            ):
                self._obey(iterator)
                continue
            if self._says_begun:
                self._says_begun = False
                self._send((BEGUN, self._generation))
            try:
                element = advance()
            except StopIteration:
                self._encoder.abandon()
                self._flush()
                self._send_report()
                self._send((END, self._generation, time.perf_counter() - self._begun))
                self._ended = True
            except BaseException as error:
                self._encoder.abandon()
                self._fail(iterator, error)
            else:
                self._add(iterator, element)

    def _add(self, iterator: program.WorkerIterator, element: Any) -> None:
        """Send an element, at once or together with the next ones."""
        kind = type(element)
        try:
            wire_state = _to_wire(iterator.get_state())
            if kind in _NUMBERS or (kind in _STRINGS and len(element) <= _MAX_STRING):
                if self._held_kind != PLAIN:
                    self._flush()
                    self._held_kind = PLAIN
                nbytes = 16 if kind in _NUMBERS else 16 + len(element)
            else:
                if self._held_kind != RECORDS:
                    self._flush()
                    self._held_kind = RECORDS
                element, nbytes = self._encoder.encode(element)
                nbytes += 64
        except BaseException as error:
            self._encoder.abandon()
            self._fail(iterator, error)
            return
        if type(wire_state) is bytes:
            if wire_state == self._last_wire_state:
                wire_state = self._last_wire_state  # One object is pickled once per message.
            else:
                self._last_wire_state = wire_state
                nbytes += len(wire_state)
        self._made += 1
        self._bytes_ahead += nbytes
        now = time.perf_counter()
        if not self._held:
            self._held_bytes = 0
            self._held_since = now
        self._held_bytes += nbytes
        self._held.append((element, wire_state, nbytes))
        if (
            now - self._finished_at > _QUICK_S
            or now - self._held_since > _MAX_WAIT_S
            or len(self._held) >= _MAX_TOGETHER
            or self._held_bytes >= _MAX_TOGETHER_BYTES
            or self._made <= self._singly
        ):
            self._flush()
        self._finished_at = now
        if self._get_report is not None and now > self._report_at:
            self._send_report()
            self._report_at = now + _REPORT_EVERY_S

    def _send_report(self) -> None:
        if self._get_report is not None:
            with contextlib.suppress(Exception):  # A failing report must not stop elements.
                self._send((REPORT, dumps(self._get_report())))

    def _flush(self) -> None:
        """Send all collected elements."""
        with self._sending:
            self._flush_held()

    def _flush_held(self) -> None:
        held = self._held
        some = [held.popleft() for _ in range(len(held))]
        if not some:
            return
        # Layouts of elements that could not be sent wait for the next records.
        layouts = self._encoder.new_layouts
        sent = len(layouts) if self._held_kind == RECORDS else 0
        new = [layouts.popleft() for _ in range(sent)]
        items, wire_states, sizes = zip(*some, strict=True)
        nbytes = sum(sizes)
        self._sent += len(some)
        self._messages.append((self._sent, nbytes))
        message = (self._held_kind, self._generation, new, list(items), list(wire_states), nbytes)
        self._send_locked(message)

    def _send(self, message: Message) -> None:
        with self._sending:
            self._send_locked(message)

    def _send_locked(self, message: Message) -> None:
        try:
            self._send_message(message)
        except OSError:
            leave(0)  # The consumer is gone.

    def _fail(self, iterator: program.WorkerIterator, error: BaseException) -> None:
        """Send an exception instead of an element."""
        _leave_if_asked(error, self._flush)
        self._flush()
        try:
            wire_state: int | bytes | None = _to_wire(iterator.get_state())
        except Exception:
            wire_state = None
        self._made += 1
        self._sent += 1
        # Charge an error the whole byte budget, so that a pipeline that always fails cannot queue
        # 1024 errors.
        self._bytes_ahead += MAX_AHEAD_BYTES
        self._messages.append((self._sent, MAX_AHEAD_BYTES))
        packed = pack_error(error, __file__)
        self._send((ERROR, self._generation, packed, wire_state, False))

    def _give_up(self, error: BaseException) -> NoReturn:
        """Send an exception after which this worker cannot continue."""
        _leave_if_asked(error, self._flush)
        self._send((ERROR, self._generation, pack_error(error, __file__), None, True))
        while True:
            self._commands.get()

    def _obey(self, iterator: Any) -> None:
        """Execute the next command of the consumer; wait for one if there is none."""
        if is_free := self._commands.empty():
            self._flush()
        goes_on = is_free and self._ended and self._spans
        command: Any = self._commands.get() if not goes_on else (REPOSITION, *goes_on.popleft())
        if command[0] == TAKEN:
            _, generation, taken, released, given_up = command
            self._encoder.give_back(released, given_up)
            if generation == self._generation:
                self._taken = taken
                while self._messages and self._messages[0][0] <= taken:
                    self._bytes_ahead -= self._messages.popleft()[1]
        elif command[0] == SPAN:
            self._spans.append(command[1:])
            iterator.expect(pickle.loads(command[2]))
        elif command[0] == REPOSITION:
            _, generation, state, self._singly = command
            self._says_begun = bool(self._singly)
            self._start_over(generation)
            try:
                iterator.set_state(pickle.loads(state))
            except BaseException as error:
                self._give_up(error)
        else:  # CANCEL: one span, or all spans if the number is 0.
            self._spans = deque(o for o in self._spans if command[1] not in (0, o[0]))
            if not command[1]:
                iterator.expect(None)
                self._start_over(0)
                self._ended = True

    def _start_over(self, generation: int) -> None:
        with self._sending:
            if self._held_kind == RECORDS:
                for record, _, _ in self._held:
                    self._encoder.discard(record)
            self._held.clear()
            self._messages.clear()
            self._generation = generation
            self._made = self._taken = self._sent = self._bytes_ahead = 0
            self._ended = False
            self._begun = time.perf_counter()

    def _listen(self) -> None:
        try:
            while True:
                command = self._receive_message()
                if command[0] != NUDGE:
                    self._commands.put(command)
                elif self._sending.acquire(blocking=False):
                    try:
                        self._flush_held()
                    finally:
                        self._sending.release()
        except (EOFError, OSError):
            self._on_end()
            leave(0)
        except BaseException:
            traceback.print_exc()
            leave(1)


def _to_wire(state: Any) -> int | bytes:
    """Return a state as it is sent: an int for a plain counter, else a pickle."""
    if type(state) is dict and len(state) == 1:
        number = state.get(COUNTER)
        if type(number) is int:
            return number
    return dumps(state)


def _leave_if_asked(error: BaseException, flush: Callable[[], None]) -> None:
    """Exit on `SystemExit` and `KeyboardInterrupt`, after sending the collected elements."""
    if isinstance(error, KeyboardInterrupt):
        flush()
        leave(1)
    if isinstance(error, SystemExit):
        flush()
        if error.code is None:
            leave(0)
        if isinstance(error.code, int):
            leave(error.code & 0xFF)
        print(error.code, file=sys.stderr)
        leave(1)
