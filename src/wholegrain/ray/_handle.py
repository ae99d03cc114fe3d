"""The consumer's side of one actor: a thread fetches its messages ahead of the consumer."""

import concurrent.futures
import contextlib
import os
import pickle
import threading
import time
from collections import deque
from collections.abc import Mapping
from typing import Any

from wholegrain._core.interruption import is_interruption, suppress_errors
from wholegrain._workers.backend import Message, WorkerExit, WorkerHandle, WorkerSpec
from wholegrain._workers.messages import BEGUN, TAKEN
from wholegrain._workers.transport import Decoder
from wholegrain.ray import _cluster, _exits
from wholegrain.ray._blocks import BlockViews, Bytes, copied

_NO_CAPACITY_S = 9.5  # A little less than 10 s, because callers ask every 5 s.
_LONG_S = 60.0
_JOIN_S = 2.0
_LOOK_EVERY_S = 1.0
_SURE_AFTER_S = 1.0
_MOST_WAITING = 8

Arrival = tuple[list[Message], Mapping[int, Bytes]]


class Link:
    """What the consumer and the fetching thread of an actor share.

    Args:
        actor: The actor.
        arrived: Notified when a package has arrived or the actor has died.
        max_in_flight: How many packages may be on their way, or wait for the consumer.
        zero_copy: Whether blocks stay in the object store.
    """

    def __init__(
        self, actor: Any, arrived: threading.Condition, max_in_flight: int, zero_copy: bool
    ) -> None:
        self.actor = actor
        self.arrived = arrived
        self.room = threading.Semaphore(max_in_flight)
        self.zero_copy = zero_copy
        self.ready: deque[Arrival] = deque()
        self.outgoing: deque[tuple[int, bytes]] = deque()  # For the next call.
        self.error: BaseException | None = None
        self.is_closed = False
        self.is_running = False
        self.where: dict[str, Any] = {}
        self.cost = {"packages": 0, "bytes": 0, "fetch_s": 0.0, "copy_s": 0.0}

    def add(self, package: Arrival) -> None:
        """Hand a package to the consumer."""
        with self.arrived:
            self.ready.append(package)
            self.arrived.notify_all()

    def fail(self, error: BaseException) -> None:
        """Tell the consumer that nothing more will come."""
        with self.arrived:
            self.error = error
            self.arrived.notify_all()

    @property
    def has_something(self) -> bool:
        """Whether `receive` would not have to wait."""
        return bool(self.ready) or self.error is not None

    def take_outgoing(self) -> list[tuple[int, bytes]]:
        """Return the messages to the worker that wait for a call."""
        waiting = self.outgoing
        taken = []
        with contextlib.suppress(IndexError):  # Two threads may take them.
            while waiting:
                taken.append(waiting.popleft())
        return taken


def fetch_all(link: Link) -> None:
    """Fetch packages until the actor ends. Runs in a thread of its own."""
    try:
        _fetch_all(link)
    except BaseException as error:
        link.fail(error)


def _fetch_all(link: Link) -> None:
    calls: deque[Any] = deque()
    where = link.actor.where.remote().future()
    number = received = 0
    while True:
        # Wait for room only if no call is in flight.
        while link.room.acquire(blocking=not calls):
            if link.is_closed:
                return
            _check_connected()
            calls.append(link.actor.fetch.remote(number, link.take_outgoing()).future())
            number += 1
        since = time.perf_counter()
        if where is not None:
            link.where = _result(where, link)
            link.is_running = True
            where = None
        messages, blocks, waited = _result(calls.popleft(), link)
        fetched = time.perf_counter()
        if blocks and not link.zero_copy:
            blocks = copied(blocks)
        cost = link.cost
        cost["packages"] += 1
        cost["bytes"] += sum(map(len, messages)) + sum(map(len, blocks.values()))
        cost["fetch_s"] += max(0.0, fetched - since - waited)
        cost["copy_s"] += time.perf_counter() - fetched
        loaded = [pickle.loads(message) for message in messages]
        received += 1
        if any(message[0] == BEGUN for message in loaded):
            link.actor.delivered.remote(received)
        link.add((loaded, blocks))
        del messages, loaded, blocks  # They would keep memory in the object store.


def _result(call: "concurrent.futures.Future[Any]", link: Link) -> Any:
    """Wait for the result of a call.

    The results of all calls in flight are transferred to this node as soon as they exist. A thread
    that waited in `ray.get` instead would crash the process if the program called `ray.shutdown`.
    """
    while True:
        try:
            return call.result(_LOOK_EVERY_S)
        except TimeoutError:
            if call.done():  # By now, or the error is that of the call.
                return call.result()
            if link.is_closed:
                raise
            _check_connected()


def _check_connected() -> None:
    """Raise if Ray was shut down. A call would then connect to another cluster, or start one."""
    import ray

    if not ray.is_initialized():
        raise RuntimeError(
            "`ray.shutdown` was called while a pipeline was using actors. Close its iterator first."
        )


class RayHandle(WorkerHandle):
    """An actor that runs a worker.

    Args:
        link: The connection to it.
        spec: The worker.
        asked: The resources that it asks for.
    """

    def __init__(self, link: Link, spec: WorkerSpec, asked: Mapping[str, float]) -> None:
        self._link = link
        self._name = spec.name
        self._asked = asked
        self._owner = os.getpid()
        self._views = BlockViews()
        views: Any = self._views
        self._decoder = Decoder(views, 0)
        self._current: deque[Message] = deque()
        self._told = 0
        self._may_wait = min(max(1, spec.buffer_size // 2), _MOST_WAITING)
        self._thread = threading.Thread(
            target=fetch_all, args=(link,), name=f"wholegrain-ray-{spec.index}", daemon=True
        )
        self._thread.start()

    @property
    def decoder(self) -> Decoder:
        return self._decoder

    def send(self, message: Message) -> None:
        link = self._link
        if link.is_closed or link.error is not None:
            return
        link.outgoing.append((self._told, pickle.dumps(message, 5)))
        self._told += 1
        if message[0] != TAKEN or not self._can_wait():
            self._tell()

    def _can_wait(self) -> bool:
        """Return whether an acknowledgement may wait for the next call of `fetch`.

        The worker runs ahead by more than twice the size of its buffer before it has to wait. And
        `receive` passes on what waits if nothing has arrived.
        """
        return len(self._link.outgoing) <= self._may_wait

    def _tell(self) -> None:
        waiting = self._link.take_outgoing()
        if waiting:
            try:
                _check_connected()
                self._link.actor.tell.remote(waiting)
            except Exception as error:
                if is_interruption(error):
                    raise
                self._link.fail(error)  # `receive` raises it.

    @property
    def has_something(self) -> bool:
        """Whether `receive` would not have to wait."""
        return bool(self._current) or self._link.has_something

    def receive(self, timeout_s: float) -> Message | None:
        if not self._current and not self._take_package(timeout_s):
            return None
        return self._current.popleft()

    def _take_package(self, timeout_s: float) -> bool:
        link = self._link
        if not link.ready:
            self._tell()
        with link.arrived:
            if not link.has_something and timeout_s > 0:
                link.arrived.wait_for(lambda: link.has_something, timeout_s)
            if not link.ready:
                if link.error is not None:
                    self._raise(link.error)
                return False
            messages, blocks = link.ready.popleft()
        link.room.release()
        self._views.add(blocks)
        self._current.extend(messages)
        return True

    def _raise(self, error: BaseException) -> None:
        if not self._link.is_closed:
            _check_connected()  # Its end ends the actors too.
        if self._link.is_closed or _exits.is_loss(error):
            raise EOFError from None
        if getattr(error, "actor_init_failed", False):
            raise _exits.creation_error(error, self._name) from error
        raise error

    def stuck_because(self, quiet_s: float) -> str | None:
        link = self._link
        if link.is_running:
            if quiet_s <= _LONG_S:
                return None
            return (
                f"Waiting for {self._name}: it runs in {self.describe()}, and has sent nothing for"
                f" {int(quiet_s)} seconds. `ray stack` on that node shows what it does."
            )
        if quiet_s < _NO_CAPACITY_S:
            return None
        import ray

        return (
            f"Waiting for {self._name}: its actor has not started for {int(quiet_s)} seconds. It"
            f" asks for {_cluster.resources_text(self._asked)}. The cluster has"
            f" {_cluster.resources_text(ray.cluster_resources())}, of which"
            f" {_cluster.resources_text(ray.available_resources())} are free. It starts as soon as"
            " there is room: add nodes, end other jobs, or use fewer workers."
        )

    def describe(self) -> str:
        """Return where the worker runs, and what fetching its elements has cost."""
        where, cost = self._link.where, self._link.cost
        if not where:
            return "an actor that has not started"
        text = f"process {where['pid']} on {where['address']} (node {where['node_id'][:8]})"
        if cost["packages"]:
            each = 1e3 / cost["packages"]
            text += (
                f", {cost['packages']:,} packages of {cost['bytes'] / cost['packages'] / 1e3:,.1f}"
                f" kB, {each * cost['fetch_s']:.2f} ms each for the network and"
                f" {each * cost['copy_s']:.2f} ms for copies"
            )
        return text

    def exit(self) -> WorkerExit:
        error = self._final_error()
        self._kill()
        return _exits.exit_of(error, self._name)

    def _final_error(self) -> BaseException | None:
        """Return why the actor ended. At first Ray may only know that the connection was lost."""
        import ray

        error = self._link.error
        if isinstance(error, ray.exceptions.ActorUnavailableError) and ray.is_initialized():
            try:
                ray.get(self._link.actor.where.remote(), timeout=_SURE_AFTER_S)
            except ray.exceptions.ActorDiedError as later:
                error = later
            except ray.exceptions.RayError:
                pass
        return error

    def close(self) -> None:
        if self._owner != os.getpid():
            self.disown()
        elif not self._link.is_closed:
            self._link.is_closed = True
            self._kill()
            self._link.room.release()  # The thread may wait for room.

    def _kill(self) -> None:
        import ray

        if ray.is_initialized():  # Otherwise `ray.kill` would start a cluster.
            with suppress_errors():  # It may be dead.
                ray.kill(self._link.actor)

    def join(self) -> None:
        """Wait a moment for the fetching thread, before Ray shuts down."""
        self._thread.join(_JOIN_S)

    def disown(self) -> None:
        self._link.is_closed = True
