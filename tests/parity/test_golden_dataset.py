"""Every recorded value of Grain's Dataset API, and the rule that replaces it where it is wrong."""

import copy
import itertools
import json
import math
from collections import Counter
from typing import Any

import numpy as np
import pytest

import wholegrain as wg
from tests.parity import golden, model
from wholegrain._core import tree
from wholegrain.testing import difference

_GOLDEN = golden.load("golden_dataset.json")
_CASES = [*_GOLDEN["cases"], *_GOLDEN["cases_next"]]
_NAMES = golden.namespace(wg)


def _params(kind: str, *, superseded: bool = False) -> list[Any]:
    return [
        pytest.param(case, id=case["id"])
        for case in _CASES
        if case["kind"] == kind and ("superseded" in case) == superseded
    ]


def _build(case: dict[str, Any]) -> Any:
    return eval(case["expr"], _NAMES)


def _assert_same(expected: Any, found: Any, what: str = "") -> None:
    # Recorded without jax. With it, keys are sorted.
    where = difference(expected, found, key_order=not tree.follows_jax())
    assert where is None, f"{what}: {where}\nexpected: {expected}\nfound: {found}"


# Random access.


@pytest.mark.parametrize("case", _params("map"))
def test_a_map_dataset_gives_the_recorded_elements(case: dict[str, Any]) -> None:
    ds = _build(case)
    assert len(ds) == case["len"]
    for index, element in zip(case["index"], case["getitem"], strict=True):
        _assert_same(golden.decode(element), ds[index], f"ds[{index}]")


@pytest.mark.parametrize("case", _params("map"))
def test_one_chunk_gives_the_recorded_elements(case: dict[str, Any]) -> None:
    elements = _build(case).getitems(np.array(case["index"], dtype=np.int64))
    _assert_same(golden.decode(case["getitem"]), list(elements))


@pytest.mark.parametrize("case", [p for p in _params("map") if "iterate" in p.values[0]])
def test_iterating_over_a_map_dataset_gives_the_recorded_elements(case: dict[str, Any]) -> None:
    _assert_same(golden.decode(case["iterate"]), list(_build(case)))


# Iterators.


@pytest.mark.parametrize("case", _params("iter"))
def test_an_iterator_goes_through_the_recorded_elements_and_states(case: dict[str, Any]) -> None:
    _go_through(iter(_build(case)), case, *_states(case)[0], restored=False)


@pytest.mark.parametrize("case", _params("iter"))
def test_a_recorded_state_restores_into_a_fresh_iterator(case: dict[str, Any]) -> None:
    ds = _build(case)
    for step, state in _states(case):
        for form in (state, json.loads(json.dumps(state))):
            it = iter(ds)
            it.set_state(form)
            _go_through(it, case, step, state)


@pytest.mark.parametrize("case", _params("iter"))
def test_a_recorded_state_restores_into_a_running_iterator(case: dict[str, Any]) -> None:
    ds = _build(case)
    count = len(case["elements"])
    for step, state in _states(case):
        for elsewhere in {0, 1, count // 2, count}:
            it = iter(ds)
            for _ in range(elsewhere):
                next(it)
            if elsewhere == count and case["exhausted"]:
                assert next(it, "the end") == "the end"
            given = copy.deepcopy(state)
            it.set_state(given)
            _assert_same(state, given, "the state that was set")
            _go_through(it, case, step, state)
            it.set_state(given)
            _go_through(it, case, step, state)
            _assert_same(state, given, "the state that was set, later")


@pytest.mark.parametrize("case", _params("iter"))
def test_states_that_were_handed_out_do_not_change(case: dict[str, Any]) -> None:
    it = iter(_build(case))
    states = [it.get_state()]
    kept = copy.deepcopy(states)
    for _ in itertools.islice(it, len(case["elements"])):
        states.append(it.get_state())
        kept.append(copy.deepcopy(states[-1]))
    _assert_same(kept, states)


def _states(case: dict[str, Any]) -> list[tuple[int, Any]]:
    """Return each recorded state with the number of elements before it."""
    states = [(step, golden.decode(state)) for step, state in case["states"]]
    if case["exhausted"]:
        states.append((len(case["elements"]), golden.decode(case["state_after_stop"])))
    return states


def _go_through(
    it: Any, case: dict[str, Any], step: int, state: Any, *, restored: bool = True
) -> None:
    """Check elements and states from `step`, where the state is `state`, to the end."""
    elements = golden.decode(case["elements"])
    states = dict(golden.decode(case["states"])) | {step: state}
    # At its end a flat map forgets how many parts the last element had. What a cache holds is
    # not part of its state, so that states may be others after a restore.
    forgets = "FlatMapIter" in case["expr"] and step == len(elements)
    forgets |= "CacheIter" in case["expr"] and restored
    for place in range(step, len(elements) + 1):
        if place in states and not forgets:
            _assert_same(states[place], it.get_state(), f"state after {place} elements")
        if place < len(elements):
            _assert_same(elements[place], next(it, "the end"), f"element {place}")
    if case["exhausted"]:
        assert next(it, "the end") == "the end"
        if step < len(elements) and not forgets:
            _assert_same(golden.decode(case["state_after_stop"]), it.get_state(), "state at end")
        assert [next(it, "the end") for _ in range(3)] == ["the end"] * 3


# Where Grain repeats or loses elements, the rule is another.


def _window_shuffled(length: int, window_size: int, seed: int, count: int) -> list[int]:
    return [
        model.window_shuffled(index, length, window_size, seed) % length for index in range(count)
    ]


def _expected_of_superseded(case_id: str, count: int) -> list[Any]:
    if case_id == "window_shuffle_map":
        return _window_shuffled(10, 4, 7, count)
    assert case_id == "pipe"
    shuffled = _window_shuffled(8, 3, 1, 2 * count)
    return [np.array(shuffled[i : i + 2]) for i in range(0, 2 * count, 2)]


@pytest.mark.parametrize("case", _params("map", superseded=True))
def test_windows_start_anew_with_each_epoch(case: dict[str, Any]) -> None:
    ds = _build(case)
    expected = _expected_of_superseded(case["id"], len(case["index"]))
    assert len(ds) == case["len"]
    assert case["index"] == list(range(len(expected)))
    _assert_same(expected, [ds[index] for index in case["index"]])
    _assert_same(expected, list(ds.getitems(np.arange(len(expected)))))
    _assert_same(expected[: len(ds)], list(ds))
    flat = np.concatenate([np.atleast_1d(element) for element in expected[: len(ds)]])
    assert sorted(flat) == list(range(len(flat))), "an epoch has every element once"


def test_no_case_of_the_iterators_is_superseded() -> None:
    assert _params("iter", superseded=True) == []


# The permutation.


def _is_aliased(index: int, max_index: int) -> bool:
    bits = math.ceil(math.log2(max_index)) if max_index else 0
    return index >= 1 << max(bits + bits % 2, 16)


@pytest.mark.parametrize(
    ("max_index", "seed", "rounds", "points"),
    _GOLDEN["index_shuffle"]["points"],
    ids=lambda value: "" if isinstance(value, list) else str(value),
)
def test_index_shuffle_gives_the_recorded_points(
    max_index: int, seed: int, rounds: int, points: list[list[int]]
) -> None:
    for index, recorded in points:
        expected = index if _is_aliased(index, max_index) else recorded
        found = wg.experimental.index_shuffle(index, max_index, seed, rounds)
        assert type(found) is int
        assert found == expected
        if max_index > 1000:  # Else the model walks too long.
            assert model.index_shuffle(index, max_index, seed, rounds) == expected


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(p, id=f"{p['n']}-{p['seed']}-{p['rounds']}")
        for p in _GOLDEN["index_shuffle"]["permutations"]
    ],
)
def test_index_shuffle_gives_the_recorded_permutations(case: dict[str, Any]) -> None:
    n, seed, rounds = case["n"], case["seed"], case["rounds"]
    shuffle = wg.experimental.index_shuffle
    assert [shuffle(i, n - 1, seed, rounds) for i in range(n)] == case["perm"]
    assert sorted(case["perm"]) == list(range(n))
    if rounds == 4:
        assert list(wg.MapDataset.range(n).shuffle(seed=seed)) == case["perm"]


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(k, id=f"{k['seed']}-{k['rounds']}")
        for k in _GOLDEN["index_shuffle"]["round_keys"]
    ],
)
def test_index_shuffle_uses_the_recorded_keys(case: dict[str, Any]) -> None:
    # Keys are not public. The model has the recorded ones, and agrees.
    seed, rounds = case["seed"], case["rounds"]
    assert model.round_keys(seed, rounds) == case["keys"]
    for max_index in (40_000, 10**6, 10**12, 2**63 - 1):
        for index in (0, 1, 12_345, max_index // 3, max_index):
            if not _is_aliased(index, max_index):
                expected = model.index_shuffle(index, max_index, seed, rounds)
                assert wg.experimental.index_shuffle(index, max_index, seed, rounds) == expected


@pytest.mark.parametrize("bits", [16, 18, 20])
def test_shuffle_is_a_permutation_where_grain_repeats_an_element(bits: int) -> None:
    length = 2**bits + 1
    ds = wg.MapDataset.range(length).shuffle(seed=7)
    epoch = np.array(list(ds.getitems(np.arange(length))))
    assert epoch[-1] == length - 1
    assert np.array_equal(np.sort(epoch), np.arange(length))
    assert epoch[5] == model.index_shuffle(5, length - 1, 7, 4)


# Errors.


@pytest.mark.parametrize(
    "case", [pytest.param(case, id=case["expr"]) for case in _GOLDEN["errors"]]
)
def test_errors_are_of_the_recorded_class(case: dict[str, Any]) -> None:
    expr, expected, prefer = case["expr"], case["exception"], case.get("prefer", "")
    if prefer.startswith("no error"):
        eval(expr, _NAMES)
        return
    if prefer.endswith(" at construction"):
        expr, _, _ = expr.rpartition("[")
    if prefer:
        expected = prefer.removesuffix(" at construction")
    allowed = {expected}
    if expr == "R(10).slice(3)":
        # Since `slice` takes a sequence of indices too, this is a wrong type more than a value.
        allowed.add("TypeError")
    with pytest.raises(Exception) as raised:  # noqa: PT011
        eval(expr, _NAMES)
    assert allowed & {kind.__name__ for kind in raised.type.__mro__}, raised.value


# Batches, seeds, random numbers, mixtures.


@pytest.mark.parametrize(
    "case", [pytest.param(case, id=case["elements"]) for case in _GOLDEN["default_batching"]]
)
def test_default_batching_stacks_as_recorded(case: dict[str, Any]) -> None:
    elements = eval(case["elements"], _NAMES)
    ds = wg.MapDataset.source(elements)
    expected = golden.decode(case["batch"])
    if elements[0] is None and tree.follows_jax():
        expected = None  # To jax it is an empty container.
    batched: Any = ds.to_iter_dataset(allow_nones=True).batch(len(elements))
    _assert_same([expected], list(batched))
    if any(element is None for element in elements):
        # In a MapDataset, None says that there is no element: Grain stacks that as an object.
        with pytest.raises(ValueError, match=r"None|missing"):
            ds.batch(len(elements))[0]
    else:
        _assert_same(expected, ds.batch(len(elements))[0])
        (chunk,) = ds.batch(len(elements)).getitems(np.array([0]))
        _assert_same(expected, chunk)


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, id="-".join(map(str, case["words"])))
        for case in _GOLDEN["default_seed"]
        if len(case["words"]) == 2
    ],
)
def test_the_default_seed_follows_from_the_seed_and_its_distance(case: dict[str, Any]) -> None:
    seed, distance = case["words"]
    ds = wg.MapDataset.range(1000).seed(seed)
    for _ in range(distance - 1):
        ds = ds.map(_NAMES["inc"])
    if distance == 0:
        assert ds._default_seed == case["seed"]
        return
    indices = range(-1000, 2000, 77)
    explicit = ds.shuffle(seed=case["seed"])
    assert [ds.shuffle()[i] for i in indices] == [explicit[i] for i in indices]
    rmix = _NAMES["rmix"]
    drawn, expected = ds.random_map(rmix), ds.random_map(rmix, seed=case["seed"])
    assert [drawn[i] for i in range(5)] == [expected[i] for i in range(5)]


def test_the_default_seed_of_a_mixture_takes_the_nearest_seeds_first() -> None:
    seeds = {tuple(case["words"]): case["seed"] for case in _GOLDEN["default_seed"]}
    ds = wg.MapDataset.range(1000)
    near, far = ds.seed(1), ds.seed(2).shuffle()
    for components in ([near, far, ds], [far, near, ds]):
        mixed = wg.MapDataset.mix(components)
        assert mixed.shuffle()[5] == mixed.shuffle(seed=seeds[1, 2, 2, 3])[5]
        assert mixed.shuffle()[5] != mixed.shuffle(seed=seeds[2, 3, 1, 2])[5]


@pytest.mark.parametrize(
    "case",
    [pytest.param(case, id=f"{case['seed']}-{case['index']}") for case in _GOLDEN["philox"]],
)
def test_random_numbers_are_the_recorded_ones(case: dict[str, Any]) -> None:
    seed, index = case["seed"], case["index"]

    def draw(rng: np.random.Generator) -> list[Any]:
        return [rng.random(3).tolist(), rng.integers(0, 2**63 - 1, 3).tolist()]

    expected = [case["random3"], case["integers3"]]
    pool = wg.experimental.RngPool(seed)
    for _ in range(2):  # The second time with a generator that was used.
        rng = pool.acquire_rng(index)
        assert draw(rng) == expected
        pool.release_rng(rng)
    ds = wg.MapDataset.range(10).random_map(lambda _, rng: draw(rng), seed=seed)
    assert ds[index] == expected
    assert list(ds.getitems(np.array([index, 3, index])))[::2] == [expected, expected]
    if index < 10:
        it = iter(
            wg.MapDataset.range(10)
            .to_iter_dataset()
            .random_map(lambda _, rng: draw(rng), seed=seed)
        )
        assert next(itertools.islice(it, index, None)) == expected


@pytest.mark.parametrize(
    "case",
    [pytest.param(case, id=str(case["weights"])) for case in _GOLDEN["mix_selection"]],
)
def test_mixtures_take_components_in_the_recorded_order(case: dict[str, Any]) -> None:
    def component(number: int, length: int) -> wg.MapDataset[Any]:
        return wg.MapDataset.range(length).map_with_index(lambda index, _: (number, index))

    lengths = case["component_lengths"]
    components = [component(number, length) for number, length in enumerate(lengths)]
    ds: Any = wg.MapDataset.mix(components, case["weights"])
    assert len(ds) == case["len"]
    recorded = dict(enumerate(case["first"])) | dict(case["far"])
    expected = {position: tuple(place) for position, place in recorded.items()}
    assert {position: ds[position] for position in expected} == expected
    chunk = ds.getitems(np.array(list(expected)))
    assert list(chunk) == list(expected.values())
    for position in (-1, -2, -1000, 2**40, 2**62):
        assert ds[position] == model.mix_position(position, case["int_weights"])

    period = sum(case["int_weights"])
    counts = Counter(number for number, _ in ds.getitems(np.arange(period)))
    assert [counts[number] for number in range(len(lengths))] == case["int_weights"]
