"""`serve`: one pipeline on the cluster for several consumers."""

import threading
import time
from collections.abc import Mapping
from typing import Any, Self

from wholegrain._graph.iter_dataset import IterDataset
from wholegrain._graph.map_dataset import MapDataset
from wholegrain._workers import program
from wholegrain._workers.failures import pack_error
from wholegrain.ray import _cluster, _train
from wholegrain.ray._programs import put_program
from wholegrain.ray._stream import Position, Stream

NAMESPACE = "wholegrain"
"""The namespace of the names, the same for all programs on the cluster."""

_PACKAGE_BYTES = 1 << 23
_ANSWER_AFTER_S = 5.0
_START = Position(0, None)

Answer = tuple[str, Any]
"""What `fetch` returns: "elements" and a list of items, "end", "wait" and the consumer that the
stream waits for, "error" and a packed exception, or "replaced"."""


class PipelineServer:
    """The actor that runs the pipeline.

    All consumers read one stream. A consumer that restarts from a state of before what it had
    taken gets the elements from a second run, which starts at that state, until it has caught up.
    If all consumers restart there, the second run replaces the first.

    Args:
        copy: Describes `content`.
        content: The pipeline.
        consumers: How many consumers there are.
        buffer_size: How many elements may wait for each of them.
    """

    def __init__(
        self, copy: program.ProgramCopy, content: Any, consumers: int, buffer_size: int
    ) -> None:
        self._pipeline: Any = program.load(copy, content)
        self._consumers = consumers
        self._wanted = list(range(consumers))
        self._buffer_size = buffer_size
        self._changed = threading.Condition()
        self._tickets = [(0, 0)] * consumers  # The last session and call of each consumer.
        self._replays: list[Stream] = []
        self._main = self._open(_START)
        self._main.joined.update(range(consumers))

    def _open(self, start: Position) -> Stream:
        pipeline = self._pipeline
        return Stream(lambda: iter(pipeline), self._wanted, self._buffer_size, start, self._changed)

    def join(self, consumer: int) -> tuple[int, int]:
        """Begin a session of a consumer, which ends the previous one.

        Return the number of the session, and how many consumers there are.
        """
        with self._changed:
            session = time.time_ns()  # Greater than any number of before a restart of this actor.
            if 0 <= consumer < self._consumers:
                self._tickets[consumer] = (session, 0)
            self._changed.notify_all()
        return session, self._consumers

    def fetch(
        self, consumer: int, ticket: tuple[int, int], index: int, at: int, state: Any
    ) -> Answer:
        """Return elements of a consumer, from element `index` of the stream on.

        Args:
            consumer: The number of the consumer.
            ticket: The number that `join` returned, and the number of this call. A call ends the
                earlier ones of the same consumer, which its process may have abandoned.
            index: The index of the next element in the one stream.
            at: A position at or before it.
            state: The state of the pipeline there; None for its start.
        """
        deadline = time.monotonic() + _ANSWER_AFTER_S
        with self._changed:
            self._tickets[consumer] = max(self._tickets[consumer], ticket)
            if self._tickets[consumer] == ticket:
                self._wanted[consumer] = index
                for stream in [self._main, *self._replays]:
                    stream.forget(consumer)
            self._changed.notify_all()
            while True:
                if self._tickets[consumer] != ticket:
                    return "replaced", None
                try:
                    stream = self._stream_for(consumer, index, Position(at, state))
                except Exception as error:
                    return "error", pack_error(error, __file__)
                taken = stream.take(consumer, index, _PACKAGE_BYTES)
                if taken is None:
                    return "end", None
                if taken:
                    return "elements", [tuple(item) for item in taken]
                left = deadline - time.monotonic()
                if left <= 0:
                    return "wait", stream.waits_for
                self._changed.wait(left)

    def _stream_for(self, consumer: int, index: int, start: Position) -> Stream:
        """Return the stream that a consumer reads from; open one if none has the element."""
        streams = sorted([self._main, *self._replays], key=lambda one: -len(one.joined))
        for stream in streams:
            if stream.can_serve(consumer, index, start):
                break
        else:
            stream = self._open(start)
            self._replays.append(stream)
        if consumer not in stream.joined or stream is self._main:
            self._move(consumer, stream)
        return stream if stream in (self._main, *self._replays) else self._main

    def _move(self, consumer: int, stream: Stream) -> None:
        for other in [one for one in self._replays if one is not stream]:
            other.joined.discard(consumer)
            if not other.joined:
                other.close()
                self._replays.remove(other)
        stream.joined.add(consumer)
        if stream is not self._main and len(stream.joined) == self._consumers:
            self._main.close()
            self._main = stream
            self._replays.remove(stream)


class Served:
    """A pipeline that runs on the cluster until `close`, or until this program ends.

    Args:
        actor: The actor that runs it.
        name: Its name.
        consumers: How many consumers it has.
    """

    def __init__(self, actor: Any, name: str, consumers: int) -> None:
        self._actor = actor
        self.name = name
        self.consumers = consumers

    def close(self) -> None:
        """End the pipeline. Iterators that are connected to it fail. May be called again."""
        import ray

        actor, self._actor = self._actor, None
        if actor is not None and ray.is_initialized():
            ray.kill(actor)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Served {self.name!r} for {self.consumers} consumers>"


def serve(
    ds: MapDataset[Any] | IterDataset[Any],
    name: str,
    *,
    consumers: int | None = None,
    buffer_size: int = 8,
    num_cpus: float = 1,
    resources: Mapping[str, float] | None = None,
    runtime_env: Mapping[str, Any] | None = None,
) -> Served:
    """Run one pipeline on the cluster for several consumers, such as the ranks of a training.

    Consumer i of N gets the elements i, i + N, i + 2N, ... of the one stream, with
    `connect(name, consumer=i)`. If one of them does not take its elements, the others wait for it
    once their buffers are empty.

    Args:
        ds: The pipeline. It may have workers, also with `RayBackend`.
        name: The name under which consumers find it, anywhere on the cluster.
        consumers: How many consumers there are; by default the world size of Ray Train.
        buffer_size: How many elements may wait for each consumer.
        num_cpus: How many CPUs the actor that runs the pipeline reserves.
        resources: Other resources that it reserves, by name.
        runtime_env: Its environment.

    Example:
        >>> with serve(ds, "train", consumers=4):
        ...     trainer.fit()
    """
    if not isinstance(ds, (MapDataset, IterDataset)):
        raise TypeError(f"`serve` needs a MapDataset or an IterDataset, but got {ds!r}.")
    if consumers is None:
        consumers = _train.world_size()
        if consumers is None:
            raise ValueError("Give the number of `consumers`: this is not a worker of Ray Train.")
    if consumers < 1 or buffer_size < 1:
        raise ValueError(
            "There has to be at least one consumer with a buffer of one element, but got"
            f" consumers={consumers}, buffer_size={buffer_size}."
        )
    ray = _cluster.connected("`wholegrain.ray.serve`")
    pipeline: Any = ds.to_iter_dataset() if isinstance(ds, MapDataset) else ds
    copy, content = put_program(ray, program.Program.pack(pipeline))
    options: dict[str, Any] = {
        "name": name,
        "namespace": NAMESPACE,
        "num_cpus": num_cpus,
        "max_concurrency": 2 * consumers + 4,
        "max_restarts": -1,  # Consumers know where to continue.
        **({} if resources is None else {"resources": dict(resources)}),
        **({} if runtime_env is None else {"runtime_env": dict(runtime_env)}),
    }
    try:
        actor = (
            ray.remote(PipelineServer)
            .options(**options)
            .remote(copy, content, consumers, buffer_size)
        )
    except ValueError as error:
        if "already" not in str(error) and "taken" not in str(error):
            raise
        raise ValueError(
            f"A pipeline named {name!r} is being served on this cluster already. Close it, or"
            " choose another name."
        ) from error
    return Served(actor, name, consumers)
