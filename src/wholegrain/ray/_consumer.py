"""`connect`: the iterator of one consumer of a pipeline that `serve` runs."""

import concurrent.futures
import pickle
import time
from collections import deque
from typing import Any, cast

import numpy as np

from wholegrain._core.errors import take_no_place
from wholegrain._core.log import logger
from wholegrain._core.types import State
from wholegrain._graph.iterator import DatasetIterator, closed_error
from wholegrain._state.validate import copy_state, number_of, part_of, wrong_state
from wholegrain._workers.failures import unpack_error
from wholegrain.ray import _cluster, _train
from wholegrain.ray._server import NAMESPACE
from wholegrain.ray._stream import Item

_PATIENCE_S = 120.0
_RETRY_EVERY_S = 0.5
_WARN_AFTER_S = 30.0


class ConsumerIterator(DatasetIterator[Any]):
    """The elements of one consumer.

    Its state contains a state of the one stream, so that it can be restored whatever the other
    consumers and the actor that runs the pipeline have done since.

    Args:
        name: The name of the pipeline.
        consumer: The number of the consumer.
        actor: The actor that runs the pipeline.
        session: The number of this session there.
        consumers: How many consumers there are.
    """

    def __init__(self, name: str, consumer: int, actor: Any, session: int, consumers: int) -> None:
        super().__init__()
        self._name = name
        self._consumer = consumer
        self._consumers = consumers
        self._actor = actor
        self._session = session
        self._asked = 0  # How many calls were made.
        self._count = 0  # How many elements were handed out.
        self._at = 0  # A position of the one stream at or before the next element.
        self._state: Any = None  # The state there, pickled; None at the start.
        self._ready: deque[Item] = deque()
        self._call: concurrent.futures.Future[Any] | None = None
        self._has_ended = False
        self._closed = False

    @property
    def _index(self) -> int:
        """The index of the next element in the one stream."""
        return self._consumer + self._count * self._consumers

    def __next__(self) -> Any:
        if self._closed:
            raise closed_error()
        if not self._ready:
            self._receive()
        item = self._ready.popleft()
        self._count += 1
        if item.after:
            self._at, self._state = item.number + 1, item.after
        if item.is_error:
            error = unpack_error(item.pickled)
            error.add_note(f"The pipeline {self._name!r} raised this at its element {item.number}.")
            raise error
        return pickle.loads(item.pickled, buffers=[_copied(buffer) for buffer in item.buffers])

    def _receive(self) -> None:
        """Wait for the next elements, and ask for those after them."""
        if self._has_ended:
            raise StopIteration
        kind, content = self._answer()
        if kind == "end":
            self._has_ended = True
            raise StopIteration
        if kind != "elements":
            error = unpack_error(content) if kind == "error" else self._replaced()
            take_no_place(cast("Exception", error))
            raise error
        self._ready.extend(Item(*item) for item in content)
        last = self._ready[-1]
        if last.after:
            self._call = self._ask(last.number + self._consumers, last.number + 1, last.after)

    def _answer(self) -> tuple[str, Any]:
        import ray

        lost_since: float | None = None
        asked_at = time.monotonic()
        while True:
            call, self._call = self._call, None
            try:
                if call is None:
                    call = self._ask(self._index, self._at, self._state)
                answer: tuple[str, Any] = call.result()
            except ray.exceptions.RayActorError as error:
                # Ray restarts the actor elsewhere if its node is gone.
                lost_since = lost_since or time.monotonic()
                if time.monotonic() - lost_since > _PATIENCE_S or not self._find_again():
                    raise self._gone() from error
                time.sleep(_RETRY_EVERY_S)
                continue
            except BaseException:
                self._call = call  # Interrupted: the elements are not lost.
                raise
            if answer[0] != "wait":
                return answer
            if time.monotonic() - asked_at > _WARN_AFTER_S:
                self._warn(answer[1], time.monotonic() - asked_at)
                asked_at = time.monotonic() + 3600

    def _ask(self, index: int, at: int, state: Any) -> "concurrent.futures.Future[Any]":
        position = None if state is None else pickle.loads(state)
        self._asked += 1
        call: concurrent.futures.Future[Any] = self._actor.fetch.remote(
            self._consumer, (self._session, self._asked), index, at, position
        ).future()
        return call

    def _find_again(self) -> bool:
        """Return whether the pipeline is still being served."""
        import ray

        try:
            self._actor = ray.get_actor(self._name, namespace=NAMESPACE)
        except ValueError:
            return False
        return True

    def _gone(self) -> Exception:
        error = RuntimeError(
            f"The pipeline {self._name!r} is not being served any more: it was closed, or the"
            " program that called `serve` has ended."
        )
        take_no_place(error)
        return error

    def _replaced(self) -> Exception:
        return RuntimeError(
            f"Another process has connected to {self._name!r} as consumer {self._consumer} since."
        )

    def _warn(self, other: int | None, seconds: float) -> None:
        why = (
            "the pipeline has not made its next element"
            if other is None
            else f"consumer {other} does not take its elements, and the buffer for it is full"
        )
        logger().warning(
            "Consumer %d of %r has waited for %d seconds: %s.",
            self._consumer,
            self._name,
            int(seconds),
            why,
        )

    def get_state(self) -> State:
        state = None if self._state is None else pickle.loads(self._state)
        return {
            "consumer": self._consumer,
            "consumers": self._consumers,
            "count": self._count,
            "stream": {"at": self._at, "state": state},
        }

    def check_state(self, state: State) -> None:
        for name, here in (("consumer", self._consumer), ("consumers", self._consumers)):
            saved = number_of(state, name, self)
            if saved != here:
                raise wrong_state(self, f"`{name}` is {saved} in it, but {here} here")
        number_of(state, "count", self)
        stream = part_of(state, "stream", self)
        number_of(stream, "at", self)
        part_of(stream, "state", self)

    def set_state(self, state: State) -> None:
        if self._closed:
            raise closed_error()
        self.check_state(state)
        stream = copy_state(state["stream"])
        self._ready.clear()
        self._call = None
        self._has_ended = False
        self._count, self._at = int(state["count"]), int(stream["at"])
        saved = stream["state"]
        self._state = None if saved is None else pickle.dumps(saved)

    def start_prefetch(self) -> None:
        if self._closed:
            raise closed_error()
        if self._call is None and not self._ready:
            self._call = self._ask(self._index, self._at, self._state)

    @property
    def reads_ahead(self) -> bool:
        return True

    def close(self) -> None:
        self._closed = True
        self._ready.clear()
        self._call = None
        self._actor = None

    def __str__(self) -> str:
        return f"ConsumerIterator({self._name!r}, consumer={self._consumer})"


def _copied(buffer: Any) -> Any:
    """Return a writable copy of an array's memory."""
    copy = np.empty(len(buffer), np.uint8)
    np.copyto(copy, buffer)
    return copy


def connect(
    name: str, *, consumer: int | None = None, timeout_s: float = 60.0
) -> DatasetIterator[Any]:
    """Return the iterator of one consumer of a pipeline that `serve` runs.

    Args:
        name: The name that was given to `serve`.
        consumer: The number of this consumer; by default the rank in Ray Train. If another process
            is connected with the same number, its iterator ends with an error.
        timeout_s: How long to wait until such a pipeline is being served.

    Example:
        >>> it = connect("train", consumer=rank)
        >>> batch = next(it)
    """
    ray = _cluster.connected("`wholegrain.ray.connect`")
    world_size = None
    if consumer is None:
        consumer, world_size = _train.rank(), _train.world_size()
        if consumer is None:
            raise ValueError("Give the number of the `consumer`: this is no worker of Ray Train.")
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            actor = ray.get_actor(name, namespace=NAMESPACE)
            break
        except ValueError:
            if time.monotonic() > deadline:
                raise ValueError(
                    f"No pipeline named {name!r} is being served on this cluster. Call"
                    " `wholegrain.ray.serve` first, and keep what it returns."
                ) from None
            time.sleep(_RETRY_EVERY_S)
    session, consumers = ray.get(actor.join.remote(consumer))
    if not 0 <= consumer < consumers:
        raise ValueError(
            f"{name!r} is served to {consumers} consumers, numbered from 0, but got"
            f" consumer={consumer}."
        )
    if world_size not in (None, consumers):
        raise ValueError(
            f"{name!r} is served to {consumers} consumers, but {world_size} workers of Ray Train"
            " use it."
        )
    return ConsumerIterator(name, consumer, actor, session, consumers)
