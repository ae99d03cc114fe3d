"""Course: where a run has begun, so that its steps can be counted."""

from __future__ import annotations

from typing import Any, NamedTuple

from wholegrain._core.types import State
from wholegrain._graph.anchors import Anchor
from wholegrain._state.steered import is_steered


class Course(NamedTuple):
    """The graph that a run reads, and the position where it has begun.

    Args:
        dataset: The last stage. It is not the user's if steps are skipped or elements digested.
        state: The position of the last `set_state`; None for the first element.
        taken: How many elements the stages had handed out then.
        step: The step of that position, if it is known and does not follow from the state.
    """

    dataset: Any
    state: State | None
    taken: int
    step: int | None = None

    def from_anchor(self, anchor: Anchor) -> Course:
        """Return the course of a run that has gone to another position."""
        return Course(self.dataset, anchor.state, anchor.taken)

    def dataset_for(self, state: Any, plain: Any) -> Any:
        """Return the last stage of the graph that a state belongs to.

        Args:
            state: The state that the run is to go to.
            plain: The user's dataset.
        """
        if not is_steered(state):
            return plain
        if self.dataset is not plain:
            return self.dataset
        from wholegrain._graph.steered_run import SteeredIterDataset  # Rarely used.

        return SteeredIterDataset(plain)
