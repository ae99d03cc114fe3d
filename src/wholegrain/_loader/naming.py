"""How a state names the sampler and the source that it belongs to, and when two are the same."""

import ast
import re
import warnings
from typing import Any

import numpy as np

from wholegrain._state.validate import WrongStateError, shortened


def source_name(source: Any) -> str:
    """Return how a source is named in a state: never by its data."""
    if isinstance(source, (list, tuple, np.ndarray)):
        return str(type(source))
    return repr(source)


def check_same(what: str, saved: Any, own: str) -> None:
    """Raise if a state was taken with another sampler or source.

    Args:
        what: The argument of the DataLoader that is compared.
        saved: Its name in the state.
        own: Its name here.
    """
    if saved == own:
        return
    if not isinstance(saved, str):
        raise WrongStateError(
            f"The state names the `{what}` {shortened(saved)}, but this DataLoader has {own}."
        )
    if _lasting(saved) != _lasting(own):
        raise ValueError(
            f"The state was taken with another `{what}`:\n    {saved}\nbut this DataLoader"
            f" has\n    {own}\nIf they are the same, give the class a `__repr__` that says so."
        )
    if _ADDRESS.search(own):
        warnings.warn(
            f"Whether the state was taken with the same `{what}` cannot be checked: it is called"
            f" {own}, and elsewhere it has another address. Give its class a `__repr__` that"
            " identifies the data.",
            stacklevel=4,
        )


_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
_SHARD_OPTIONS = re.compile(r"\b(NoSharding|ShardByJaxProcess)\(")
_VALUES_AND_NAME = re.compile(r"(\w+)\((\[.*\]), name='[^']*'\)", re.DOTALL)


def _lasting(name: str) -> str:
    """Return the part of a name that is the same in every run."""
    name = _ADDRESS.sub("", name)
    # The class says where index and count came from; they are what counts.
    name = _SHARD_OPTIONS.sub("ShardOptions(", name)
    # Grain names a source in shared memory by all its values and a random name.
    if in_memory := _VALUES_AND_NAME.fullmatch(name):
        try:
            return f"{in_memory[1]}(len={len(ast.literal_eval(in_memory[2]))})"
        except (ValueError, SyntaxError):  # A value like `nan`.
            return name
    return name
