"""`it.seek`, `it.skip` and `it.digest`."""

import itertools
import json
import random
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import wholegrain as wg
from tests.graph.tools import as_lists
from tests.graph.traced_pipelines import random_pipeline, source
from wholegrain._core.digest import element_digest

X: Any = wg.experimental


def _plainly(choose: random.Random, ds: Any) -> Any:
    return ds


def _in_lanes(choose: random.Random, ds: Any) -> Any:
    return ds.mp_prefetch(wg.MultiprocessingOptions(0, lanes=2))


def _pipeline(seed: int) -> Any:
    try:
        return random_pipeline(seed, random.Random(seed).choice([_plainly, _in_lanes]))
    except ValueError:  # It cannot be divided into lanes.
        return random_pipeline(seed, _plainly)


def _digests(elements: Iterable[Any]) -> list[str]:
    return list(map(element_digest, elements))


_SEEDS = st.integers(0, 2**32)


@given(seed=_SEEDS)
@settings(max_examples=40)
def test_seek_goes_to_any_step(seed: int) -> None:
    choose, ds = random.Random(seed), _pipeline(seed)
    expected = _digests(ds)
    it = iter(ds)
    for _ in range(4):
        step = choose.randrange(len(expected) + 1)
        it.seek(step)
        assert it.step == step
        count = choose.randrange(3)
        assert _digests(itertools.islice(it, count)) == expected[step : step + count]
    with pytest.raises(IndexError, match="There is no step"):
        it.seek(len(expected) + 5)
    assert it.step == min(step + count, len(expected))
    assert _digests(it) == expected[step + count :]


@given(seed=_SEEDS)
@settings(max_examples=40)
def test_skipped_steps_are_left_out_after_a_restore_too(seed: int) -> None:
    choose, ds = random.Random(seed), _pipeline(seed)
    elements = _digests(ds)
    it = iter(ds)
    skipped: set[int] = set()
    step = 0
    for _ in range(4):
        start = choose.randrange(len(elements) + 1)
        left_out = range(start, start + 1 + choose.randrange(4))
        it.skip(left_out)
        skipped |= set(left_out)
        for _ in range(choose.randrange(4)):
            step = next((n for n in range(step, len(elements)) if n not in skipped), len(elements))
            assert _digests(itertools.islice(it, 1)) == elements[step : step + 1]
            step += 1
        if choose.random() < 0.5:
            state = json.loads(json.dumps(it.get_state()))
            it = iter(ds)
            it.set_state(state)
    rest = [one for n, one in enumerate(elements) if n >= step and n not in skipped]
    assert _digests(it) == rest


def test_steps_keep_their_numbers() -> None:
    it = iter(source("a", 20).to_iter_dataset())
    it.skip(range(3, 6))
    it.skip(range(5, 8))
    it.skip(range(10, 10))
    assert [next(it) - 1 for _ in range(6)] == [0, 1, 2, 8, 9, 10]
    assert it.step == 11
    assert it.provenance()[0].index == 10
    assert it.get_state()["steered"]["skipped"] == [[3, 8]]
    it.seek(4)
    assert next(it) - 1 == 8
    it.skip(range(9, 1000))
    assert list(it) == []


def test_states_stay_as_they_are_if_nothing_is_skipped() -> None:
    ds = source("a", 20).to_iter_dataset().batch(2)
    it, plain = iter(ds), iter(ds)
    it.seek(3)
    for _ in range(3):
        next(plain)
    assert it.get_state() == plain.get_state() == {"next_index": 6}


def test_a_state_without_skipped_steps_ends_skipping() -> None:
    ds = source("a", 9).to_iter_dataset()
    it = iter(ds)
    start = it.get_state()
    it.skip(range(8))
    assert list(it) == [9]
    it.set_state(start)
    assert list(it) == list(range(1, 10))


@pytest.mark.parametrize("bad", [5, [1, 2], range(0, 9, 2), range(-3, 2)])
def test_skip_takes_a_range(bad: Any) -> None:
    it = iter(source("a", 9).to_iter_dataset())
    with pytest.raises(ValueError, match="takes a range of steps"):
        it.skip(bad)


def test_skip_needs_to_know_the_step() -> None:
    ds = source("a", 30).to_iter_dataset().filter(lambda x: x % 3 > 0)
    it = iter(ds)
    elements = list(itertools.islice(it, 6))
    again = iter(ds)
    again.set_state(it.get_state())
    with pytest.raises(ValueError, match=r"it\.step = 1000"):
        again.skip(range(8, 10))
    again.step = 6
    again.skip(range(8, 10))
    assert elements + list(again) == [x for n, x in enumerate(ds) if n not in (8, 9)]


@pytest.mark.parametrize(
    "bad",
    [
        {"steered": 3},
        {"steered": {"step": "2", "skipped": [], "digest": None}},
        {"steered": {"step": 2, "skipped": [[1]], "digest": None}},
        {"steered": {"step": 2, "skipped": [], "digest": "xyz"}},
    ],
)
def test_a_damaged_state_moves_nothing(bad: dict[str, Any]) -> None:
    it = iter(source("a", 9).to_iter_dataset())
    next(it)
    with pytest.raises(ValueError, match="steered"):
        it.set_state(bad | {"parent": {"next_index": 3}})
    assert next(it) == 2


def test_a_data_loader_skips_and_resumes() -> None:
    loader = wg.DataLoader(
        data_source=range(24),
        sampler=wg.samplers.SequentialSampler(24),
        operations=[wg.transforms.Batch(2)],
        worker_count=2,
    )
    expected = as_lists(loader)
    it = iter(loader)
    it.digest()
    it.skip(range(3, 6))
    first = as_lists(itertools.islice(it, 4))
    state = it.get_state()
    again = iter(loader)
    again.set_state(state)
    assert again.digest() == it.digest()
    assert first + as_lists(again) == expected[:3] + expected[6:]
    plain = iter(loader)
    plain.seek(5)
    assert as_lists(plain) == expected[5:]


# Digests.


@given(seed=_SEEDS)
@settings(max_examples=25)
def test_a_resumed_run_continues_its_digest(seed: int) -> None:
    choose, ds = random.Random(seed), _pipeline(seed)
    whole = iter(ds)
    assert whole.digest() == iter(ds).digest()
    count = sum(1 for _ in whole)
    it = iter(ds)
    it.digest()
    stop = choose.randrange(count + 1)
    for _ in range(stop):
        next(it)
    again = iter(ds)
    again.set_state(json.loads(json.dumps(it.get_state())))
    assert again.digest() == it.digest()
    if stop < count:
        assert it.digest() != whole.digest()
    for _ in again:
        pass
    assert again.digest() == whole.digest()


def test_workers_do_not_change_the_digest() -> None:
    ds = wg.MapDataset.range(40).shuffle(seed=1).map(np.arange).to_iter_dataset()
    found = set()
    for options in (None, wg.MultiprocessingOptions(2), wg.MultiprocessingOptions("auto")):
        it = iter(ds if options is None else ds.mp_prefetch(options))
        it.digest()
        for _ in it:
            pass
        found.add(it.digest())
        it.close()
    assert len(found) == 1


def test_a_digest_is_of_the_order_too() -> None:
    digests = []
    for values in ([1, 2], [2, 1], [1, 2, 3]):
        it = iter(wg.MapDataset.source(values))
        it.digest()
        list(it)
        digests.append(it.digest())
    assert len(set(digests)) == 3


def test_a_run_with_a_digest_does_not_go_elsewhere() -> None:
    it = iter(source("a", 9).to_iter_dataset())
    it.digest()
    with pytest.raises(ValueError, match="cannot go to another step"):
        it.seek(3)


_VALUES: list[Any] = [
    None,
    True,
    0,
    1,
    0.0,
    1.0,
    1j,
    "",
    "a",
    b"",
    b"a",
    [],
    (),
    {},
    {"a": 1},
    {"a": 2},
    [1, 2],
    (1, 2),
    [[1], 2],
    [1, [2]],
    ["ab", "c"],
    ["a", "bc"],
    np.arange(4),
    np.arange(4, dtype=np.int32),
    np.arange(4).reshape(2, 2),
    np.float32(1),
    np.array(["a", "b"]),
    np.array([1, "b"], object),
    np.array(["2020-01-01"], "datetime64[D]"),
    np.zeros((0, 3)),
    np.zeros((3, 0)),
    wg.Record(wg.RecordMetadata(1), 2),
    complex,
]


def test_other_elements_have_other_digests() -> None:
    assert len({element_digest(value) for value in _VALUES}) == len(_VALUES)


def test_the_same_element_has_the_same_digest_whatever_its_memory() -> None:
    array = np.arange(24.0).reshape(4, 6)
    assert element_digest(array[:, ::2]) == element_digest(array[:, ::2].copy())
    assert element_digest(array.astype(">f8")) == element_digest(array)
    assert element_digest({"a": 1, "b": 2}) == element_digest({"b": 2, "a": 1})


def test_a_digest_is_the_same_on_every_machine() -> None:
    element = {"x": np.arange(3, dtype=np.int64), "y": [1.5, "é", None]}
    expected = "95d7104a8734c5149952b8f168b67d0a6867990ed08f4e9582fe34a6d42e5274"
    assert element_digest(element) == expected


def test_a_users_iterator_may_have_a_step_of_its_own() -> None:
    class Numbers(wg.IterDataset[int]):
        def __iter__(self) -> Any:
            return _Numbers()

    class _Numbers(wg.DatasetIterator[int]):
        def __init__(self) -> None:
            super().__init__()
            self.step = 0

        def __next__(self) -> int:
            self.step += 1
            return int(self.step)

        def get_state(self) -> dict[str, Any]:
            return {"step": self.step}

        def set_state(self, state: dict[str, Any]) -> None:
            self.step = state["step"]

    it = iter(Numbers().map(lambda x: x))
    assert [next(it), next(it)] == [1, 2]
    assert it.step == 2
