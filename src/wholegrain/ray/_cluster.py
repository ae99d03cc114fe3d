"""The connection to a Ray cluster, and what the cluster has."""

import math
from collections.abc import Mapping
from typing import Any

from wholegrain._core.log import say


def connected(purpose: str) -> Any:
    """Return the module `ray`, connected to a cluster.

    `ray.init()` is called if the program has not called it: it finds the cluster that RAY_ADDRESS
    names, or one that runs on this machine, and else starts one here.

    Args:
        purpose: What needs the connection, as the subject of a sentence.
    """
    import ray

    if not ray.is_initialized():
        ray.init()
        address = ray.get_runtime_context().gcs_address
        say(
            f"{purpose} has called `ray.init()`, because the program had not. The cluster at"
            f" {address} has {resources_text(ray.cluster_resources())} on"
            f" {sum(node['Alive'] for node in ray.nodes())} nodes."
        )
    return ray


def granted(asked: Mapping[str, float], available: Mapping[str, float]) -> int | None:
    """Return how many workers fit into what is available; None if they ask for nothing."""
    counts = [
        math.floor(available.get(name, 0.0) / amount + 1e-6)
        for name, amount in asked.items()
        if amount > 0
    ]
    return min(counts, default=None)


def resources_text(resources: Mapping[str, float]) -> str:
    """Describe resources for people, without those that Ray keeps for itself."""
    shown = {
        name: amount
        for name, amount in sorted(resources.items())
        if not name.startswith("node:") and not name.startswith("bundle")
    }
    parts = []
    for name, amount in shown.items():
        if name.endswith("memory"):
            parts.append(f"{amount / 1e9:.1f} GB {name.replace('_', ' ')}")
        else:
            parts.append(f"{amount:g} {name}")
    return ", ".join(parts) or "nothing"
