"""Positions that follow from a number of elements, without reading any of them.

There are two kinds of such pipelines. In a one-to-one pipeline (`is_one_to_one`) every element read
yields one element, so the number of elements read is the whole state, with any number of workers:
`workers` splits such states. In others, the state after a number of elements can be computed
(`CountedStates`). These have no workers; they may also contain batches, limits, and stages that
count their elements.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from wholegrain._core.types import State
from wholegrain._state import failures


class CountingRule(NamedTuple):
    """The effect of one stage on positions, in the class attribute `counting`.

    It may be a property, which returns None for instances without such a rule. Subclasses do not
    inherit it, because they may behave differently.

    Args:
        size: How many of the parent's elements make one.
        drop_remainder: Whether a smaller number of them at the end is dropped.
        counter: The key under which its state counts its elements, next to the parent's state.
        limit: The maximum number of elements.
        tolerates: Whether its state has counts of failures, once there were any.
    """

    size: int = 1
    drop_remainder: bool = False
    counter: str | None = None
    limit: int | None = None
    tolerates: bool = False


_SAME = CountingRule()
_TOLERATES = CountingRule(tolerates=True)
_DRAWS = CountingRule(counter="index_for_rng")


def is_one_to_one(dataset: Any) -> bool:
    """Whether every position read yields one element, so that their count is the whole state."""
    while not is_bridge(dataset):
        if _own_rule(dataset) not in (_SAME, _DRAWS, _TOLERATES):
            return False
        dataset = dataset.parents[0]
    return bool(dataset.keeps_places)


def passes_one_to_one(dataset: Any) -> bool:
    """Whether the iterators of a pipeline return one element for each that they read, or fail."""
    while not is_bridge(dataset):
        is_same = _own_rule(dataset) in (_SAME, _DRAWS, _TOLERATES)
        if not is_same and not getattr(dataset, "replaces_failed", False):
            return False
        dataset = dataset.parents[0]
    return True


class UncountableError(ValueError):
    """A position of the pipeline does not follow from the number of elements."""


class CountedStates:
    """Computes the states of a pipeline.

    Args:
        dataset: The pipeline, without workers.

    Raises:
        UncountableError: If a stage makes that impossible.
    """

    def __init__(self, dataset: Any) -> None:
        rules: list[CountingRule] = []
        while not is_bridge(dataset):
            rules.append(rule_of(dataset))
            dataset = dataset.parents[0]
        if not dataset.keeps_places:
            raise UncountableError(
                "some elements are missing after `filter` or a flat map on a MapDataset, and their"
                " number is not known before they are read"
            )
        self._rules = tuple(rules)
        self._length = len(dataset.parents[0])

    def left(self, state: State) -> int:
        """Return how many elements follow after `state`."""
        return self._left(state, 0)

    def _left(self, state: State, depth: int) -> int:
        if depth == len(self._rules):
            return max(0, self._length - int(state["next_index"]))
        rule = self._rules[depth]
        if rule.tolerates and failures.is_wrapped(state):
            return self._left(state["parent"], depth + 1)
        parent_left = self._left(state if rule.counter is None else state["parent"], depth + 1)
        rounded = parent_left if rule.drop_remainder else parent_left + rule.size - 1
        left = rounded // rule.size
        if rule.limit is not None and rule.counter is not None:
            left = min(left, max(0, rule.limit - int(state[rule.counter])))
        return left

    def after(self, state: State, count: int) -> State:
        """Return the state `count` elements after `state`. At least that many have to follow."""
        return self._after(state, count, 0, ended=False)

    def _after(self, state: State, count: int, depth: int, ended: bool) -> State:
        # `ended`: one more element was requested, and the end was found.
        if depth == len(self._rules):
            index = int(state["next_index"])
            at = max(index, self._length) if ended else index + count
            return {**state, "next_index": at}
        rule = self._rules[depth]
        if rule.tolerates and failures.is_wrapped(state):
            return {**state, "parent": self._after(state["parent"], count, depth + 1, ended)}
        parent = state if rule.counter is None else state["parent"]
        count_below = count
        if rule.limit is not None and rule.counter is not None:
            # A stage that has reached its limit does not read from its parent again.
            ended = ended and int(state[rule.counter]) + count < rule.limit
        if rule.size > 1:
            left = self._left(parent, depth + 1)
            ended = ended or count * rule.size > left
            count_below = left if ended else count * rule.size
        after = self._after(parent, count_below, depth + 1, ended)
        if rule.counter is None:
            return after
        return {**state, "parent": after, rule.counter: int(state[rule.counter]) + count}


def read_until(state: State) -> int:
    """Return the next index of the MapDataset when the pipeline has `state`."""
    while "parent" in state:
        state = state["parent"]
    return int(state["next_index"])


def rule_of(dataset: Any) -> CountingRule:
    """Return the rule of a stage; raise if it has none."""
    rule = _own_rule(dataset)
    if rule is None:
        raise UncountableError(
            f"after {dataset}, an element cannot be located before the elements that precede it are"
            " read"
        )
    return rule


def _own_rule(dataset: Any) -> CountingRule | None:
    # Only of the class itself, because a subclass may behave differently.
    rule = dataset.counting if "counting" in vars(type(dataset)) else None
    return rule if isinstance(rule, CountingRule) else None


def is_bridge(dataset: Any) -> bool:
    """Whether a dataset reads a MapDataset in order, so that its position is an index."""
    return getattr(type(dataset), "is_bridge", False) is True
