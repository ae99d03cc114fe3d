"""How a state names its sampler and its source, and when two names mean the same."""

import ast
import re
import warnings
from typing import Any

import numpy as np

from wholegrain._state.validate import WrongStateError, shortened


def source_name(source: Any) -> str:
    """Return the name of a source in a state, which never contains its data."""
    if isinstance(source, (list, tuple, np.ndarray)):
        return str(type(source))
    return repr(source)


def check_same(what: str, saved: Any, own: str) -> None:
    """Raise if a state was saved with another sampler or source.

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
            f"The state was saved with another `{what}`:\n    {saved}\nbut this DataLoader"
            f" has\n    {own}\nIf both are the same, give the class a `__repr__` that is equal."
        )
    if _ADDRESS.search(own):
        warnings.warn(
            f"Cannot check whether the state was saved with the same `{what}`: its `repr` is"
            f" {own}, which contains a memory address. Give its class a `__repr__` that"
            " identifies the data.",
            stacklevel=4,
        )


_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
_SHARD_OPTIONS = re.compile(r"\b(NoSharding|ShardByJaxProcess)\(")
_VALUES_AND_NAME = re.compile(r"(\w+)\((\[.*\]), name='[^']*'\)", re.DOTALL)


def _lasting(name: str) -> str:
    """Return the part of a name that is the same in every run."""
    name = _ADDRESS.sub("", name)
    # The class only tells where index and count came from; the values matter.
    name = _SHARD_OPTIONS.sub("ShardOptions(", name)
    # Grain names a source in shared memory by all its values and a random name.
    if in_memory := _VALUES_AND_NAME.fullmatch(name):
        try:
            return f"{in_memory[1]}(len={len(ast.literal_eval(in_memory[2]))})"
        except (ValueError, SyntaxError):  # A value like `nan`.
            return name
    return name
