"""Steps: which position of a pipeline has a number of elements before it, where that is arithmetic.

`CountedStates` does the same for pipelines without workers. With a fixed number of workers, or of
lanes, each has its own count: step `n` of `w` workers is element `n // w` of worker `n % w`.
"""

from __future__ import annotations

from typing import Any

from wholegrain._core.types import State
from wholegrain._observe.shown import THREAD
from wholegrain._state import counting, lanes, workers
from wholegrain._state.counting import CountingRule, UncountableError


class Steps:
    """The positions of a pipeline that follow from numbers of elements.

    Args:
        dataset: The pipeline.

    Raises:
        UncountableError: If a stage makes that impossible.
    """

    def __init__(self, dataset: Any) -> None:
        self._rules: list[CountingRule] = []
        while not (counting.is_bridge(dataset) or _has_shares(dataset)):
            if _only_runs_ahead(dataset):
                self._rules.append(CountingRule())
            else:
                self._rules.append(counting.rule_of(dataset))
                if self._rules[-1].tolerates:
                    raise UncountableError("elements that fail are left out")
            dataset = dataset.parents[0]
        bottom: Any
        if counting.is_bridge(dataset):
            bottom = _Bridge(dataset)
        else:
            bottom = _Shares(dataset) if hasattr(dataset, "takes_turns") else _LaneSteps(dataset)
        self._bottom = bottom
        # The number of elements of each stage, the last stage first.
        self._totals = [bottom.total]
        for rule in reversed(self._rules):
            below = self._totals[0]
            total = (below if rule.drop_remainder else below + rule.size - 1) // rule.size
            self._totals.insert(0, total if rule.limit is None else min(total, rule.limit))

    @property
    def total(self) -> int:
        """The number of elements."""
        return int(self._totals[0])

    def state_near(self, step: int) -> tuple[int, State]:
        """Return the closest position at or before a step that is known, and its own step."""
        step = min(step, self.total)
        count = step
        for rule, below in zip(self._rules, self._totals[1:], strict=True):
            count = min(count * rule.size, below)
        near = self._bottom.near(count)
        if near != count:
            # Round down to a step that begins where an element of the bottom does.
            count = near
            for rule in reversed(self._rules):
                count //= rule.size
            return self.state_near(count) if count < step else (0, self._state_at(0))
        return step, self._state_at(step)

    def _state_at(self, step: int, depth: int = 0) -> State:
        if depth == len(self._rules):
            return self._bottom.state_at(step)  # type: ignore[no-any-return]
        rule = self._rules[depth]
        below = min(step * rule.size, self._totals[depth + 1])
        parent = self._state_at(below, depth + 1)
        return parent if rule.counter is None else {"parent": parent, rule.counter: step}

    def step_of(self, state: State) -> int | None:
        """Return how many elements come before a position; None if it does not tell."""
        try:
            return self._step_of(state, 0)
        except (KeyError, TypeError, ValueError):
            return None  # For example a state that was taken with another number of workers.

    def _step_of(self, state: State, depth: int) -> int:
        if depth == len(self._rules):
            return self._bottom.step_of(state)  # type: ignore[no-any-return]
        rule = self._rules[depth]
        if rule.counter is not None:
            return int(state[rule.counter])
        below = self._step_of(state, depth + 1)
        return int(min(-(-below // rule.size), self._totals[depth]))


class _Bridge:
    """The positions in a MapDataset that is read in order."""

    def __init__(self, dataset: Any) -> None:
        if not dataset.gives_all:
            raise UncountableError("elements are missing, and only reading tells which ones")
        self.total = len(dataset.parents[0])

    def near(self, count: int) -> int:
        return count

    def state_at(self, count: int) -> State:
        return {"next_index": count}

    def step_of(self, state: State) -> int:
        return int(workers.join(state)["next_index"])


class _Shares:
    """The positions of workers, or lanes, that take turns."""

    def __init__(self, dataset: Any) -> None:
        shares = dataset.shares
        self._shares = [Steps(shares.share(number)) for number in range(shares.count)]
        totals = [share.total for share in self._shares]
        self.total = sum(totals)
        # As long as no worker has ended, their turns are regular.
        self._regular = len(totals) * min(totals)

    def near(self, count: int) -> int:
        return min(count, self._regular)

    def state_at(self, count: int) -> State:
        counts = workers.counts_in_turn(count, len(self._shares))
        pairs = zip(self._shares, counts, strict=True)
        return workers.in_turn(
            [share.state_near(own)[1] for share, own in pairs], count % len(counts)
        )

    def step_of(self, state: State) -> int:
        states = workers.states_of_workers(state)
        if states is None or len(states) != len(self._shares):
            raise ValueError("a state of another number of workers")
        found = [
            0 if own is None else share.step_of(own)
            for share, own in zip(self._shares, states, strict=True)
        ]
        return sum(found)  # type: ignore[arg-type]  # None raises a TypeError.


class _LaneSteps:
    """The positions of the lanes of a host, all after the same number of steps."""

    def __init__(self, dataset: Any) -> None:
        steps, shares = dataset.steps, dataset.shares
        self._steps = steps
        self._lanes = {lane: Steps(shares.share(lane)) for lane in steps.owned}
        # In a pipeline without end, an epoch begins where the one before it has ended.
        self._before = dataset.steps_before
        self._regular = min(lane.total for lane in self._lanes.values()) - self._before
        total = steps.total()
        self.total = self._regular if total is None else total

    def near(self, count: int) -> int:
        return min(count, int(self._regular))

    def state_at(self, count: int) -> State:
        steps, at = self._steps, self._before + count
        padding = self._states(at - 1) if steps.pads and count else {}
        return lanes.lane_state(steps.lanes, count * steps.rows, self._states(at), (), padding)

    def _states(self, count: int) -> dict[int, State]:
        return {lane: steps.state_near(count)[1] for lane, steps in self._lanes.items()}

    def step_of(self, state: Any) -> int:
        return int(state["elements_per_lane"]) // int(self._steps.rows)


def _has_shares(dataset: Any) -> bool:
    return getattr(dataset, "takes_turns", False) or hasattr(dataset, "steps_before")


def _only_runs_ahead(dataset: Any) -> bool:
    """Return whether a stage has the elements and the states of its parent."""
    is_prefetching: bool = getattr(dataset, "only_prefetches", False)
    return is_prefetching or getattr(dataset, "runs_ahead", None) == THREAD


def steps_of(dataset: Any) -> Steps | None:
    """Return the steps of a pipeline; None if they are not arithmetic."""
    try:
        return Steps(dataset)
    except (UncountableError, IndexError):  # No parents: a source that is read in order.
        return None
