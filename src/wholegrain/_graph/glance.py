"""What others see of a run while it moves. Nothing here waits for the run, or moves it."""

from __future__ import annotations

import dataclasses
from typing import Any

from wholegrain._core.interruption import suppress_errors
from wholegrain._graph import nodes

_MOST_ERRORS = 20


class Glance:
    """A run, as of its last anchor: that is a few milliseconds ago, unless it hangs.

    Args:
        run: The run.
    """

    def __init__(self, run: Any) -> None:
        self.opened_from = run.opened_from
        self._run = run

    def get_state(self) -> Any:
        """Return a recent state; raise if there is none yet."""
        state = self._run.recent[0].state
        if state is None:
            raise ValueError("The run has not begun.")
        return state

    def as_dict(self) -> dict[str, Any]:
        """Return what there is to see besides the measurements, as plain values."""
        errors = self._run.errors()
        return {
            "is_waiting": bool(self._run.user),
            "elements": self._run.handed_out,
            "mixture": self._mixture(),
            "errors": [record.as_dict() for record in errors[-_MOST_ERRORS:]],
            "error_count": len(errors),
            "lanes": self._lanes(),
        }

    def _mixture(self) -> list[dict[str, Any]]:
        with suppress_errors():  # There is none, or its shares do not follow from a state.
            found = nodes.describe_mixture(self)
            return [
                {"component": str(name), **dataclasses.asdict(share)}
                for name, share in found.components.items()
            ]
        return []

    def _lanes(self) -> list[dict[str, Any]]:
        for iterator in self._run.observed.iterators():
            with suppress_errors():  # Most have no lanes.
                return [
                    {"lane": lane, "run_by": run_by}
                    for lane, run_by in sorted(iterator.lanes_run_by.items())
                ]
        return []
