"""States in the form that PyTorch's programs save: a flat dict whose keys never change."""

import json
from collections.abc import Mapping
from typing import Any

from wholegrain._state.validate import WrongStateError, shortened

KEY = "state"


def to_state_dict(state: Any) -> dict[str, Any]:
    """Return a state as the only value of a dict.

    It is text. `torch.distributed.checkpoint` saves each value of a nested dict under a key of its
    own and can only load keys that exist before loading, but the keys inside a state may change
    from element to element.
    """
    return {KEY: to_text(state)}


def to_text(state: Any) -> Any:
    """Return a state as JSON. A state of a user's iterator that is no JSON is returned as it is."""
    if isinstance(state, (bytes, str)):
        return state
    try:
        text = json.dumps(state)
        return text if json.loads(text) == state else state
    except (TypeError, ValueError):
        return state


def of_state_dict(state_dict: Any) -> Any:
    """Return the state in what `to_state_dict` returned."""
    if not isinstance(state_dict, Mapping) or KEY not in state_dict:
        raise WrongStateError(
            f"`load_state_dict` takes what `state_dict` returned, a dict with the key {KEY!r}, but"
            f" got {shortened(state_dict)}."
        )
    return of_text(state_dict[KEY])


def of_text(state: Any) -> Any:
    """Return the state in what `to_text` returned."""
    if not isinstance(state, str):
        return state
    try:
        return json.loads(state)
    except ValueError as error:
        raise WrongStateError(
            f"The state is no JSON, so nothing that `state_dict` has returned: {shortened(state)}."
        ) from error
