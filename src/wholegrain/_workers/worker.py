"""A worker process: runs an iterator and sends its elements.

A worker has two threads. The first runs the iterator, as far ahead of the consumer as back-pressure
allows. The second receives messages from the consumer, and ends the process when the consumer is
gone, whatever the first thread is doing. `outbox` describes how elements are sent.
"""

import contextlib
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

from wholegrain._read.caution import set_careful
from wholegrain._workers import program, startup
from wholegrain._workers.backend import Message
from wholegrain._workers.failures import pack_error
from wholegrain._workers.maker import Maker
from wholegrain._workers.messages import (
    BEGUN,
    END,
    ERROR,
    HELLO,
    NUDGE,
    REPOSITION,
    SPAN,
    TAKEN,
    Job,
)
from wholegrain._workers.outbox import Outbox, WireState, leave
from wholegrain._workers.transport import Encoder

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


class Worker:
    """Runs one iterator for one consumer.

    Args:
        job: The worker's settings.
        send: Sends a message.
        receive: Waits for a message.
        on_end: Called when the consumer is gone.
    """

    _maker: Maker

    def __init__(
        self,
        job: Job,
        send: Callable[[Message], None],
        receive: Callable[[], Message],
        on_end: Callable[[], None],
    ) -> None:
        self._job = job
        self._receive_message = receive
        self._on_end = on_end
        self._commands: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._outbox = Outbox(send, job.buffer_size, job.generation, job.singly)
        self._spans: deque[tuple[int, bytes, int]] = deque()
        self._has_ended = False
        self._started_at = 0.0  # When the current span or generation was started.
        self._report_at = 0.0

    def run(
        self, load: Callable[[], program.Factory], make_encoder: Callable[[], Encoder]
    ) -> NoReturn:
        """Make the iterator and run it until the process ends."""
        threading.Thread(target=self._listen, name="wholegrain-listen", daemon=True).start()
        self._outbox.send(HELLO, os.getpid())
        job = self._job
        set_careful(job.singly > 0)
        try:
            if job.init_fn is not None:
                pickle.loads(job.init_fn)(job.index, job.count)
            iterator: Any = load()(job.index, job.count)
            if job.state is not None:
                iterator.set_state(pickle.loads(job.state))
        except BaseException as error:
            self._give_up(error)
        # Created after the program is loaded, because it records the classes that came with it.
        self._outbox.encoder = encoder = make_encoder()
        self._maker = Maker(iterator, encoder.empty)
        if getattr(iterator, "reports_each_message", False):
            self._outbox.get_report = self._maker.get_report
        self._produce()

    def _produce(self) -> NoReturn:
        no_commands, maker = self._commands.empty, self._maker
        outbox, is_full = self._outbox, self._outbox.ahead.is_full
        while True:
            if self._has_ended or not no_commands() or is_full():
                self._obey()
                continue
            if outbox.singly:
                self._announce()
            takes_chunk = maker.takes_chunks
            try:
                if takes_chunk:
                    elements = maker.take(1 if outbox.singly else outbox.ahead.room)
                else:
                    element = maker.make()
            except StopIteration:
                self._end()
            except BaseException as error:
                outbox.encoder.abandon()
                self._fail(error, None)
            else:
                if takes_chunk:
                    self._add_all(elements)
                else:
                    self._add(element)

    def _announce(self) -> None:
        """Report that the next element is begun, because it may end this process."""
        outbox = self._outbox
        if outbox.ahead.made < outbox.singly:
            outbox.send(BEGUN, outbox.generation)
        else:
            outbox.singly = 0
            set_careful(False)

    def _add(self, element: Any) -> None:
        """Send an element, at once or together with the next ones."""
        outbox = self._outbox
        wire_state = None
        try:
            wire_state = self._maker.wire_state()
            outbox.add(element, wire_state)
        except BaseException as error:
            outbox.encoder.abandon()
            self._fail(error, wire_state)
            return
        if outbox.added_at > self._report_at:
            self._report_at = outbox.added_at + _REPORT_EVERY_S
            self._send_report()

    def _add_all(self, elements: list[Any]) -> None:
        """Send the elements of a chunk."""
        try:
            wire_states = self._maker.wire_states(len(elements))
        except BaseException as error:
            self._fail(error, None)
            return
        outbox = self._outbox
        if not outbox.add_plain(elements, wire_states):
            for element, wire_state in zip(elements, wire_states, strict=True):
                try:
                    outbox.add(element, wire_state)
                except BaseException as error:
                    outbox.encoder.abandon()
                    self._fail(error, wire_state)
        if outbox.added_at > self._report_at:
            self._report_at = outbox.added_at + _REPORT_EVERY_S
            self._send_report()

    def _end(self) -> None:
        """Report the end of the data, or of a span."""
        self._outbox.encoder.abandon()
        self._outbox.flush()
        self._send_report()
        self._outbox.send(END, self._outbox.generation, time.perf_counter() - self._started_at)
        self._has_ended = True

    def _send_report(self) -> None:
        if self._maker.get_report is not None:
            self._outbox.send_report(self._maker.get_report)

    def _fail(self, error: BaseException, wire_state: WireState | None) -> None:
        """Send an exception instead of an element, with the state after it if that is known."""
        self._leave_if_asked(error)
        self._outbox.flush()
        if wire_state is None:
            with contextlib.suppress(Exception):
                wire_state = self._maker.wire_state()
        self._outbox.charge_error()
        packed = pack_error(error, __file__)
        self._outbox.send(ERROR, self._outbox.generation, packed, wire_state, False)

    def _give_up(self, error: BaseException) -> NoReturn:
        """Send an exception after which this worker cannot continue."""
        self._leave_if_asked(error)
        generation = self._outbox.generation
        self._outbox.send(ERROR, generation, pack_error(error, __file__), None, True)
        while True:
            self._commands.get()

    def _leave_if_asked(self, error: BaseException) -> None:
        """Exit on `SystemExit` and `KeyboardInterrupt`, after sending the collected elements."""
        if isinstance(error, KeyboardInterrupt):
            self._outbox.flush()
            leave(1)
        if isinstance(error, SystemExit):
            self._outbox.flush()
            if error.code is None:
                leave(0)
            if isinstance(error.code, int):
                leave(error.code & 0xFF)
            print(error.code, file=sys.stderr)
            leave(1)

    # Commands of the consumer.

    def _obey(self) -> None:
        """Execute the next command; wait for one if there is none."""
        if is_free := self._commands.empty():
            self._outbox.flush()
        goes_on = is_free and self._has_ended and self._spans
        command: Any = self._commands.get() if not goes_on else (REPOSITION, *goes_on.popleft())
        if command[0] == TAKEN:
            _, generation, taken, released, given_up = command
            self._outbox.encoder.give_back(released, given_up)
            if generation == self._outbox.generation:
                self._outbox.ahead.note_taken(taken)
        elif command[0] == SPAN:
            self._spans.append(command[1:])
            self._maker.iterator.expect(pickle.loads(command[2]))
        elif command[0] == REPOSITION:
            _, generation, state, singly = command
            set_careful(False)
            self._start_over(generation, singly)
            try:
                self._maker.go_to(pickle.loads(state))
            except BaseException as error:
                self._give_up(error)
        else:  # CANCEL: one span, or all spans if the number is 0.
            self._spans = deque(o for o in self._spans if command[1] not in (0, o[0]))
            if not command[1]:
                self._maker.iterator.expect(None)
                self._start_over(0, 0)
                self._has_ended = True

    def _start_over(self, generation: int, singly: int) -> None:
        self._outbox.start_over(generation, singly)
        self._has_ended = False
        self._started_at = time.perf_counter()

    def _listen(self) -> None:
        try:
            while True:
                command = self._receive_message()
                if command[0] == NUDGE:
                    self._outbox.flush_if_free()
                else:
                    self._commands.put(command)
        except (EOFError, OSError):
            self._on_end()
            leave(0)
        except BaseException:
            traceback.print_exc()
            leave(1)
