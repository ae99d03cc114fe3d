"""What is left in the cluster."""

import contextlib
import time
from collections.abc import Callable
from typing import Any


def wait_until(condition: Callable[[], bool], what: str, timeout_s: float = 30.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"after {timeout_s} seconds: {what}"
        time.sleep(0.1)


def living_actors() -> list[Any]:
    """Return our actors in the cluster that are not dead."""
    from ray._private.state import actors

    ours = ("WorkerActor", "PipelineServer")
    found = [one for one in actors().values() if one["State"] != "DEAD"]
    return [one for one in found if one["ActorClassName"] in ours]


def stored_objects() -> int:
    """Return how many objects are in the object stores."""
    import grpc
    import ray
    from ray._private.internal_api import node_stats

    count = 0
    for node in ray.nodes():
        if node["Alive"]:
            with contextlib.suppress(grpc.RpcError):  # It was removed, and Ray is about to notice.
                stats = node_stats(node["NodeManagerAddress"], node["NodeManagerPort"], False)
                count += stats.store_stats.num_local_objects
    return count


def assert_nothing_left(objects: int = 0) -> None:
    wait_until(lambda: not living_actors(), f"actors are left: {living_actors()}")
    wait_until(lambda: stored_objects() <= objects, f"{stored_objects()} objects are left")
