"""States, names and notes: small things that many stages use."""

import functools
from typing import Any

from wholegrain._core.errors import add_stage_note, has_stage_note
from wholegrain._core.names import transform_name
from wholegrain._state.validate import copy_state


def test_a_copied_state_shares_nothing_that_could_change() -> None:
    state: dict[str, Any] = {"a": [1, {"b": 2}], "c": {"d": (1, 2)}, "e": None}
    copied = copy_state(state)
    assert copied == state
    state["a"][1]["b"] = 3
    state["c"]["d"] = ()
    assert copied == {"a": [1, {"b": 2}], "c": {"d": (1, 2)}, "e": None}


def _function(x: Any) -> Any:
    return x


class Plain:
    def method(self, x: Any) -> Any:
        return x


class Named(Plain):
    def __str__(self) -> str:
        return "named"


class Shown(Plain):
    def __repr__(self) -> str:
        return "shown"


class Derived(Named):
    pass


def test_transformations_have_names() -> None:
    assert transform_name(abs) == "abs"
    assert transform_name(Plain()) == "Plain"
    assert transform_name(Named()) == "named"
    assert transform_name(Derived()) == "named"
    assert transform_name(Shown()) == "shown"
    assert transform_name(Plain) == "Plain"
    line = _function.__code__.co_firstlineno
    place = f"@ .../tests/core/test_small_parts.py:{line}"
    assert transform_name(_function) == f"_function {place}"
    assert transform_name(lambda x: x).startswith("<lambda> @ .../tests/core/")
    assert transform_name(Plain().method).startswith("method @ .../tests/core/")
    assert "functools.partial" in transform_name(functools.partial(_function, 1))
    assert transform_name(3) == "3"


def test_a_note_is_added_once() -> None:
    error = ValueError("x")
    error.add_note("the user's")
    assert not has_stage_note(error)
    for _ in range(2):
        add_stage_note(error, "here")
    add_stage_note(error, "there")
    assert error.__notes__ == ["the user's", "wholegrain: here", "wholegrain: there"]
    assert has_stage_note(error)
