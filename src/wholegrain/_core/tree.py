"""Elements as trees: dicts, lists and tuples are containers, everything else is a leaf.

If jax is installed its rules apply, because the arrays usually go to jax: dict keys are visited in
sorted order, None is an empty container, and classes registered with jax are containers. jax is not
imported for that: only a program that has imported it can have registered classes.
"""

import functools
import importlib.util
import sys
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import itemgetter
from typing import Any

import numpy as np

from wholegrain._core.names import kind_of

# These types are leaves by all rules. Most leaves have one of them and need no further check.
_LEAVES = frozenset({np.ndarray, int, float, bool, str, bytes, np.int64, np.float32, np.float64})


FEW = 16
"""For fewer trees, a loop is faster than functions that take them together."""


class StructureMismatchError(ValueError):
    """The elements of a batch have different containers, keys or lengths."""


@functools.cache
def follows_jax() -> bool:
    """Return whether jax is installed, so that its rules for trees apply."""
    return importlib.util.find_spec("jax") is not None


def map_leaves(function: Callable[..., Any], tree: Any, *rest: Any) -> Any:
    """Return a tree like `tree`, with `function` applied to its leaves and those of `rest`."""
    if rest:
        return zip_leaves(lambda leaves: function(*leaves), [tree, *rest])
    return zip_leaves(lambda leaves: function(leaves[0]), [tree])


def zip_leaves(function: Callable[[list[Any]], Any], trees: Sequence[Any]) -> Any:
    """Return a tree like the first one; each leaf is `function` of the list of the trees' leaves.

    Raises:
        StructureMismatchError: If the trees do not have the same structure.
    """
    first = trees[0]
    kind = type(first)
    if kind in _LEAVES:
        return function(list(trees))
    if kind is dict:
        # Most values are leaves, so save a recursive call for each.
        return {
            key: function(column) if type(column[0]) in _LEAVES else zip_leaves(function, column)
            for key, column in _columns_by_key(first, trees).items()
        }
    if kind is tuple:
        return tuple([zip_leaves(function, list(leaves)) for leaves in _columns(first, trees)])
    if kind is list:
        return [zip_leaves(function, list(leaves)) for leaves in _columns(first, trees)]
    if first is None and follows_jax():
        if any(tree is not None for tree in trees):
            raise StructureMismatchError("One element has None where another has a value.")
        return None
    if isinstance(first, tuple) and hasattr(first, "_fields"):
        return kind(*[zip_leaves(function, list(leaves)) for leaves in _columns(first, trees)])
    if kind is OrderedDict:
        keys = _common_keys(first, trees, ordered=True)
        return OrderedDict((k, zip_leaves(function, [tree[k] for tree in trees])) for k in keys)
    if kind is defaultdict:
        keys = _common_keys(first, trees)
        pairs = [(k, zip_leaves(function, [tree[k] for tree in trees])) for k in keys]
        return defaultdict(first.default_factory, pairs)
    if follows_jax():
        if _is_registered_with_jax(first):
            return _zip_jax(function, trees)
    elif isinstance(first, Mapping):
        pairs = [
            (k, zip_leaves(function, [tree[k] for tree in trees]))
            for k in _common_keys(first, trees)
        ]
        try:
            return kind(pairs)
        except TypeError:
            return dict(pairs)
    elif isinstance(first, (list, tuple)):
        return kind([zip_leaves(function, list(leaves)) for leaves in _columns(first, trees)])
    return function(list(trees))


def leaves(tree: Any) -> list[Any]:
    """Return the leaves of `tree` in order."""
    found: list[Any] = []
    map_leaves(found.append, tree)
    return found


def are_alike(trees: Sequence[Any], kind: Any, length: int) -> bool:
    """Return whether all trees have the same type and length."""
    if len(trees) >= FEW:
        return set(map(type, trees)) == {kind} and set(map(len, trees)) == {length}
    for tree in trees:  # noqa: SIM110 - A generator would take longer.
        if type(tree) is not kind or len(tree) != length:
            return False
    return True


def _columns_by_key(first: dict[Any, Any], trees: Sequence[Any]) -> dict[Any, list[Any]]:
    """Check that all dicts have the same keys, and return their values by key in visiting order."""
    if len(trees) == 1:
        return {key: [first[key]] for key in _in_order(first)}
    if are_alike(trees, dict, len(first)):
        try:
            # The same number of keys, and none is missing, so they are the same.
            if len(trees) < FEW:
                return {key: [tree[key] for tree in trees] for key in _in_order(first)}
            return {key: list(map(itemgetter(key), trees)) for key in _in_order(first)}
        except KeyError:
            pass
    return {key: [tree[key] for tree in trees] for key in _common_keys(first, trees)}


def _common_keys(first: Any, trees: Sequence[Any], ordered: bool = False) -> list[Any]:
    """Check that all trees have the keys of `first`, and return these in visiting order."""
    keys = first.keys()
    for tree in trees:
        if not isinstance(tree, Mapping):
            raise StructureMismatchError(
                f"One element has {kind_of(first)} where another has {kind_of(tree)}."
            )
        if tree.keys() != keys:
            raise StructureMismatchError(
                f"One element has the keys {list(keys)} where another has {list(tree)}."
            )
    return list(keys) if ordered else _in_order(first)


def _in_order(keys: Iterable[Any]) -> list[Any]:
    """Return the keys of a dict in visiting order."""
    if not follows_jax():
        return list(keys)
    try:
        return sorted(keys)
    except TypeError:
        return list(keys)


def _columns(first: Any, trees: Sequence[Any]) -> Any:
    kind, length = type(first), len(first)
    if are_alike(trees, kind, length):
        return zip(*trees, strict=True)
    for tree in trees:
        if type(tree) is not kind or len(tree) != length:
            # Without jax, Grain accepts a tuple for a list if the lengths agree.
            if isinstance(tree, (list, tuple)) and len(tree) == length and not follows_jax():
                continue
            found = kind_of(tree)
            if isinstance(tree, (list, tuple)):
                found += f" of length {len(tree)}"
            raise StructureMismatchError(
                f"One element has {kind_of(first)} of length {length} where another has {found}."
            )
    return zip(*trees, strict=True)


def _is_registered_with_jax(value: Any) -> bool:
    jax = sys.modules.get("jax")
    tree_util = getattr(jax, "tree_util", None)
    return tree_util is not None and not tree_util.all_leaves([value])


def _zip_jax(function: Callable[[list[Any]], Any], trees: Sequence[Any]) -> Any:
    tree_util = sys.modules["jax"].tree_util
    first, *rest = trees
    try:
        return tree_util.tree_map(lambda *leaves: function(list(leaves)), first, *rest)
    except ValueError as error:
        raise StructureMismatchError(str(error)) from error
