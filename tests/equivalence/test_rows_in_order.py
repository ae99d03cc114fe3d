"""Maps, filters and flat maps in a row on iterators: chunks and failures leave no trace."""

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import wholegrain as wg

_HERE = wg.ReadOptions(num_threads=0, prefetch_buffer_size=0)
_COUNT = 40


class _Calls:
    """The functions of one pipeline. Each fails at some elements, and counts its calls."""

    def __init__(self, bad: dict[int, set[int]]) -> None:
        self._bad = bad
        self.seen: Counter[tuple[int, Any]] = Counter()

    def of(self, stage: int, element: Any) -> Any:
        self.seen[stage, element] += 1
        if element[0] in self._bad.get(stage, ()):
            raise KeyError(stage, element[0])
        return element

    def pipeline(self, stages: str) -> Any:
        ds: Any = wg.MapDataset.range(_COUNT).map(lambda x: (x,)).to_iter_dataset(_HERE)
        for number, stage in enumerate(stages):
            ds = self._add(ds, number, stage)
        return ds

    def _add(self, ds: Any, number: int, stage: str) -> Any:
        if stage == "m":
            return ds.map(lambda x: (*self.of(number, x), "m"))
        if stage == "i":
            return ds.map_with_index(lambda index, x: (*self.of(number, x), index))
        if stage == "r":
            return ds.random_map(lambda x, rng: (*self.of(number, x), rng.integers(99)), seed=1)
        if stage == "f":
            return ds.filter(lambda x: self.of(number, x)[0] % 3)
        if stage == "t":
            return wg.experimental.ThreadPrefetchIterDataset(ds, prefetch_buffer_size=5)
        return wg.experimental.FlatMapIterDataset(ds, _Parts(self, number))


class _Parts(wg.experimental.FlatMapTransform):
    """Zero to two parts of each element."""

    max_fan_out = 2

    def __init__(self, calls: _Calls, number: int) -> None:
        self._calls, self._number = calls, number

    def flat_map(self, element: Any) -> list[Any]:
        self._calls.of(self._number, element)
        return [(*element, part) for part in range(element[0] % 3)]


def _outcomes(it: Any, states: list[Any] | None = None) -> list[Any]:
    found: list[Any] = []
    while True:
        if states is not None:
            states.append(it.get_state())
        try:
            found.append(next(it))
        except StopIteration:
            return found
        except KeyError as error:
            found.append(error.args)


_BAD = st.dictionaries(st.integers(0, 3), st.sets(st.integers(0, _COUNT - 1), max_size=2))


@given(stages=st.text("mirfp", min_size=1, max_size=4), bad=_BAD)
def test_states_at_every_step_change_nothing_and_can_be_restored(
    stages: str, bad: dict[int, set[int]]
) -> None:
    calls, stepwise = _Calls(bad), _Calls(bad)
    found = _outcomes(iter(calls.pipeline(stages)))
    states: list[Any] = []
    assert _outcomes(iter(stepwise.pipeline(stages)), states) == found
    for place in range(0, len(states), 7):
        it = iter(_Calls(bad).pipeline(stages))
        it.set_state(states[place])
        assert it.get_state() == states[place]
        assert _outcomes(it) == found[place:]


@given(stages=st.text("mirfp", min_size=1, max_size=4), bad=_BAD)
def test_a_function_is_called_once_for_each_element(stages: str, bad: dict[int, set[int]]) -> None:
    calls = _Calls(bad)
    found = Counter(map(str, _outcomes(iter(calls.pipeline(stages)))))
    # The flat map has equal parts of an element only if it is not the last stage.
    assert all(count == 1 for (_, _), count in calls.seen.items())
    assert found


@pytest.mark.parametrize("stages", ["tm", "mtm", "itr", "ptm", "mt"])
def test_a_thread_in_between_changes_no_element_and_no_state(stages: str) -> None:
    bad = {0: {5}, 1: {20}, 2: {33}}
    without = stages.replace("t", "m")
    states: list[Any] = []
    found = _outcomes(iter(_Calls({}).pipeline(stages)), states)
    assert len(found) == len(_outcomes(iter(_Calls({}).pipeline(without))))
    for place in range(0, len(states), 5):
        it = iter(_Calls({}).pipeline(stages))
        it.set_state(states[place])
        assert _outcomes(it) == found[place:]
    failing = _outcomes(iter(_Calls(bad).pipeline(stages)))
    assert [one for one in failing if len(one) == 2 and one[0] in bad and one[1] in bad[one[0]]]


@pytest.mark.parametrize("stages", ["m", "if", "p", "mt"])
def test_interleaved_rows_keep_their_turns(stages: str) -> None:
    def interleaved(bad: dict[int, set[int]]) -> Any:
        parts = [_Calls(bad).pipeline(stages) for _ in range(3)]
        return wg.experimental.InterleaveIterDataset(parts, cycle_length=2)

    bad = {0: {3, 17}}
    states: list[Any] = []
    stepwise = _outcomes(iter(interleaved(bad)), states)
    assert _outcomes(iter(interleaved(bad))) == stepwise
    for place in range(0, len(states), 7):
        it = iter(interleaved(bad))
        it.set_state(states[place])
        assert it.get_state() == states[place]
        assert _outcomes(it) == stepwise[place:]
