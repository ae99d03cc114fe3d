"""Journals of mixtures: the changes of weights that a state remembers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def has_journal(state: Any) -> bool:
    """Return whether a state has a mixture whose weights were changed while it was read."""
    if isinstance(state, Mapping):
        return bool(_journal_of(state)) or any(map(has_journal, state.values()))
    return isinstance(state, (list, tuple)) and any(map(has_journal, state))


def with_journals(start: Any, state: Any) -> Any:
    """Return the first position of a pipeline with the journals of a later one.

    Entries say from which step on they hold, so a run from there repeats the changes.
    """
    if isinstance(start, Mapping) and isinstance(state, Mapping):
        both = {
            key: with_journals(part, state[key]) if key in state else part
            for key, part in start.items()
        }
        if journal := _journal_of(state):
            both["mixture"] = {**start.get("mixture", {}), "journal": journal}
        return both
    lists = isinstance(start, (list, tuple)) and isinstance(state, (list, tuple))
    if lists and len(start) == len(state):
        return [with_journals(*pair) for pair in zip(start, state, strict=True)]
    return start


def _journal_of(state: Mapping[str, Any]) -> Any:
    mixture = state.get("mixture")
    is_mixture = isinstance(mixture, Mapping) and {"parents", "index", "stop"} <= set(state)
    return mixture.get("journal") if is_mixture and isinstance(mixture, Mapping) else None
