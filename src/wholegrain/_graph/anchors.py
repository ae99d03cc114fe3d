"""Anchors: recent positions of a run, to which it returns after an interruption."""

from __future__ import annotations

from typing import Any, NamedTuple

from wholegrain._core.interruption import is_interruption
from wholegrain._core.types import State
from wholegrain._graph.dataset import upstream
from wholegrain._graph.iterator import DatasetIterator
from wholegrain._observe.shown import WORKERS, runs_ahead_of
from wholegrain._state.spec import CheckpointSpec

_REPLAY_S = 10e-3
"""About how long it may take to compute the elements since the anchor again."""

_SHARE = 0.005
"""The share of the run's time that taking anchors may cost."""

_MOST_REPLAYED = 1 << 16


class Anchor(NamedTuple):
    """A position of a run."""

    state: State | None
    """The state of the stages; None at the first element of the dataset."""

    taken: int
    """How many elements the stages had handed out."""

    at: float
    """When the state was taken."""

    def steps_to_next(self, taken: int, began: float, now: float) -> int:
        """Return after how many elements to take the anchor after the next.

        Args:
            taken: How many elements the stages have handed out at the next anchor.
            began: When the state for the next anchor was requested.
            now: When it was there.
        """
        interval = max(_REPLAY_S, (now - began) / _SHARE)
        elapsed = max(now - self.at, 1e-9)
        since = max(1, taken - self.taken)
        return max(1, min(_MOST_REPLAYED, 2 * since, int(since * interval / elapsed)))


def moves_past_element(output: DatasetIterator[Any]) -> bool:
    """Read an element again that was returned before; return False if there is none."""
    while True:
        try:
            next(output)
        except StopIteration:
            return False
        except Exception as error:
            if is_interruption(error):
                raise
            continue  # The same error was raised before the interruption, too.
        return True


def may_fail_to_move(dataset: Any) -> bool:
    """Return whether going to a state may fail when its last stages are opened and moved.

    That is if they read elements on the way, which may show that a state is wrong. Pipelines with
    stages that are costly to open, or that keep what they have read, do not count.
    """
    stages = upstream(dataset)
    if any(runs_ahead_of(one) == WORKERS or getattr(one, "is_cache", False) for one in stages):
        return False
    return any(getattr(one, "checkpoint", CheckpointSpec()).rereads for one in stages)
