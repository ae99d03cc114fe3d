"""`take`, by which stages hand chunks on, is as many calls of `next`."""

import dataclasses
import itertools
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.equivalence.graphs import iter_datasets
from wholegrain.testing import difference

_EXAMPLES = settings().max_examples
_MOST = 80

# How large chunks are depends on the clock, so nothing may be drawn on the way: this is the plan.
_STEPS = st.lists(
    st.tuples(st.integers(1, 9), st.integers(0, 9), st.booleans()), min_size=1, max_size=9
)


@dataclasses.dataclass
class _Error:
    """Stands where an element could not be read."""

    kind: type
    text: str


def _error(error: Exception) -> _Error:
    return _Error(type(error), str(error))


def _by_next(it: Any) -> tuple[list[Any], list[Any]]:
    """Return what each call of `next` gave, and the states before and after."""
    outcomes: list[Any] = []
    states = [it.get_state()]
    while len(outcomes) < _MOST:
        try:
            outcomes.append(next(it))
        except StopIteration:
            break
        except Exception as error:
            outcomes.append(_error(error))
        states.append(it.get_state())
    return outcomes, states


def _stages(ds: Any) -> Any:
    """Return the last stage of a run: the run itself takes one element at a time."""
    run = iter(ds)
    stage = run._output
    stage.kept_alive_by = run
    return stage


def _take(it: Any, count: int) -> list[Any]:
    try:
        taken: list[Any] = it.take(count)
    except Exception as error:
        return [_error(error)]
    return taken


def _assert_same(expected: list[Any], found: list[Any], what: str) -> None:
    where = difference(expected, found)
    assert where is None, f"{what}: {where}\nexpected: {expected}\nfound: {found}"


@settings(max_examples=2 * _EXAMPLES)
@given(failing=st.booleans(), steps=_STEPS, data=st.data())
def test_take_is_as_many_calls_of_next(
    failing: bool, steps: list[tuple[int, int, bool]], data: st.DataObject
) -> None:
    ds = data.draw(iter_datasets(failing))
    outcomes, states = _by_next(iter(ds))
    exact = not any(isinstance(outcome, _Error) for outcome in outcomes)
    it = _stages(ds)
    step = 0
    plan = itertools.cycle(steps)
    while step < len(outcomes):
        count, back, puts_back = next(plan)
        taken = _take(it, count)
        assert 0 < len(taken) <= count
        if step + len(taken) > len(outcomes):
            assert len(outcomes) == _MOST
            return
        _assert_same(outcomes[step : step + len(taken)], taken, f"step {step}")
        step += len(taken)
        if not isinstance(taken[-1], _Error) and it.takes_back and puts_back and step < _MOST:
            back = min(back, len(taken) - 1)
            it.put_back(back)
            step -= back
        # If there were fewer, a filter may have looked at all up to the end already.
        if exact and (len(taken) == count or it.takes_back):
            assert it.get_state() == states[step], f"the state after {step} elements"
    if len(outcomes) < _MOST:
        assert [it.take(3), it.take(3)] == [[], []]


@settings(max_examples=_EXAMPLES)
@given(steps=_STEPS, data=st.data())
def test_next_and_take_can_be_mixed(
    steps: list[tuple[int, int, bool]], data: st.DataObject
) -> None:
    ds = data.draw(iter_datasets())
    outcomes, states = _by_next(iter(ds))
    if any(isinstance(outcome, _Error) for outcome in outcomes):
        return
    it = _stages(ds)
    step = 0
    plan = itertools.cycle(steps)
    while step < min(len(outcomes), _MOST - 10):
        count, _, takes = next(plan)
        taken = it.take(count) if takes else [next(it)]
        _assert_same(outcomes[step : step + len(taken)], taken, f"step {step}")
        step += len(taken)
        if not takes or len(taken) == count:
            assert it.get_state() == states[step]


@settings(max_examples=_EXAMPLES)
@given(data=st.data(), size=st.integers(1, 9))
def test_batches_hold_what_next_gives(data: st.DataObject, size: int) -> None:
    ds = data.draw(iter_datasets())
    outcomes, _ = _by_next(iter(ds))
    if any(isinstance(outcome, _Error) for outcome in outcomes):
        return
    batches = [outcomes[i : i + size] for i in range(0, len(outcomes), size)]
    if len(outcomes) == _MOST:
        batches.pop()
    found = list(itertools.islice(ds.batch(size, batch_fn=list), len(batches)))
    _assert_same(batches, found, "batches")


@settings(max_examples=_EXAMPLES)
@given(data=st.data())
def test_states_restore_behind_failures(data: st.DataObject) -> None:
    ds = data.draw(iter_datasets(failing=True))
    outcomes, states = _by_next(iter(ds))
    if len(outcomes) == _MOST:
        return
    step = data.draw(st.integers(0, len(outcomes)))
    restored = iter(ds)
    restored.set_state(states[step])
    rest, _ = _by_next(restored)
    _assert_same(outcomes[step:], rest, f"after the state of step {step}")
