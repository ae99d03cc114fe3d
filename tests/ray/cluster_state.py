"""What is left in the cluster."""

import contextlib
import gc
import time
from collections.abc import Callable, Iterator
from typing import Any


def wait_until(condition: Callable[[], bool], what: str, timeout_s: float = 30.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"after {timeout_s} seconds: {what}"
        time.sleep(0.1)


def our_actors() -> list[Any]:
    """Return our actors in the cluster, and those that have ended."""
    from ray._private.state import actors

    ours = ("WorkerActor", "PipelineServer")
    return [one for one in actors().values() if one["ActorClassName"] in ours]


def living_actors() -> list[Any]:
    """Return the actors of this test that are not dead."""
    found = [one for one in our_actors() if one["State"] != "DEAD"]
    return [one for one in found if one["ActorID"] not in Before.actors]


def _stats(with_references: bool) -> Iterator[Any]:
    import grpc
    import ray
    from ray._private.internal_api import node_stats

    for node in ray.nodes():
        if node["Alive"]:
            address, port = node["NodeManagerAddress"], node["NodeManagerPort"]
            with contextlib.suppress(grpc.RpcError):  # It was removed, and Ray is about to notice.
                yield node_stats(address, port, with_references)


def stored_objects() -> int:
    """Return how many objects are in the object stores."""
    return sum(stats.store_stats.num_local_objects for stats in _stats(False))


def _references() -> str:
    """Return who refers to objects."""
    lines = [
        f"process {worker.pid}: {reference}"
        for stats in _stats(True)
        for worker in stats.core_workers_stats
        for reference in worker.object_refs
    ]
    return "\n".join(lines)


class Before:
    """What was there before a test. What one test leaves must not fail the later ones."""

    actors: frozenset[str] = frozenset()
    objects = 0

    @classmethod
    def note(cls) -> None:
        """Give what is ending a moment, and record the rest."""
        cls.actors = frozenset()
        deadline = time.monotonic() + 5.0
        while (living_actors() or stored_objects()) and time.monotonic() < deadline:
            time.sleep(0.1)
        cls.actors = frozenset(one["ActorID"] for one in living_actors())
        cls.objects = stored_objects()


def assert_nothing_left() -> None:
    """Wait until the cluster has no more than before the test."""
    gc.collect()  # The error of a lost actor refers to results of its calls, and to itself.
    deadline = time.monotonic() + 30.0
    while True:
        actors, objects = living_actors(), stored_objects()
        if not actors and objects <= Before.objects:
            return
        assert time.monotonic() < deadline, (
            f"{objects} objects are left ({Before.objects} before the test), and the actors"
            f" {actors}.\n{_references()}"
        )
        time.sleep(0.1)
