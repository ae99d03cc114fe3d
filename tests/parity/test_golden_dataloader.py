"""Every recorded value of Grain's DataLoader, and the rule that replaces it where it is wrong."""

import itertools
import json
from typing import Any

import numpy as np
import pytest

import wholegrain as wg
import wholegrain.python as flat_wg
from tests.loader import recipes
from tests.parity import golden, model
from wholegrain.testing import difference

_GOLDEN = golden.load("golden_dataloader.json")
_END = "the end"

# Other tests check these warnings.
pytestmark = [
    pytest.mark.filterwarnings("ignore:.*Operation` is deprecated:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:The sampler has num_records:UserWarning"),
]


def _decode(value: Any) -> Any:
    match value:
        case {"nd": flat, "dtype": dtype}:
            return np.array(flat, dtype=dtype)
        case {"tuple": items}:
            return tuple(_decode(item) for item in items)
        case list():
            return [_decode(item) for item in value]
        case dict():
            return {key: _decode(item) for key, item in value.items()}
    return value


def _assert_same(expected: Any, found: Any, what: str) -> None:
    where = difference(expected, found)
    assert where is None, f"{what}: {where}\nexpected: {expected}\nfound: {found}"


# Samplers.


def _samplers(*, superseded: bool = False) -> list[Any]:
    return [
        pytest.param(case, id=case["id"])
        for case in _GOLDEN["samplers"]
        if ("superseded" in case) == superseded
    ]


@pytest.mark.parametrize("case", _samplers() + _samplers(superseded=True))
def test_a_sampler_is_called_and_counts_as_recorded(case: dict[str, Any]) -> None:
    sampler = recipes.sampler(flat_wg, case["sampler"])
    assert repr(sampler) == case["repr"]
    assert len(sampler) == case["len"]
    for outside in (-1, case["len"]):
        if case["sampler"].get("epochs", 1) is not None or outside < 0:
            with pytest.raises(IndexError):
                sampler[outside]


@pytest.mark.parametrize("case", _samplers())
def test_a_sampler_names_the_recorded_keys_and_draws_the_recorded_numbers(
    case: dict[str, Any],
) -> None:
    sampler = recipes.sampler(flat_wg, case["sampler"])
    assert [record[0] for record in case["records"]] == _recorded_indices(case)
    for record in case["records"]:
        metadata = sampler[record[0]]
        assert (metadata.index, metadata.record_key) == tuple(record[:2])
        assert type(metadata.record_key) is int
        assert (metadata.rng is not None) == (len(record) > 2)
        assert _draws(metadata.rng) == record[2:]
        # Another access starts the stream anew.
        assert _draws(sampler[record[0]].rng) == record[2:]


@pytest.mark.parametrize("case", _samplers())
def test_a_sampler_names_the_recorded_keys_of_many_records_at_once(case: dict[str, Any]) -> None:
    sampler = recipes.sampler(flat_wg, case["sampler"])
    indices = np.array([record[0] for record in case["records"]])
    assert sampler.record_keys(indices).tolist() == [record[1] for record in case["records"]]


@pytest.mark.parametrize("case", _samplers(superseded=True))
def test_where_grain_loses_a_record_only_the_last_of_an_epoch_differs(
    case: dict[str, Any],
) -> None:
    sampler = recipes.sampler(flat_wg, case["sampler"])
    count, seed = case["sampler"]["n"], case["sampler"]["seed"]
    for index, key, *draws in case["records"]:
        metadata = sampler[index]
        epoch, place = divmod(index, count)
        assert metadata.record_key == model.index_shuffle(place, count - 1, seed + epoch, 4)
        assert (metadata.record_key == key) == (place < count - 1)
        assert _draws(metadata.rng) == draws
    keys = sampler.record_keys(np.arange(count, 2 * count))
    assert sorted(keys.tolist()) == list(range(count))


def _recorded_indices(case: dict[str, Any]) -> list[int]:
    if "probe" in case:
        return list(case["probe"])
    index, count, _ = case["sampler"].get("shard", [0, 1, False])
    return list(range(index, case["len"], count))


def _draws(rng: np.random.Generator | None) -> list[Any]:
    if rng is None:
        return []
    return [int(rng.integers(2**32)), rng.random().hex(), int(rng.integers(1000))]


# Loaders.


def _loaders(*, with_key: str | None = None) -> list[Any]:
    return [
        pytest.param(case, id=case["id"])
        for case in _GOLDEN["loaders"]
        if with_key is None or with_key in case
    ]


def _outputs(case: dict[str, Any]) -> list[Any]:
    return [_decode(output) for output in case.get("head_outputs", case["outputs"])]


def _states(case: dict[str, Any]) -> dict[int, bytes]:
    """Return the recorded states, by the number of elements before each."""
    return {count: _whole_state(case, state) for count, state in enumerate(case["states"])}


def _whole_state(case: dict[str, Any], state: dict[str, Any]) -> bytes:
    common = case["state_common"]
    if not common:
        return recipes.state_bytes(state)
    # The keys in the order in which they are written.
    keys = [
        "version",
        "last_seen_indices",
        "last_worker_index",
        "worker_count",
        "sampler",
        "data_source",
    ]
    return recipes.state_bytes({key: {**common, **state}[key] for key in keys})


def _state_at_end(case: dict[str, Any]) -> bytes | None:
    """Return the state after the end; None where Grain's end comes too early."""
    if not case["exhausted"] or "head_outputs" in case:
        return None
    return _whole_state(case, case["state_after_stop"])


@pytest.mark.parametrize("case", _loaders())
def test_a_loader_gives_the_recorded_elements(case: dict[str, Any]) -> None:
    loader = recipes.loader(flat_wg, case)
    expected = _outputs(case)
    for _ in range(2):  # A loader starts anew with each iterator.
        with iter(loader) as it:
            for place, output in enumerate(expected):
                _assert_same(output, next(it, _END), f"element {place}")
            if case["exhausted"]:
                assert [next(it, _END) for _ in range(3)] == [_END] * 3


@pytest.mark.parametrize("case", _loaders(with_key="states"))
def test_a_loader_goes_through_the_recorded_states(case: dict[str, Any]) -> None:
    states = _states(case)
    with iter(recipes.loader(flat_wg, case)) as it:
        for place in range(len(_outputs(case)) + 1):
            if place in states:
                assert it.get_state() == states[place], f"after {place} elements"
                assert str(it) == f"PyGrainDatasetIterator(state={states[place].decode()})"
            if place < len(_outputs(case)):
                next(it)
        if case["exhausted"]:
            assert next(it, _END) == _END
        at_end = _state_at_end(case)
        assert at_end is None or it.get_state() == at_end


@pytest.mark.parametrize("case", _loaders(with_key="restore"))
def test_a_recorded_state_restores_into_fresh_and_running_iterators(case: dict[str, Any]) -> None:
    loader = recipes.loader(flat_wg, case)
    outputs, states = _outputs(case), _states(case)
    assert set(case["restore"].values()) == {"same"}
    with iter(loader) as used:
        for key in case["restore"]:
            if key == "after_stop":
                place, state = len(outputs), _state_at_end(case)
            else:
                place, state = int(key), states[int(key)]
            if state is None:
                continue
            with iter(loader) as fresh:
                # Workers take a while to start: then one fresh iterator is enough.
                for it in (fresh, used) if key == "1" or not case["workers"] else (used,):
                    it.set_state(state)
                    # A flat map forgets at its end how many parts the last element had.
                    if not (key == "after_stop" and case["ops"][0]["op"] == "flat"):
                        assert it.get_state() == state
                    for later, output in enumerate(outputs[place:], place):
                        _assert_same(output, next(it, _END), f"element {later} from {key}")
                        if later + 1 in states:
                            assert it.get_state() == states[later + 1]
                    if case["exhausted"]:
                        assert next(it, _END) == _END


# One call.


def _range_source() -> Any:
    return wg.sources.RangeDataSource(0, 10, 1)


def test_load_gives_the_recorded_elements() -> None:
    add_hundred = recipes.operation(flat_wg, {"op": "add", "k": 100})
    calls = [
        wg.load(_range_source(), num_epochs=1, shuffle=True, seed=3, batch_size=4),
        wg.load(_range_source(), num_epochs=2, batch_size=4, drop_remainder=True),
        wg.load(
            _range_source(),
            num_epochs=1,
            shuffle=True,
            seed=3,
            shard_options=wg.sharding.ShardOptions(1, 2, drop_remainder=True),
            transformations=[add_hundred],
        ),
    ]
    for call, recorded in zip(calls, _GOLDEN["load"], strict=True):
        _assert_same(_decode(recorded["outputs"]), list(call), recorded["call"])


def test_load_without_epochs_never_ends() -> None:
    elements = itertools.islice(wg.load(_range_source()), 25)
    assert list(elements) == [index % 10 for index in range(25)]


# Texts.


def test_the_text_of_a_state_is_the_recorded_one() -> None:
    case = {
        "sampler": {
            "type": "index",
            "n": 16,
            "epochs": 1,
            "shuffle": True,
            "seed": 2,
            "shard": [1, 2, True],
        },
        "ops": [
            {"op": "add", "k": 1},
            {"op": "keep_mod", "m": 2, "r": 0},
            {"op": "batch", "size": 2},
        ],
        "workers": 0,
    }
    it = iter(recipes.loader(flat_wg, case))
    next(it)
    assert it.get_state().decode() == _GOLDEN["raw_state_text"]
    assert str(it) == _GOLDEN["raw_str"]
    assert json.loads(it.get_state())["last_seen_indices"] == {"0": 7}
