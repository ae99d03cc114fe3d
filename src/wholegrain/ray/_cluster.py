"""The connection to a Ray cluster, and what the cluster has."""

import math
import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from wholegrain._core.log import say

_PLAIN = re.compile(r"[\w.-]+")  # Not an operator of label selectors, such as `!a` and `in(a, b)`.


class Wants(NamedTuple):
    """What an actor asks for: amounts of resources, and labels of its node."""

    resources: Mapping[str, float]
    labels: Mapping[str, str]

    @property
    def labels_text(self) -> str:
        """The labels for people, as the end of a sentence."""
        if not self.labels:
            return ""
        parts = [f"{name}={value}" for name, value in self.labels.items()]
        return f", on a node with the labels {', '.join(parts)}"


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


def room_for(wants: Wants, nodes: Iterable[Mapping[str, Any]]) -> int | None:
    """Return how many actors fit on nodes if these are empty; None if they ask for nothing.

    Args:
        wants: What each of them asks for. It has to fit on one node.
        nodes: The nodes, as `ray.nodes` returns them.
    """
    if count_in(wants.resources, {}) is None:
        return None
    return sum(
        count_in(wants.resources, node["Resources"]) or 0
        for node in nodes
        if node["Alive"] and _has_labels(node.get("Labels") or {}, wants.labels)
    )


def count_in(asked: Mapping[str, float], resources: Mapping[str, float]) -> int | None:
    """Return how many workers fit into resources; None if they ask for nothing."""
    counts = [
        math.floor(resources.get(name, 0.0) / amount + 1e-6)
        for name, amount in asked.items()
        if amount > 0
    ]
    return min(counts, default=None)


def _has_labels(found: Mapping[str, str], wanted: Mapping[str, str]) -> bool:
    """Return whether a node may have the labels. Only plain values are compared."""
    return all(
        found.get(name) == value for name, value in wanted.items() if _PLAIN.fullmatch(value)
    )


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
