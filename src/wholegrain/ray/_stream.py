"""One run of a pipeline, whose elements are shared out to several consumers in turn."""

import pickle
import threading
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from wholegrain._workers.failures import pack_error
from wholegrain._workers.pickling import PROTOCOL, dumps_by_value


class Position(NamedTuple):
    """A place in the one stream: how many elements come before it, and the state there.

    `state` is None at the start.
    """

    at: int
    state: Any


class Item(NamedTuple):
    """An element on its way to a consumer, or the exception raised in its place."""

    number: int
    pickled: bytes
    buffers: list[Any]
    is_error: bool
    after: bytes  # The pickled state after it.

    @property
    def nbytes(self) -> int:
        """About how much memory it takes."""
        return len(self.pickled) + sum(map(len, self.buffers))


class Stream:
    """Runs a pipeline in a thread, as far ahead of its consumers as the buffers allow.

    Element n is for consumer n modulo the number of consumers. A consumer that has joined makes the
    stream wait if it does not take its elements; for the others, only the last ones are kept.

    Args:
        open_run: Opens the pipeline.
        wanted: For each consumer, the index of the element that it wants next. Earlier ones are
            not kept for it.
        buffer_size: How many elements may wait for each of them.
        start: Where to start.
        changed: Held while the buffers change, and notified.
    """

    def __init__(
        self,
        open_run: Callable[[], Any],
        wanted: list[int],
        buffer_size: int,
        start: Position,
        changed: threading.Condition,
    ) -> None:
        self._run = open_run()
        if start.state is not None:
            self._run.set_state(start.state)
        self._wanted = wanted
        self._consumers = consumers = len(wanted)
        self._buffer_size = buffer_size
        self._changed = changed
        self._made = start.at
        self._buffers: list[deque[Item]] = [deque() for _ in range(consumers)]
        self._is_closed = False
        self._has_ended = False
        self._failure: bytes | None = None  # What ended the run, if it cannot go on.
        self.joined: set[int] = set()
        """The consumers that it waits for."""
        threading.Thread(target=self._make_all, name="wholegrain-serve", daemon=True).start()

    def can_serve(self, consumer: int, index: int, start: Position) -> bool:
        """Return whether a consumer gets element `index` from here, sooner than from `start`."""
        buffer = self._buffers[consumer]
        first = (
            buffer[0].number if buffer else self._made + (consumer - self._made) % self._consumers
        )
        return first <= index and start.at <= self._made + self._consumers * self._buffer_size

    def forget(self, consumer: int) -> None:
        """Drop the elements of before the one that a consumer wants."""
        buffer = self._buffers[consumer]
        while buffer and buffer[0].number < self._wanted[consumer]:
            buffer.popleft()
            self._changed.notify_all()

    def take(self, consumer: int, index: int, most_bytes: int) -> list[Item] | None:
        """Return the elements from `index` on that are ready for a consumer.

        None if the stream has ended before `index`.
        """
        if self._failure is not None and index >= self._made:
            return [Item(index, self._failure, [], True, b"")]
        buffer = self._buffers[consumer]
        taken: list[Item] = []
        nbytes = 0
        while buffer and (not taken or nbytes + buffer[0].nbytes <= most_bytes):
            nbytes += buffer[0].nbytes
            taken.append(buffer.popleft())
        if taken:
            self._changed.notify_all()
            return taken
        return None if self._has_ended and index >= self._made else taken

    @property
    def waits_for(self) -> int | None:
        """The consumer that has to take elements before the stream goes on."""
        consumer = self._made % self._consumers
        is_full = len(self._buffers[consumer]) >= self._buffer_size
        return consumer if is_full and consumer in self.joined else None

    def _make_all(self) -> None:
        while True:
            with self._changed:
                while self.waits_for is not None and not self._is_closed:
                    self._changed.wait()
                if self._is_closed:
                    break
            try:
                item = self._make()
            except BaseException as error:
                with self._changed:
                    self._has_ended = True
                    if not isinstance(error, StopIteration):
                        self._failure = pack_error(error, __file__)
                    self._changed.notify_all()
                break
            with self._changed:
                consumer = self._made % self._consumers
                buffer = self._buffers[consumer]
                if item.number >= self._wanted[consumer]:
                    buffer.append(item)
                self._made += 1
                while len(buffer) > self._buffer_size:
                    buffer.popleft()
                self._changed.notify_all()
        self._run.close()

    def _make(self) -> Item:
        is_error = False
        try:
            pickled, buffers = _pickle(next(self._run))
        except StopIteration:
            raise
        except BaseException as error:
            pickled, buffers, is_error = pack_error(error, __file__), [], True
        after = pickle.dumps(self._run.get_state(), PROTOCOL)
        return Item(self._made, pickled, buffers, is_error, after)

    def close(self) -> None:
        """Stop. The caller holds `changed`."""
        self._is_closed = True
        self._changed.notify_all()


def _pickle(element: Any) -> tuple[bytes, list[Any]]:
    """Pickle an element, without its arrays: Ray moves them through the object store."""
    buffers: list[pickle.PickleBuffer] = []
    try:
        pickled = pickle.dumps(element, PROTOCOL, buffer_callback=buffers.append)
    except Exception:
        buffers = []
        pickled = dumps_by_value(element, buffers.append)
    return pickled, [np.asarray(buffer.raw()) for buffer in buffers]
