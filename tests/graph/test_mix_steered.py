"""mix under control: weights for tokens, schedules, changes while it runs, ends and seeds."""

import itertools
import json
import threading
import time
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import wholegrain as wg
from tests.graph.tools import END, R, Unreadable, fails_on
from wholegrain import experimental, schedule
from wholegrain._state.fingerprint import fingerprint
from wholegrain.testing import check_iter_dataset, check_map_dataset

AB = {"a": 1, "b": 1}


def _docs(name: str, count: int, size: int) -> Any:
    return R(count).map(lambda index: {"id": (name, index), "tokens": np.zeros(size, np.int32)})


def _parts(length: int = 400) -> dict[str, Any]:
    return {name: R(1000 * n, 1000 * n + length) for n, name in enumerate("abc")}


def _names(numbers: Any) -> list[str]:
    return ["abc"[int(number) // 1000] for number in numbers]


# Weights for tokens.


def test_long_and_short_documents_get_equal_shares_of_tokens_at_every_step() -> None:
    parts = {"short": _docs("short", 1000, 400), "long": _docs("long", 100, 4000)}
    given = Counter[str]()
    for element in itertools.islice(wg.IterDataset.mix(parts, unit="tokens"), 1100):
        given[element["id"][0]] += 400 if element["id"][0] == "short" else 4000
        assert abs(given["short"] - given["long"]) <= 2 * 4000
        assert abs(given["short"] - sum(given.values()) / 2) <= 4000
    assert given == {"short": 400_000, "long": 400_000}


@settings(deadline=None)
@given(
    weights=st.lists(st.one_of(st.integers(1, 9), st.floats(0.001, 100)), min_size=1, max_size=8),
    sizes=st.lists(st.integers(1, 5000), min_size=1, max_size=30),
    start=st.integers(0, 30),
)
def test_no_component_is_off_by_more_than_one_element(
    weights: list[float], sizes: list[int], start: int
) -> None:
    parts = [
        R(300).map(lambda i, n=n: (n, sizes[(start * n + i * (n + 1)) % len(sizes)]))
        for n in range(len(weights))
    ]
    given, largest = [0] * len(weights), 0
    ds = wg.IterDataset.mix(parts, weights, unit=lambda element: element[1])
    for component, size in itertools.islice(ds, 300):
        given[component] += size
        largest = max(largest, size)
        for one, weight in zip(given, weights, strict=True):
            assert abs(one - sum(given) * weight / sum(weights)) <= largest * 1.001


@pytest.mark.parametrize(
    ("element", "count"),
    [
        ([1, 2, 3], 3),
        (b"four", 4),
        (np.zeros((5, 7)), 5),
        ({"tokens": [1, 2], "text": "a text"}, 2),
        ({"text": "three", "label": 1, "scale": np.float32(1)}, 5),
    ],
)
def test_tokens_are_the_length_of_an_element_or_of_a_feature(element: Any, count: int) -> None:
    it = iter(wg.IterDataset.mix({"a": wg.MapDataset.source([element])}, unit="tokens"))
    next(it)
    assert it.mixture()["a"].tokens == count


@pytest.mark.parametrize(
    ("element", "unit", "error", "says"),
    [
        ({"x": [1], "y": [2]}, "tokens", ValueError, r"features \['x', 'y'\]"),
        (3, "tokens", TypeError, "a function of the element"),
        (3, lambda _: 1.5, TypeError, "whole number"),
        (3, lambda _: -1, ValueError, "negative"),
        (3, lambda _: next(iter(())), RuntimeError, "StopIteration"),
    ],
)
def test_a_size_that_cannot_be_counted_is_an_error_of_its_component(
    element: Any, unit: Any, error: type[Exception], says: str
) -> None:
    it = iter(wg.IterDataset.mix({"bad": wg.MapDataset.source([element])}, unit=unit))
    with pytest.raises(error, match=says) as raised:
        next(it)
    assert any("component bad" in note for note in raised.value.__notes__)
    assert next(it, END) is END


# Schedules.


def test_weights_change_at_the_steps_of_a_schedule() -> None:
    weights = schedule.steps({0: {"a": 1, "b": 1, "c": 0}, 10: {"a": 0, "b": 1, "c": 3}})
    for mix in (wg.IterDataset.mix, wg.MapDataset.mix):
        names = _names(itertools.islice(mix(_parts(), weights), 50))
        assert Counter(names[:10]) == {"a": 5, "b": 5}
        assert Counter(names[10:]) == {"b": 10, "c": 30}


def test_a_linear_schedule_has_the_shares_of_the_area_under_it() -> None:
    weights = schedule.linear({0: {"a": 1, "b": 0, "c": 1}, 1000: {"a": 0, "b": 1, "c": 1}})
    for mix in (wg.IterDataset.mix, wg.MapDataset.mix):
        names = _names(itertools.islice(mix(_parts(900), weights), 1400))
        counts = Counter(names[:1000])
        assert all(abs(counts[name] - wanted) <= 1 for name, wanted in
                   (("a", 250), ("b", 250), ("c", 500)))  # fmt: skip
        assert "a" not in names[1000:]
        assert Counter(names[1000:])["b"] == 200


def test_a_schedule_by_tokens_counts_tokens() -> None:
    weights = schedule.steps({0: {"a": 1, "b": 0}, 50: {"a": 0, "b": 1}}, by="tokens")
    parts = {"a": R(100), "b": R(1000, 1100)}
    names = _names(itertools.islice(wg.IterDataset.mix(parts, weights, unit=lambda _: 10), 9))
    assert names == list("aaaaabbbb")


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: schedule.steps({5: AB}), "weights at 0"),
        (lambda: schedule.steps({0: AB, 5: {"a": 1}}), r"at 5 it has \['a'\]"),
        (lambda: schedule.steps({0: AB}, by="hour"), "by='hour'"),  # type: ignore[arg-type]
        (lambda: schedule.linear({0: AB, 9: AB}, pieces=0), "at least one piece"),
        (lambda: schedule.linear({0: {"a": 0}, 9: {"a": 1}}), "has to be positive"),
        (lambda: wg.IterDataset.mix(_parts(), schedule.steps({0: AB})), "weights for"),
        (lambda: wg.IterDataset.mix([R(3)], schedule.steps({0: [0]})), "one that is positive"),
        (lambda: wg.IterDataset.mix([R(3)], schedule.steps({0: [1]}, by="tokens")), "unit="),
        (lambda: wg.IterDataset.mix([R(3)], unit="words"), "unit='words'"),  # type: ignore[arg-type]
        (lambda: wg.IterDataset.mix([R(3)], stop="never"), "stop='never'"),  # type: ignore[arg-type]
        (lambda: wg.IterDataset.mix([R(3)], max_repetitions=2), 'stop="restart"'),
        (lambda: wg.MapDataset.mix([R(3)], stop="restart", max_repetitions=0), "at least once"),
        (lambda: wg.MapDataset.mix([R(3)], seed_by="name"), "needs components with names"),
        (lambda: wg.MapDataset.mix([R(3)], {"a": 1}), "no names"),
    ],
)
def test_a_mistake_is_told_at_the_call(make: Any, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        make()


# Ends.


def _some() -> dict[str, Any]:
    few = R(100, 106).shuffle(seed=3).to_iter_dataset().filter(lambda x: x % 2)
    return {"a": R(5).shuffle(seed=1), "b": R(10, 18).to_iter_dataset(), "c": few}


_ENDS: list[dict[str, Any]] = [
    {"stop": "all"},
    {"stop": "all", "unit": lambda x: x % 7},
    {"stop": "restart", "max_repetitions": 2},
    {"stop": "restart", "max_repetitions": {"a": 1, "b": 3, "c": 2}},
    {"weights": schedule.steps({0: {"a": 1, "b": 2, "c": 0}, 9: {"a": 0, "b": 1, "c": 3}})},
    {"unit": lambda x: x % 7, "seed_by": "name", "stop": "all"},
]


@pytest.mark.parametrize("options", _ENDS)
def test_steered_mixtures_pass_the_checks_of_all_datasets(options: dict[str, Any]) -> None:
    check_iter_dataset(wg.IterDataset.mix(_some(), **options))
    check_iter_dataset(wg.IterDataset.mix(_some(), **options).batch(3))
    if "unit" not in options:
        parts = {"a": R(5).shuffle(seed=1), "b": R(10, 18), "c": R(100, 103).shuffle(seed=3)}
        check_map_dataset(wg.MapDataset.mix(parts, **options), epochs=3)


def test_all_elements_come_once_if_it_stops_after_all() -> None:
    parts = _parts(7) | {"c": R(2000, 2031)}
    everything = sorted(number for part in parts.values() for number in part)
    for weights in (None, {"a": 1, "b": 9, "c": 2}):
        assert sorted(wg.IterDataset.mix(parts, weights, stop="all")) == everything
        ds = wg.MapDataset.mix(parts, weights, stop="all")
        for epoch in range(2):
            assert sorted(ds[i + epoch * len(ds)] for i in range(len(ds))) == everything


def test_components_that_restart_are_shuffled_again() -> None:
    parts = {"a": R(20).shuffle(seed=1), "b": R(1000, 1100)}
    for mix in (wg.IterDataset.mix, wg.MapDataset.mix):
        of_a = [one for one in itertools.islice(mix(parts, stop="restart"), 80) if one < 1000]
        assert sorted(of_a[:20]) == sorted(of_a[20:]) == list(range(20))
        assert of_a[:20] == list(parts["a"])
        assert of_a[20:] == [parts["a"][i] for i in range(20, 40)]


def test_a_component_is_read_at_most_as_often_as_allowed() -> None:
    parts = {"a": R(3), "b": R(1000, 1004), "c": R(2000, 2002)}
    for mix in (wg.IterDataset.mix, wg.MapDataset.mix):
        ds = mix(parts, stop="restart", max_repetitions={"a": 4, "b": 1, "c": 2})
        assert Counter(_names(ds)) == {"a": 12, "b": 4, "c": 4}


def test_an_empty_component_does_not_restart_forever() -> None:
    parts = {"a": R(3).to_iter_dataset().filter(lambda _: False), "b": R(1000, 1003)}
    ds = wg.IterDataset.mix(parts, stop="restart", max_repetitions={"b": 2})
    assert list(ds) == [1000, 1001, 1002] * 2


def test_failing_elements_count_as_steps() -> None:
    bad = R(6).to_iter_dataset().map(fails_on(1, 2))
    it = iter(wg.IterDataset.mix({"bad": bad, "good": R(10, 16)}, stop="all"))
    found: list[Any] = []
    notes: list[str] = []
    for _ in range(12):
        try:
            found.append(next(it))
        except Unreadable as error:
            notes += error.__notes__
            found.append("failed")
    assert found == [0, 10, "failed", 11, "failed", 12, 3, 13, 4, 14, 5, 15]
    assert sum("component bad" in note for note in notes) == 2


# Seeds by name.


@pytest.mark.parametrize("kind", [wg.MapDataset, wg.IterDataset])
def test_another_component_changes_no_order(kind: Any) -> None:
    def orders(names: str) -> dict[str, list[int]]:
        parts = {
            name: R(1000 * "abc".index(name), 1000 * "abc".index(name) + 50).seed(7).shuffle()
            for name in names
        }
        elements = list(kind.mix(parts, seed_by="name", stop="all"))
        return {name: [e for e in elements if e // 1000 == "abc".index(name)] for name in names}

    both, more, other = orders("ab"), orders("cab"), orders("ba")
    assert all(both[name] == more[name] == other[name] for name in "ab")
    assert orders("b")["b"] == both["b"]
    # The same seed, and yet another order for each name.
    assert [e % 1000 for e in both["a"]] != [e % 1000 for e in both["b"]]


def test_every_random_stage_of_a_component_is_seeded_by_its_name() -> None:
    def noise(_: int, rng: np.random.Generator) -> float:
        return float(rng.random())

    def parts(*names: str) -> dict[str, Any]:
        files = [R(5).shuffle(seed=n).to_iter_dataset() for n in range(3)]
        of_map = {name: R(9).seed(1).random_map(noise) for name in names}
        stream = experimental.InterleaveIterDataset(files, cycle_length=2)
        window = experimental.WindowShuffleIterDataset(stream, window_size=4, seed=1)
        return {**of_map, "files": window}

    for part in parts("x").values():
        list(part)  # What was computed from the seed before must not be used.
    one = list(wg.IterDataset.mix(parts("x", "y"), seed_by="name"))
    assert len(set(one)) > len(one) - 8
    assert one == list(wg.IterDataset.mix(parts("x", "y"), seed_by="name"))
    plain = list(wg.IterDataset.mix(parts("x", "y")))
    assert not {n for n in one if isinstance(n, float)} & {n for n in plain if isinstance(n, float)}


# Changes while it runs.

_TOKENS = {"x": 16}


def _packed(ds: Any, kind: Any) -> Any:
    docs = ds.map(lambda number: {"x": np.full(int(number) % 5 + 2, number)})
    more = {} if kind is experimental.ConcatThenSplitIterDataset else {"num_packing_bins": 3}
    return kind(docs, length_struct=_TOKENS, **more)


_DOWNSTREAM: dict[str, Any] = {
    "nothing": lambda ds: ds,
    "batch": lambda ds: ds.map(lambda x: x + 1).batch(3),
    "filter": lambda ds: ds.filter(lambda x: x % 3),
    "window shuffle": lambda ds: experimental.WindowShuffleIterDataset(ds, window_size=7, seed=3),
    "thread": lambda ds: experimental.ThreadPrefetchIterDataset(
        ds.batch(2), prefetch_buffer_size=20
    ),
    "rebatch": lambda ds: experimental.RebatchIterDataset(ds.batch(5), 3),
    "first fit": lambda ds: _packed(ds, experimental.FirstFitPackIterDataset),
    "concat": lambda ds: _packed(ds, experimental.ConcatThenSplitIterDataset),
    "outer mix": lambda ds: wg.IterDataset.mix([ds, R(5000, 5500)]),
    "zip": lambda ds: experimental.ZipIterDataset([ds, R(9000)]),
}

_OPTIONS: list[dict[str, Any]] = [
    {},
    {"unit": lambda x: x % 9 + 1, "stop": "restart"},
    {"weights": schedule.linear({0: {"a": 1, "b": 0, "c": 1}, 60: {"a": 0, "b": 1, "c": 1}})},
]

_WEIGHTS = st.one_of(
    st.none(),
    st.fixed_dictionaries({name: st.integers(0, 4) for name in "abc"}).filter(
        lambda weights: any(weights.values())
    ),
)


class _Steered:
    """A run whose weights are changed before some of its steps."""

    def __init__(self, ds: Any, changes: dict[int, Any]) -> None:
        self._ds, self._changes = ds, changes
        self.it = iter(ds)
        self._step = 0

    def take(self, count: int) -> list[str]:
        taken = []
        for _ in range(count):
            if self._step in self._changes:
                weights, ahead = self._changes[self._step]
                at = self.it.set_weights(weights)
                if ahead:  # Once more, at a later step.
                    self.it.set_weights(weights, at_step=at + ahead)
            taken.append(str(next(self.it)))
            self._step += 1
        return taken

    def resumed(self) -> "_Steered":
        """Return another run that continues from the state of this one."""
        other = _Steered(self._ds, self._changes)
        other.it.set_state(json.loads(json.dumps(self.it.get_state())))
        other._step = self._step
        return other


@pytest.mark.parametrize("downstream", _DOWNSTREAM)
@settings(deadline=None, max_examples=8)
@given(data=st.data())
def test_a_run_whose_weights_change_is_the_same_after_a_resume(
    downstream: str, data: st.DataObject
) -> None:
    options = data.draw(st.sampled_from(_OPTIONS))
    ds = _DOWNSTREAM[downstream](wg.IterDataset.mix(_parts(), **options))
    change = st.tuples(_WEIGHTS, st.sampled_from([0, 0, 5]))
    changes = data.draw(st.dictionaries(st.integers(0, 19), change, max_size=3))
    stops = sorted(data.draw(st.lists(st.integers(0, 20), max_size=3)))
    whole = _Steered(ds, changes).take(20)
    run, resumed = _Steered(ds, changes), []
    for start, stop in itertools.pairwise([0, *stops, 20]):
        resumed += run.take(stop - start)
        run = run.resumed()
    assert resumed == whole
    assert _Steered(ds, changes).take(20) == whole  # A rerun.


def test_a_change_holds_from_the_next_element_on() -> None:
    it = iter(wg.IterDataset.mix(_parts()))
    assert _names(itertools.islice(it, 4)) == list("abca")
    assert it.set_weights({"a": 0, "b": 0, "c": 1}) == 4
    assert _names(itertools.islice(it, 5)) == list("ccccc")
    assert it.set_weights({"a": 0, "b": 1, "c": 0}, at_step=12) == 12
    assert _names(itertools.islice(it, 5)) == list("cccbb")
    assert it.get_state()["mixture"]["journal"] == [
        [4, {"a": 0.0, "b": 0.0, "c": 1.0}],
        [12, {"a": 0.0, "b": 1.0, "c": 0.0}],
    ]
    it.set_weights(None)
    assert Counter(_names(itertools.islice(it, 300))) == {"a": 100, "b": 100, "c": 100}


def test_a_batch_that_was_not_returned_has_the_new_weights() -> None:
    it = iter(wg.IterDataset.mix(_parts()).batch(4))
    next(it)
    assert it.set_weights({"a": 1, "b": 0, "c": 0}) == 4
    assert _names(next(it)) == list("aaaa")


def test_a_state_from_before_a_change_does_not_have_it() -> None:
    it = iter(wg.IterDataset.mix(_parts()))
    before = it.get_state()
    it.set_weights({"a": 0, "b": 0, "c": 1})
    next(it)
    it.set_state(before)
    assert "mixture" not in it.get_state()
    assert _names(itertools.islice(it, 4)) == list("abca")


def test_weights_cannot_change_in_the_past() -> None:
    it = iter(wg.IterDataset.mix(_parts()))
    taken = [next(it) for _ in range(5)]
    with pytest.raises(ValueError, match="read up to step 5"):
        it.set_weights({"a": 1, "b": 1, "c": 1}, at_step=4)
    assert [*taken, next(it)] == list(itertools.islice(wg.IterDataset.mix(_parts()), 6))


def test_origins_and_steps_from_before_a_change_are_those_of_the_run() -> None:
    ds = wg.IterDataset.mix(_parts()).filter(lambda x: x % 5).batch(2)
    it = iter(ds)
    batches = []
    for step in range(12):
        if step in (3, 7):
            it.set_weights({"a": 0, "b": step, "c": 1})
            assert it.step == step
        batches.append(next(it).tolist())
    again = iter(ds)
    again.set_state(it.get_state())
    again.step = 12
    for run in (it, again):
        for step, batch in enumerate(batches):
            assert [one.index for one in run.provenance(step)] == [x % 1000 for x in batch]
    it.seek(5)
    assert [next(it).tolist() for _ in range(7)] == batches[5:]


def test_the_order_of_a_mapping_does_not_change_a_steered_mixture() -> None:
    weights = schedule.steps({0: {"a": 1, "b": 1, "c": 1}, 9: {"a": 2, "b": 1, "c": 2}})
    parts, turned = _parts(20), dict(reversed(_parts(20).items()))
    for mix in (wg.IterDataset.mix, wg.MapDataset.mix):
        options: Any
        for options in ({"stop": "all"}, {"weights": weights}, {"seed_by": "name"}):
            assert list(mix(parts, **options)) == list(mix(turned, **options))


@pytest.mark.parametrize(
    ("make", "weights", "says"),
    [
        (lambda: R(3).to_iter_dataset(), AB, "no mixture"),
        (lambda: wg.IterDataset.mix([R(3), R(3)]), AB, "components with names"),
        (lambda: wg.MapDataset.mix({"a": R(3), "b": R(3)}).to_iter_dataset(), AB, "by index"),
        (lambda: wg.IterDataset.mix(_parts()), AB, r"weights for \['a', 'b', 'c'\]"),
        (lambda: wg.IterDataset.mix({"a": R(3), "b": R(3)}), {"a": 0, "b": 0}, "is positive"),
        (lambda: wg.IterDataset.mix({"a": R(3), "b": R(3)}), {"a": -1, "b": 1}, "not negative"),
        (
            lambda: experimental.RepeatIterDataset(wg.IterDataset.mix({"a": R(3), "b": R(3)})),
            AB,
            "repeats its elements",
        ),
        (
            lambda: wg.IterDataset.mix(
                [wg.IterDataset.mix({"a": R(3), "b": R(3)}) for _ in range(2)]
            ),
            AB,
            "2 mixtures",
        ),
    ],
)
def test_weights_that_cannot_change_are_refused(make: Any, weights: Any, says: str) -> None:
    it = iter(make())
    with pytest.raises(ValueError, match=says):
        it.set_weights(weights)
    assert next(it) is not None


def test_the_weights_of_former_components_do_not_hold(caplog: pytest.LogCaptureFixture) -> None:
    parts = _parts()
    it = iter(wg.IterDataset.mix({"a": parts["a"], "b": parts["b"]}))
    it.set_weights({"a": 1, "b": 0})
    assert _names(itertools.islice(it, 3)) == list("aaa")
    more = iter(wg.IterDataset.mix(parts))
    more.set_state(it.get_state())
    assert "components of a mixture have changed" in caplog.text
    found = list(itertools.islice(more, 9))
    assert Counter(_names(found)) == {"a": 3, "b": 3, "c": 3}
    assert min(found) == 3


@pytest.mark.parametrize(
    "wrong",
    [
        {"elements": 3},
        {"elements": {"a": -1, "b": 0}},
        {"deficits": {"a": "x", "b": 0}},
        {"largest": None},
        {"journal": 5},
        {"journal": [[3]]},
        {"journal": [[3, {"a": 1, "b": 1}], [2, {"a": 1, "b": 1}]]},
        {"journal": [[3, {"a": "x", "b": 1}]]},
        7,
    ],
)
def test_a_wrong_state_is_refused_before_anything_moves(wrong: Any) -> None:
    parts = {"a": R(9), "b": R(10, 19)}
    it = iter(wg.IterDataset.mix(parts, stop="all"))
    first = [next(it) for _ in range(3)]
    state = it.get_state()
    given = {**state, "mixture": {**state["mixture"], **wrong} if wrong != 7 else 7}
    with pytest.raises(ValueError, match="state"):
        it.set_state(given)
    assert first + list(it) == list(wg.IterDataset.mix(parts, stop="all"))


def test_a_checkpoint_knows_the_options() -> None:
    def described(**options: Any) -> Any:
        return fingerprint(wg.IterDataset.mix(_parts(), **options))["stages"][-1]

    assert "fixed" not in described()
    assert described(unit="tokens", stop="all")["fixed"] == {"unit": "tokens", "stop": "all"}
    changing = schedule.steps({0: {"a": 1, "b": 2, "c": 3}})
    assert "schedule" in described(weights=changing)["free"]["weights"]


# Reports.


def test_the_report_has_targets_and_realised_shares() -> None:
    parts = {"short": _docs("short", 20, 400), "long": _docs("long", 8, 4000)}
    it = iter(wg.IterDataset.mix(parts, {"short": 1, "long": 3}, unit="tokens", stop="restart"))
    for _ in range(26):
        next(it)
    report = it.mixture()
    assert report.step == 26
    assert report["short"].target == 0.25
    assert report["short"].elements + report["long"].elements == 26
    assert report["long"].tokens == 4000 * report["long"].elements
    short, long = report["short"].tokens or 0, report["long"].tokens or 0
    assert report["short"].token_share == short / (short + long)
    assert abs(short - 0.25 * (short + long)) <= 4000
    assert report["long"].epochs == report["long"].elements / 8
    assert "short" in str(report)
    assert "25.0%" in str(report)


def test_the_report_of_a_plain_mixture_counts_elements() -> None:
    for mix in (wg.IterDataset.mix, wg.MapDataset.mix):
        it = iter(mix(_parts(20), {"a": 1, "b": 2, "c": 1}).map(lambda x: x))
        names = Counter(_names(itertools.islice(it, 10)))
        report = it.mixture()
        assert {name: one.elements for name, one in report.components.items()} == names
        assert report["b"].target == 0.5
        assert report["b"].tokens is None
        assert report["a"].epochs == report["a"].elements / 20


# Workers and lanes.

_LINE = schedule.steps({0: {"a": 1, "b": 0, "c": 0}, 20: {"a": 0, "b": 1, "c": 1}})


def test_a_schedule_in_workers_counts_the_elements_of_all_workers() -> None:
    ds = wg.IterDataset.mix(_parts(), _LINE)
    two = wg.MultiprocessingOptions(num_workers=2)
    with iter(ds.mp_prefetch(two)) as it:
        found = [next(it) for _ in range(20)]
        state = it.get_state()
        found += [next(it) for _ in range(20)]
        assert "b" not in _names(found[:20])
        assert "a" not in _names(found[20:])
        assert it.mixture().step == 40
        assert it.mixture()["a"].elements == 20
        it.set_state(state)
        assert [next(it) for _ in range(20)] == found[20:]
    lanes = ds.mp_prefetch(wg.MultiprocessingOptions(num_workers=0, lanes=2))
    assert list(itertools.islice(lanes, 40)) == found


@pytest.mark.parametrize("downstream", ["nothing", "window shuffle"])
def test_weights_change_in_workers_and_lanes_as_they_do_in_one_process(downstream: str) -> None:
    ds = _DOWNSTREAM[downstream](wg.IterDataset.mix(_parts()))
    found = []
    for workers, lanes in ((0, 2), (2, None), (2, 2)):
        options = wg.MultiprocessingOptions(num_workers=workers, lanes=lanes)
        with iter(ds.mp_prefetch(options)) as it:
            elements = [next(it) for _ in range(15)]
            step = it.set_weights({"a": 0, "b": 1, "c": 0})
            assert it.step == 15
            elements += [next(it) for _ in range(25)]
            state = json.loads(json.dumps(it.get_state()))
            rest = [next(it) for _ in range(9)]
            assert [one.index for one in it.provenance(20)] == [elements[20] % 1000]
            it.set_state(state)
            assert [next(it) for _ in range(9)] == rest
            found.append((step, elements, rest))
    assert found[0] == found[1] == found[2]
    step, elements, rest = found[0]
    assert set(_names(elements[:15])) == set("abc")
    assert step >= 15
    assert set(_names(elements[step + 12 :] + rest)) == {"b"}
    if downstream == "nothing":  # Steps count the elements of both workers.
        assert set(_names(elements[step:])) == {"b"}
        assert "c" in _names(elements[:step])


def test_hosts_change_weights_at_the_same_step() -> None:
    ds = wg.IterDataset.mix({name: part.repeat() for name, part in _parts().items()})

    def steps(hosts: int) -> list[list[int]]:
        shards = [wg.sharding.ShardOptions(host, hosts) for host in range(hosts)]
        its = [experimental.ElasticIterator(ds, 8, shard, lanes=4) for shard in shards]
        found = [[row for it in its for row in next(it).tolist()] for _ in range(3)]
        for it in its:
            assert it.set_weights({"a": 0, "b": 1, "c": 0}, at_step=32) == 32
        found += [[row for it in its for row in next(it).tolist()] for _ in range(4)]
        if hosts > 1:
            with pytest.raises(ValueError, match="the same `at_step` on every host"):
                its[0].set_weights(None)
        return found

    expected = steps(1)
    assert [set(_names(step)) == {"b"} for step in expected] == [False] * 4 + [True] * 3
    assert steps(2) == steps(4) == expected


def test_a_mixture_by_index_is_the_same_with_any_number_of_workers() -> None:
    ds = wg.MapDataset.mix(_parts(30), _LINE, stop="all").to_iter_dataset()
    expected = list(ds)
    with iter(ds.mp_prefetch(wg.MultiprocessingOptions(num_workers="auto", max_workers=2))) as it:
        assert list(it) == expected


def test_components_in_workers_can_be_steered() -> None:
    one = wg.MultiprocessingOptions(num_workers=1)
    parts = _parts(50)
    here = parts | {"a": parts["a"].to_iter_dataset()}
    there = parts | {"a": parts["a"].to_iter_dataset().mp_prefetch(one)}
    found = []
    for each in (here, there):
        with iter(wg.IterDataset.mix(each)) as it:
            names = [next(it) for _ in range(9)]
            it.set_weights({"a": 3, "b": 0, "c": 1})
            found.append(names + [next(it) for _ in range(12)])
    assert found[0] == found[1]


# Many components.


class _Waits:
    """A source whose reads wait."""

    def __len__(self) -> int:
        return 1000

    def __getitem__(self, index: int) -> int:
        time.sleep(0.002)
        return index


def test_many_components_share_their_threads() -> None:
    before = threading.active_count()
    ds = wg.IterDataset.mix([wg.MapDataset.source(_Waits()).to_iter_dataset() for _ in range(40)])
    most = 0
    with iter(ds) as it:
        for number in range(1200):
            assert next(it) == number // 40
            most = max(most, threading.active_count() - before)
    assert 40 < most <= 128
