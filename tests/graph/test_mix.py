"""mix and select_from_datasets: several datasets by weight, or by a map."""

import itertools
import math
import sys
from collections import Counter
from typing import Any

import numpy as np
import pytest

import wholegrain as wg
from tests.graph.tools import END, R, Unreadable, fails_on, outcomes, outcomes_and_states
from wholegrain._core import tree
from wholegrain.testing import check_iter_dataset, check_map_dataset


def _tagged(name: Any, length: int) -> Any:
    return R(length).map_with_index(lambda index, _: (name, index))


def _components(elements: Any) -> list[Any]:
    return [name for name, _ in elements]


@pytest.mark.parametrize(
    ("weights", "expected"),
    [
        (None, [0, 1, 0, 1, 0, 1]),
        ([1, 2], [0, 1, 1, 0, 1, 1]),
        ([0.75, 0.25], [0, 0, 0, 1, 0, 0, 0, 1]),
        ([0.7, 0.3], [0, 0, 0, 1, 0, 0, 1, 0, 0, 1, 0, 0, 0, 1]),
    ],
)
def test_two_datasets_by_weight(weights: Any, expected: list[int]) -> None:
    ds = wg.MapDataset.mix([_tagged(0, 100), _tagged(1, 100)], weights)
    assert _components(itertools.islice(ds, len(expected))) == expected
    it = wg.IterDataset.mix(
        [_tagged(0, 100).to_iter_dataset(), _tagged(1, 100).to_iter_dataset()], weights
    )
    assert _components(itertools.islice(it, len(expected))) == expected


def test_each_component_gives_its_elements_in_order() -> None:
    ds = wg.MapDataset.mix([_tagged(name, 50) for name in "abc"], [3, 1, 2])
    for name in "abc":
        indices = [index for component, index in ds if component == name]
        assert indices == list(range(len(indices)))


def test_counts_follow_the_weights() -> None:
    ds = wg.MapDataset.mix([_tagged(name, 10_000) for name in "abc"], [0.5, 0.3, 0.2])
    counts = Counter(_components(ds[i] for i in range(1000)))
    assert counts == {"a": 500, "b": 300, "c": 200}


@pytest.mark.parametrize(
    ("lengths", "weights", "length"),
    [
        ([10, 20, 5], None, 15),
        ([10, 20, 5], [1, 2, 1], 20),
        ([5, 5], [0.4, 0.6], 8),
        ([7, 100], [0.3, 0.7], 23),
    ],
)
def test_the_length_is_how_long_all_last(lengths: Any, weights: Any, length: int) -> None:
    assert len(wg.MapDataset.mix([R(n) for n in lengths], weights)) == length


def test_infinite_components_make_an_infinite_mixture() -> None:
    ds = wg.MapDataset.mix([R(3).repeat(), R(4).repeat()], [1, 3])
    assert len(ds) == sys.maxsize
    check_map_dataset(ds, epochs=1)


def test_later_epochs_go_on_in_the_components() -> None:
    one, two = R(4).shuffle(seed=1), R(10, 16).shuffle(seed=2)
    ds = wg.MapDataset.mix([one, two])
    expected = [x for i in range(30) for x in (one[i], two[i])]
    assert [ds[i] for i in range(60)] == expected
    assert list(ds.repeat(3)) == expected[: 3 * len(ds)]


def test_one_dataset_is_itself() -> None:
    assert list(wg.MapDataset.mix([R(5)], [0.3])) == [0, 1, 2, 3, 4]


def test_odd_weights_are_counted_without_a_table() -> None:
    weights = [1.0, 1234.5678, 99999.999]
    ds: Any = wg.MapDataset.mix([_tagged(name, 10**9) for name in range(3)], weights)
    indices = np.array([0, 1, 5, 10**6, 10**6 + 1, 7 * 10**9, -3, -(10**7)])
    assert list(ds.getitems(indices)) == [ds[int(i)] for i in indices]
    total = sum(int(100 * w) for w in weights)
    counts = [ds[total - 1 - k] for k in range(3)]
    assert all(key < int(100 * weights[name]) for name, key in counts)


@pytest.mark.parametrize("weights", [[0, 1], [-1, 1], [math.nan, 1], [math.inf, 1]])
def test_weights_are_positive(weights: list[float]) -> None:
    for mix, ds in ((wg.MapDataset.mix, R(3)), (wg.IterDataset.mix, R(3).to_iter_dataset())):
        with pytest.raises(ValueError, match="positive weights") as raised:
            mix([ds, ds], weights)
        assert str(weights) in str(raised.value)


def test_there_is_a_weight_for_each_dataset() -> None:
    for mix, ds in ((wg.MapDataset.mix, R(3)), (wg.IterDataset.mix, R(3).to_iter_dataset())):
        with pytest.raises(ValueError, match="3 weights for 2 datasets"):
            mix([ds, ds], [1, 2, 3])


def test_there_is_at_least_one_dataset() -> None:
    for mix in (wg.MapDataset.mix, wg.IterDataset.mix):
        with pytest.raises(ValueError, match="at least one dataset"):
            mix([])


def test_empty_components_are_refused_by_number() -> None:
    with pytest.raises(ValueError, match=r"\[1, 2\]"):
        wg.MapDataset.mix([R(3), R(0), R(0)])


def test_an_error_names_the_component() -> None:
    ds = wg.MapDataset.mix([R(3), R(10, 14).map(fails_on(11))])
    with pytest.raises(Unreadable) as raised:
        ds[3]
    assert any("component 1" in note for note in raised.value.__notes__)


def test_it_is_described_by_lengths_and_weights() -> None:
    ds = wg.MapDataset.mix([R(10), R(20)], [0.5, 1])
    assert repr(ds) == "MixedMapDataset(parent_lengths=[10, 20], weights=[100, 200])"
    assert str(ds) == "MixedMapDataset[2 parents]"


def test_reads_chunks_as_elements_and_resumes() -> None:
    parts = [R(7).shuffle(seed=1), R(20, 25), R(40, 60).shuffle(seed=3)]
    for weights in (None, [1, 2, 3], [0.7, 0.2, 0.1]):
        check_map_dataset(wg.MapDataset.mix(parts, weights), epochs=3)


# By a map.


class Alternate(wg.transforms.DatasetSelectionMap):
    def __len__(self) -> int:
        return 6

    def __getitem__(self, index: int) -> tuple[int, int]:
        return index % 2, 10 * (index // 2)


def test_a_selection_map_says_where_each_element_comes_from() -> None:
    ds = wg.MapDataset.select_from_datasets([_tagged("a", 5), _tagged("b", 5)], Alternate())
    assert len(ds) == 6
    assert list(ds) == [("a", 0), ("b", 0), ("a", 10), ("b", 10), ("a", 20), ("b", 20)]
    assert ds[9] == ("b", 40)  # The map decides about later epochs.
    check_map_dataset(ds, epochs=3)


def test_a_selection_map_is_abstract() -> None:
    with pytest.raises(TypeError):
        wg.transforms.DatasetSelectionMap()  # type: ignore[abstract]


# In order.


def _iters(*lengths: int) -> list[wg.IterDataset[int]]:
    return [R(100 * n, 100 * n + length).to_iter_dataset() for n, length in enumerate(lengths)]


def test_it_ends_when_the_component_whose_turn_it_is_has_ended() -> None:
    assert list(wg.IterDataset.mix(_iters(5, 3))) == [0, 100, 1, 101, 2, 102, 3]
    assert list(wg.IterDataset.mix(_iters(1, 5))) == [0, 100]
    it = iter(wg.IterDataset.mix(_iters(1, 5)))
    assert [next(it, END) for _ in range(5)] == [0, 100, END, END, END]
    assert it.get_state() == {
        "parents": [{"next_index": 1}, {"next_index": 1}],
        "index": 3,
        "stop": True,
    }


def test_map_datasets_can_be_mixed_in_order() -> None:
    assert list(wg.IterDataset.mix([R(2), R(10, 12)])) == [0, 10, 1, 11]


def test_only_an_end_ends_it() -> None:
    ds = wg.IterDataset.mix([R(3).map(fails_on(1)).to_iter_dataset(), _iters(0, 4)[1]])
    found = outcomes_and_states(iter(ds))
    assert [outcome for outcome, _ in found] == [0, 100, "element 1", 101, 2, 102, END]
    assert [state["stop"] for _, state in found] == [False] * 6 + [True]
    assert [state["index"] for _, state in found] == [1, 2, 3, 4, 5, 6, 7]


def test_an_error_in_order_names_the_component() -> None:
    it = iter(wg.IterDataset.mix({"good": R(3), "bad": R(3).map(fails_on(0))}))
    next(it)
    with pytest.raises(Unreadable) as raised:
        next(it)
    assert any("component bad" in note for note in raised.value.__notes__)


def test_names_stand_in_the_state() -> None:
    it = iter(wg.IterDataset.mix(dict(zip("ab", _iters(5, 5), strict=True)), {"a": 1, "b": 2}))
    assert list(itertools.islice(it, 4)) == [0, 100, 101, 1]
    assert it.get_state() == {
        "parents": {"a": {"next_index": 2}, "b": {"next_index": 2}},
        "index": 4,
        "stop": False,
    }


def test_weights_belong_to_names_in_any_order() -> None:
    datasets = {"a": _tagged("a", 50).to_iter_dataset(), "b": _tagged("b", 50).to_iter_dataset()}
    one = wg.IterDataset.mix(datasets, {"a": 0.75, "b": 0.25})
    other = wg.IterDataset.mix(datasets, {"b": 0.25, "a": 0.75})
    assert list(itertools.islice(one, 40)) == list(itertools.islice(other, 40))
    assert Counter(_components(itertools.islice(one, 40))) == {"a": 30, "b": 10}


@pytest.mark.parametrize("weights", [{"a": 1}, {"a": 1, "b": 1, "c": 1}, {"a": 1, "c": 1}])
def test_weights_have_the_same_names(weights: Any) -> None:
    datasets = dict(zip("ab", _iters(5, 5), strict=True))
    with pytest.raises(ValueError, match=r"\['a', 'b'\]") as raised:
        wg.IterDataset.mix(datasets, weights)
    assert str(sorted(weights)) in str(raised.value)
    with pytest.raises(ValueError, match="mapping with the same keys"):
        wg.IterDataset.mix(datasets, [1, 2])


@pytest.mark.parametrize(("jax", "order"), [(False, ["b", "a"]), (True, ["a", "b"])])
def test_the_order_of_names_is_grains(
    jax: bool, order: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tree, "follows_jax", lambda: jax)
    ds = wg.IterDataset.mix({"b": _tagged("b", 9), "a": _tagged("a", 9)})
    assert _components(itertools.islice(ds, 4)) == order * 2


def test_components_can_be_added_and_removed_between_runs() -> None:
    a, b, c = _iters(20, 20, 20)
    it = iter(wg.IterDataset.mix({"a": a, "b": b}))
    assert list(itertools.islice(it, 4)) == [0, 100, 1, 101]
    state = it.get_state()
    more = iter(wg.IterDataset.mix({"a": a, "b": b, "c": c}))
    more.set_state(state)
    assert [next(more) for _ in range(5)] == [102, 200, 2, 103, 201]
    fewer = iter(wg.IterDataset.mix({"b": b}))
    fewer.set_state(state)
    assert [next(fewer) for _ in range(2)] == [102, 103]


def test_in_order_it_resumes() -> None:
    check_iter_dataset(wg.IterDataset.mix(_iters(5, 8, 4), [1, 2, 1]))
    check_iter_dataset(wg.IterDataset.mix(dict(zip("xyz", _iters(5, 8, 4), strict=True))))
    check_iter_dataset(wg.IterDataset.mix(_iters(6, 7)).batch(3))
    nested = wg.IterDataset.mix([wg.IterDataset.mix(_iters(4, 4)), *_iters(9)])
    check_iter_dataset(nested)


def test_failing_elements_do_not_move_the_others() -> None:
    bad = R(6).to_iter_dataset().map(fails_on(1, 2))
    ds = wg.IterDataset.mix([bad, R(10, 16).to_iter_dataset()])
    expected = [0, 10, "element 1", 11, "element 2", 12, 3, 13, 4, 14, 5, 15, END]
    assert outcomes(iter(ds)) == expected
