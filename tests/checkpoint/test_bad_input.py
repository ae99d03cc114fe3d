"""States that are damaged, or of another pipeline."""

import copy
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.checkpoint.pipelines import PIPELINES, WORKERS, opened
from wholegrain._core.difference import difference


def as_json(state: Any) -> Any:
    """Return a state as a dict that was read from JSON."""
    return json.loads(state if isinstance(state, bytes) else json.dumps(state))


def set_state(it: Any, state: Any) -> None:
    it.set_state(json.dumps(state).encode() if isinstance(it.get_state(), bytes) else state)


STATES = {name: as_json(opened(make(), 4).get_state()) for name, make in PIPELINES.items()}


def with_damage(state: Any, damage: Callable[[Any], Any]) -> Iterator[Any]:
    """Yield the state with `damage` done to each of its parts in turn."""
    yield damage(state)
    if isinstance(state, dict):
        for key, value in state.items():
            yield {name: part for name, part in state.items() if name != key}
            for damaged in with_damage(value, damage):
                yield {**state, key: damaged}
    elif isinstance(state, list):
        yield state[:-1]
        for place, value in enumerate(state):
            for damaged in with_damage(value, damage):
                yield [*state[:place], damaged, *state[place + 1 :]]


NONSENSE: list[Any] = [None, {}, [], "text", 10**12, -5, 1.5, {"next_index": "x"}, [[1]], {"a": {}}]


def replacing(nonsense: Any) -> Callable[[Any], Any]:
    return lambda part: copy.deepcopy(nonsense)


def bad_states(name: str) -> list[Any]:
    states = [state for other, state in STATES.items() if other != name]
    for nonsense in NONSENSE:
        good = STATES.get(name, STATES["read"])
        states += with_damage(good, replacing(nonsense))
    return states


def error_of(function: Callable[[], Any]) -> Exception | None:
    try:
        function()
    except Exception as error:
        return error
    return None


def check_unharmed(it: Any, fresh: Callable[[], Any], states: list[Any], steps: int) -> int:
    """Give an iterator states that may be wrong; return how many were refused.

    Where one is refused, the iterator has to stand where it stood. Where one is taken, the
    iterator has to be of use afterwards.
    """
    refused = 0
    for state in states:
        before = it.get_state()
        error = error_of(lambda: set_state(it, copy.deepcopy(state)))  # noqa: B023
        if error is not None:
            refused += 1
            assert isinstance(error, (ValueError, LookupError, TypeError)), (state, error)
            assert str(error), state
            assert it.get_state() == before, state
            if refused % 20:
                continue
        else:
            error = error_of(lambda: next(it, None))
            assert isinstance(error, (ValueError, LookupError, TypeError, type(None))), state
            set_state(it, as_json(before))
        reference = opened(fresh(), steps)
        expected, found = ([next(one, None) for _ in range(3)] for one in (reference, it))
        assert difference(expected, found) is None, state
        set_state(it, as_json(before))
        reference.close()
    return refused


@pytest.mark.parametrize("steps", [0, 4])
@pytest.mark.parametrize("name", PIPELINES)
def test_a_state_that_is_refused_leaves_the_iterator_where_it_was(name: str, steps: int) -> None:
    it = opened(PIPELINES[name](), steps)
    states = bad_states(name)
    assert check_unharmed(it, PIPELINES[name], states, steps) > len(STATES) // 2
    it.close()


@pytest.mark.parametrize("name", WORKERS)
def test_so_it_is_with_worker_processes(name: str) -> None:
    it = opened(WORKERS[name](), 4)
    good = as_json(it.get_state())
    states = [STATES["zip"], STATES["pack"], STATES["interleave"]]
    for nonsense in NONSENSE[:6]:
        states += with_damage(good, replacing(nonsense))
    assert check_unharmed(it, WORKERS[name], states, 4) > len(states) // 2
    it.close()
