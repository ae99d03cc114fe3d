"""The seed that a random transformation has when none is given."""

from collections import deque
from collections.abc import Sequence
from typing import Any, Protocol

from wholegrain._core.rng import seed_from_words


class Node(Protocol):
    """A place in the graph."""

    @property
    def parents(self) -> Sequence[Any]:
        """The places it reads from."""


def default_seed(node: Node) -> int | None:
    """Mix the nearest `seed()` on each path above `node` with its distance.

    Prefetching is no stage of its own here: a pipeline has the same random numbers with and
    without workers.
    """
    words: list[int] = []
    queue: deque[tuple[Any, int]] = deque([(node, 0)])
    while queue:
        current, distance = queue.popleft()
        seed = getattr(current, "base_seed", None)
        if seed is not None:
            words += [seed, distance]
        else:
            step = 0 if getattr(current, "only_prefetches", False) else 1
            queue += [(parent, distance + step) for parent in current.parents]
    return seed_from_words(words) if words else None


def resolve_seed(node: Node, seed: int | None, method: str) -> int:
    """Return `seed`, or the default one, or say how to give one."""
    if seed is None:
        seed = default_seed(node)
    if seed is None:
        raise ValueError(
            f"`{method}` needs a seed: pass `{method}(..., seed=...)`, or set one for the whole"
            " pipeline before it with `ds.seed(...)`."
        )
    return seed
