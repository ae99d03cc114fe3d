"""Flat maps: each element split into parts."""

import sys
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest

import wholegrain as wg
from tests.graph.tools import END, R, Unreadable, X, outcomes, outcomes_and_states
from wholegrain.testing import check_iter_dataset, check_map_dataset


class Parts(wg.transforms.FlatMap):
    """`n % 4` parts of the element n."""

    max_fan_out = 3

    def flat_map(self, element: int) -> Any:
        return [(element, part) for part in range(element % 4)]


class Returns(wg.transforms.FlatMap):
    def __init__(self, make: Any, max_fan_out: int = 2) -> None:
        self._make = make
        self.max_fan_out = max_fan_out

    def flat_map(self, element: Any) -> Any:
        return self._make(element)


def _generate(element: int) -> Iterable[int]:
    yield element
    yield -element


def test_each_element_has_room_for_its_parts() -> None:
    ds = X.FlatMapMapDataset(R(4), Parts())
    assert len(ds) == 12
    assert [ds[i] for i in range(12)] == [
        *(None, None, None),
        *((1, 0), None, None),
        *((2, 0), (2, 1), None),
        *((3, 0), (3, 1), (3, 2)),
    ]
    assert list(ds) == [(1, 0), (2, 0), (2, 1), (3, 0), (3, 1), (3, 2)]
    assert ds[12 + 4] is None
    assert ds[12 + 6] == (2, 0)


def test_the_parts_can_be_shuffled() -> None:
    ds = X.FlatMapMapDataset(R(8), Parts()).shuffle(seed=1)
    assert sorted(ds) == sorted(X.FlatMapMapDataset(R(8), Parts()))


def test_later_epochs_come_from_later_epochs() -> None:
    shuffled = R(5).shuffle(seed=1)
    ds = X.FlatMapMapDataset(shuffled, Returns(lambda x: [x, x]))
    assert [ds[i] for i in range(20)] == [shuffled[i // 2] for i in range(20)]


@pytest.mark.parametrize(
    "make", [lambda x: (x, -x), lambda x: np.array([x, -x]), _generate, lambda x: iter([x, -x])],
    ids=["tuple", "array", "generator", "iterator"],
)  # fmt: skip
def test_parts_come_in_any_iterable(make: Any) -> None:
    assert list(X.FlatMapMapDataset(R(3), Returns(make))) == [0, 0, 1, -1, 2, -2]
    it = X.FlatMapIterDataset(R(3).to_iter_dataset(), Returns(make))
    assert list(it) == [0, 0, 1, -1, 2, -2]


def test_more_parts_than_announced_are_an_error_by_index() -> None:
    ds = X.FlatMapMapDataset(R(3), Returns(lambda x: [x] * 3))
    with pytest.raises(ValueError, match="gave 3 parts") as raised:
        ds[0]
    assert "max_fan_out=2" in str(raised.value)
    it = X.FlatMapIterDataset(R(2).to_iter_dataset(), Returns(lambda x: [x] * 3))
    assert list(it) == [0, 0, 0, 1, 1, 1]


def test_max_fan_out_is_needed_by_index() -> None:
    class NoFanOut(wg.transforms.FlatMap):
        def flat_map(self, element: Any) -> Any:
            return [element]

    with pytest.raises(TypeError, match="max_fan_out"):
        X.FlatMapMapDataset(R(3), NoFanOut())
    assert list(X.FlatMapIterDataset(R(3), NoFanOut())) == [0, 1, 2]


def test_the_length_is_limited() -> None:
    assert len(X.FlatMapMapDataset(R(3).repeat(), Parts())) == sys.maxsize


def test_a_missing_element_has_no_parts() -> None:
    ds = X.FlatMapMapDataset(R(4).filter(lambda x: x == 2), Parts())
    assert [ds[i] for i in range(12)] == [None] * 6 + [(2, 0), (2, 1)] + [None] * 4


def test_a_chunk_splits_each_element_once() -> None:
    calls: list[int] = []

    def make(element: int) -> list[int]:
        calls.append(element)
        return [element, element]

    X.FlatMapMapDataset(R(4), Returns(make)).getitems(np.array([0, 1, 5, 4, 0]))
    assert sorted(calls) == [0, 2]


def test_apply_takes_flat_maps() -> None:
    assert list(R(3).apply(Parts())) == [(1, 0), (2, 0), (2, 1)]
    assert list(R(3).to_iter_dataset().apply([Parts()])) == [(1, 0), (2, 0), (2, 1)]


def test_reads_chunks_as_elements_and_resumes() -> None:
    check_map_dataset(X.FlatMapMapDataset(R(6), Parts()), epochs=3)
    check_iter_dataset(X.FlatMapMapDataset(R(6), Parts()).to_iter_dataset())


# In order.


def test_parts_follow_each_other() -> None:
    ds = X.FlatMapIterDataset(R(6).to_iter_dataset(), Parts())
    assert list(ds) == [(1, 0), (2, 0), (2, 1), (3, 0), (3, 1), (3, 2), (5, 0)]


def test_no_parts_at_all() -> None:
    it = iter(X.FlatMapIterDataset(R(6).to_iter_dataset(), Returns(lambda _: [])))
    assert [next(it, END) for _ in range(3)] == [END] * 3


def test_the_state_names_the_element_that_is_split() -> None:
    it = iter(X.FlatMapIterDataset(R(4).to_iter_dataset(), Parts()))
    found = outcomes_and_states(it)
    assert [(s["parent"]["next_index"], s["next_index_in_buffer"]) for _, s in found[:-1]] == [
        (1, 1), (2, 1), (2, 2), (3, 1), (3, 2), (3, 3)
    ]  # fmt: skip


def test_a_state_at_the_end_leaves_nothing_in_a_used_iterator() -> None:
    ds = X.FlatMapIterDataset(R(4).to_iter_dataset(), Parts())
    ended = iter(ds)
    list(ended)
    used = iter(ds)
    for _ in range(4):
        next(used)
    used.set_state(ended.get_state())
    assert next(used, END) == END


def test_a_state_at_the_end_stays_as_it_is() -> None:
    ds = X.FlatMapIterDataset(R(4).to_iter_dataset(), Parts())
    ended = iter(ds)
    list(ended)
    restored = iter(ds)
    restored.set_state(ended.get_state())
    assert restored.get_state() == ended.get_state()
    assert next(restored, END) == END
    assert restored.get_state() == ended.get_state()


def test_an_element_that_cannot_be_split_is_passed_over() -> None:
    def make(element: int) -> list[int]:
        if element == 2:
            raise Unreadable("element 2")
        return [element, -element]

    ds = X.FlatMapIterDataset(R(1, 5).to_iter_dataset(), Returns(make))
    found = outcomes_and_states(iter(ds))
    assert [o for o, _ in found] == [1, -1, "element 2", 3, -3, 4, -4, END]
    assert found[2][1] == {"parent": {"next_index": 2}, "next_index_in_buffer": 0}
    restored = iter(ds)
    restored.set_state(found[2][1])
    assert outcomes(restored) == [3, -3, 4, -4, END]


def test_in_order_it_resumes() -> None:
    ds = X.FlatMapIterDataset(R(9).to_iter_dataset(), Parts())
    check_iter_dataset(ds)
    check_iter_dataset(ds.batch(2, batch_fn=list))
    check_iter_dataset(X.FlatMapIterDataset(ds, Returns(lambda e: [e, e])))
