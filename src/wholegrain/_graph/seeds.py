"""The default seed of random transformations, and checks of seeds."""

from collections import deque
from collections.abc import Sequence
from typing import Any, Protocol

from wholegrain._core.rng import seed_from_words
from wholegrain._core.whole_number import whole_number


class Node(Protocol):
    """A node of the graph."""

    @property
    def parents(self) -> Sequence[Any]:
        """The nodes that it reads from."""


def default_seed(node: Node) -> int | None:
    """Combine the nearest `seed()` on each path upstream of `node` with its distance.

    Prefetching does not count as distance, so that a pipeline has the same random numbers with and
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
    """Return `seed` or the default; raise an error that says how to pass one if there is none."""
    if seed is None:
        seed = default_seed(node)
    if seed is None:
        raise ValueError(
            f"`{method}` needs a seed: pass `{method}(..., seed=...)`, or set one for the whole"
            " pipeline upstream of it with `ds.seed(...)`."
        )
    return seed


def checked_seed(seed: Any) -> Any:
    """Return a seed for random numbers, or raise: one or several numbers of at least 0."""
    if isinstance(seed, Sequence) and not isinstance(seed, (str, bytes)):
        for part in seed:
            checked_seed(part)
        return seed
    number = whole_number("seed", seed)
    if number < 0:
        raise ValueError(f"`seed` cannot be negative, but got seed={seed}.")
    return number


def checked_base_seed(seed: Any) -> Any:
    """Check the argument of `ds.seed`, and return it; None means no seed."""
    if isinstance(seed, str):  # A ValueError, as in numpy and therefore in Grain.
        raise ValueError(f"`seed` has to be a whole number, but got {seed!r}.")
    return None if seed is None else checked_seed(seed)
