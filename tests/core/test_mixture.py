"""Mixtures: how many elements of each component stand among the first so many."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wholegrain._core import mixture
from wholegrain._core.mixture import Mixture, integer_weights

_EXAMPLES = settings().max_examples
_WEIGHTS = st.lists(st.integers(1, 60), min_size=1, max_size=5)


def _by_definition(index: int, weights: list[int]) -> tuple[int, int]:
    """Return component and key as the formula says, in exact integers."""

    def counts(k: int) -> list[int]:
        found, rest = [], sum(weights)
        for weight in weights:
            below = k * (rest - weight) // rest
            found.append(k - below)
            k, rest = below, rest - weight
        return found

    before, behind = counts(index), counts(index + 1)
    component = next(j for j in range(len(weights)) if before[j] != behind[j])
    return component, behind[component] - 1


@given(weights=_WEIGHTS, index=st.integers(-(10**6), 10**6) | st.integers(-(2**62), 2**62))
def test_places_are_those_of_the_formula(weights: list[int], index: int) -> None:
    place = Mixture(weights).locate(index)
    assert place == _by_definition(index, weights)
    assert place[0] == Mixture(weights).component(index)


@settings(max_examples=_EXAMPLES // 2)
@given(weights=st.lists(st.integers(1, 2**33), min_size=1, max_size=4), data=st.data())
def test_large_periods_need_no_table(weights: list[int], data: st.DataObject) -> None:
    indices = data.draw(st.lists(st.integers(-(2**40), 2**40), min_size=1, max_size=5))
    mixed = Mixture(weights)
    components, keys = mixed.locate_many(np.array(indices, dtype=np.int64))
    expected = [_by_definition(index, weights) for index in indices]
    assert list(zip(components.tolist(), keys.tolist(), strict=True)) == expected
    assert [mixed.locate(index) for index in indices] == expected


@given(weights=_WEIGHTS, indices=st.lists(st.integers(-(2**50), 2**50), max_size=20))
def test_with_and_without_a_table_are_the_same(weights: list[int], indices: list[int]) -> None:
    array = np.array(indices, dtype=np.int64)
    one = Mixture(weights)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mixture, "_LARGEST_TABLE", 0)
        other = Mixture(weights)
    for a, b in zip(one.locate_many(array), other.locate_many(array), strict=True):
        assert np.array_equal(a, b)
    assert [one.locate(i) for i in indices] == [other.locate(i) for i in indices]
    assert [one.component(i) for i in indices] == [other.component(i) for i in indices]


@given(weights=_WEIGHTS)
def test_a_period_has_each_component_by_its_weight(weights: list[int]) -> None:
    components, keys = Mixture(weights).locate_many(np.arange(sum(weights)))
    counts = Counter(components.tolist())
    assert [counts[j] for j in range(len(weights))] == weights
    for j, weight in enumerate(weights):
        assert keys[components == j].tolist() == list(range(weight))


def test_weights_become_integers_in_their_proportion() -> None:
    assert integer_weights(2, None) == [1, 1]
    assert integer_weights(2, [0.7, 0.3]) == [233, 100]
    assert integer_weights(2, [1 / 3, 2 / 3]) == [100, 200]
    assert integer_weights(1, [5]) == [100]
    assert integer_weights(3, (np.float64(0.5), 1, 2)) == [100, 200, 400]
