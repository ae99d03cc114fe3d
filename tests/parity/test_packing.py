"""Packing in Grain and here: the same rows, and the same states after each."""

import json
import types
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import wholegrain as wg
from wholegrain import experimental, record
from wholegrain._core import native
from wholegrain.testing import difference

grain: Any = pytest.importorskip("grain")
grain_python: Any = pytest.importorskip("grain.python")

EXTENSION = native.lib
DTYPES = st.sampled_from([np.int32, np.int64, np.float32, np.uint8, np.bool_])
FIT = ["FirstFitPackIterDataset", "BestFitPackIterDataset"]


@pytest.fixture(autouse=True, params=["extension", "numpy"], scope="module")
def path(request: pytest.FixtureRequest) -> Iterator[None]:
    """Run every test with the C extension, then without."""
    if request.param == "extension" and EXTENSION is None:
        pytest.skip("the C extension is not built")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(native, "lib", EXTENSION if request.param == "extension" else None)
        yield


def elements_of(package: types.ModuleType, elements: list[Any]) -> Any:
    options = package.ReadOptions(num_threads=0, prefetch_buffer_size=0)
    return package.MapDataset.source(elements).to_iter_dataset(options)


def run(it: Any, limit: int = 200) -> tuple[list[Any], list[Any]]:
    """Return the elements that follow, and the states around them."""
    rows, states = [], [it.get_state()]
    for row in it:
        rows.append(row)
        states.append(it.get_state())
        assert len(rows) < limit
    states.append(it.get_state())
    return rows, states


def assert_same(expected: Any, found: Any, what: str) -> None:
    where = difference(expected, found, key_order=True)
    assert where is None, f"{what}: {where}\nexpected: {expected}\nfound: {found}"


def assert_parity(name: str, elements: list[Any], **kwargs: Any) -> None:
    """Compare whole runs, then runs restored from each state: Grain's own, and through JSON."""
    reference = getattr(grain.experimental, name)(elements_of(grain, elements), **kwargs)
    dataset = getattr(experimental, name)(elements_of(wg, elements), **kwargs)
    expected_rows, expected_states = run(iter(reference))
    rows, states = run(iter(dataset))
    assert_same(expected_rows, rows, "rows")
    assert expected_states == states
    it = iter(dataset)
    for step, state in enumerate(expected_states[:-1]):
        for form in (state, json.loads(json.dumps(state))):
            it.set_state(form)
            assert it.get_state() == expected_states[step]
            following, states = run(it)
            assert_same(expected_rows[step:], following, f"rows after restoring state {step}")
            assert states == expected_states[step:]


def sequences(
    draw: Callable[..., Any], dtype: Any, lengths: list[int], inner: tuple[int, ...]
) -> Any:
    first = draw(st.integers(0, 3))
    return [
        (np.arange(n * int(np.prod(inner))) + first + 7 * i).reshape(n, *inner).astype(dtype)
        for i, n in enumerate(lengths)
    ]


@st.composite
def features(draw: st.DrawFn, names: str, count: int, least: int = 0) -> Any:
    """Draw elements with some features, and the lengths of rows that they fit into."""
    columns, length_struct = {}, {}
    for name in draw(st.lists(st.sampled_from(names), min_size=1, max_size=3, unique=True)):
        lengths = draw(st.lists(st.integers(least, 9), min_size=count, max_size=count))
        kind = draw(st.sampled_from(["vector", "vector", "matrix", "scalar"]))
        if kind == "scalar":
            columns[name] = draw(st.lists(st.integers(0, 99), min_size=count, max_size=count))
            length_struct[name] = draw(st.integers(1, 5))
        else:
            inner = (2,) if kind == "matrix" else ()
            columns[name] = sequences(draw, draw(DTYPES), lengths, inner)
            length_struct[name] = draw(st.integers(max([1, *lengths]), 14))
    elements = [{name: column[i] for name, column in columns.items()} for i in range(count)]
    return elements, length_struct


@pytest.mark.parametrize("name", FIT)
@given(data=st.data(), count=st.integers(0, 25), bins=st.integers(1, 5), seed=st.integers(0, 99))
def test_one_feature(name: str, data: st.DataObject, count: int, bins: int, seed: int) -> None:
    lengths = data.draw(st.lists(st.integers(0, 8), min_size=count, max_size=count))
    elements = [{"x": np.full(n, i + 1)} for i, n in enumerate(lengths)]
    assert_parity(name, elements, length_struct={"x": 8}, num_packing_bins=bins, seed=seed)


@pytest.mark.parametrize("name", FIT)
@given(data=st.data(), count=st.integers(0, 15))
def test_every_argument(name: str, data: st.DataObject, count: int) -> None:
    elements, length_struct = data.draw(features("abcd", count))
    for i, element in enumerate(elements):
        element["tag"] = f"t{i}"
    names = st.sampled_from([*length_struct, "tag"])
    meta = data.draw(st.lists(names, max_size=3, unique=True))
    limit = data.draw(st.none() | st.integers(1, 3))
    # With a limit, Grain's best-fit lets empty elements into full bins.
    assume(limit is None or "First" in name or all(np.size(e[f]) for e in elements for f in e))
    # Grain finds the alignment of a feature by its place in the dict, not by its name.
    numbers = st.tuples(*[st.integers(1, 4) for _ in length_struct]).map(
        lambda values: dict(zip(length_struct, values, strict=True))
    )
    groups = [None, *length_struct, *[f"{f}_positions" for f in length_struct if f not in meta]]
    with np.errstate(all="ignore"):
        assert_parity(
            name,
            elements,
            length_struct=length_struct,
            num_packing_bins=data.draw(st.integers(1, 4)),
            seed=data.draw(st.integers(0, 99)),
            shuffle_bins=data.draw(st.booleans()),
            shuffle_bins_group_by_feature=data.draw(st.sampled_from(groups)),
            meta_features=meta,
            pack_alignment_struct=data.draw(st.none() | numbers),
            padding_struct=data.draw(st.none() | numbers),
            max_sequences_per_bin=limit,
        )


@pytest.mark.parametrize("name", FIT)
@pytest.mark.parametrize(
    "values",
    [
        [True, False, True],
        [1.5, 2, np.float32(3)],
        ["ab", "c", "def"],
        [np.str_("abc"), "defgh"],
        [np.array(["ab", "c"]), np.array(["def"])],
        [np.array(["ab", "c"], object), np.array([1], object)],
        [np.array(["2020-01-01"], "M8[D]"), np.array(["2021-01-01"] * 2, "M8[D]")],
        [np.arange(3, dtype=np.int8), np.array([1.7]), np.arange(2)[::-1]],
        [np.array(4), np.arange(2)],
        [np.arange(4).reshape(2, 2).T, np.ones((1, 2))],
        [np.arange(2, dtype=">i4"), np.arange(2, dtype="<i4")],
        [np.zeros(2, np.complex64), np.ones(1)],
        [np.zeros(2, np.float16), np.ones(1)],
        [np.zeros(2, [("a", "i4"), ("b", "f8")])] * 2,
    ],
)
def test_values_of_any_type(name: str, values: list[Any]) -> None:
    elements = [{"x": value, "other": i} for i, value in enumerate(values)]
    assert_parity(name, elements, length_struct={"x": 4}, num_packing_bins=2, shuffle_bins=False)


@pytest.mark.parametrize("name", FIT)
def test_nested_meta_features(name: str) -> None:
    elements = [
        {"x": np.arange(n), "m": {"b": np.arange(n, dtype=np.int8), "a": [n, n + 1]}}
        for n in (3, 1, 2, 4, 1)
    ]
    assert_parity(
        name,
        elements,
        length_struct={"m": {"b": 4, "a": [2, 3]}, "x": 5},
        num_packing_bins=2,
        meta_features=["m"],
    )


@pytest.mark.parametrize("name", FIT)
def test_the_size_of_a_packed_batch(name: str) -> None:
    elements = [{"x": np.zeros((3, 2), np.float32), "m": i, "s": "a"} for i in range(9)]
    sizes = [
        _packed_size(package, getattr(package.experimental, name), elements)
        for package in (grain, wg)
    ]
    assert sizes[0] == sizes[1]


def _packed_size(package: types.ModuleType, dataset: Any, elements: list[Any]) -> int:
    it = iter(
        dataset(
            elements_of(package, elements),
            length_struct={"x": 8, "m": 4},
            num_packing_bins=3,
            meta_features=["m", "s"],
        )
    )
    next(it)
    size: int = it.get_packed_batch_size_bytes()
    return size


@given(data=st.data(), count=st.integers(0, 12), length=st.integers(1, 9), split=st.booleans())
def test_concatenating_one_feature(
    data: st.DataObject, count: int, length: int, split: bool
) -> None:
    lengths = data.draw(st.lists(st.integers(0, 15), min_size=count, max_size=count))
    elements = [{"x": np.full(n, i + 1)} for i, n in enumerate(lengths)]
    _assert_concat_parity(elements, length_struct={"x": length}, split_full_length_features=split)


@given(data=st.data(), count=st.integers(0, 10))
def test_concatenating_with_meta_features_and_bos(data: st.DataObject, count: int) -> None:
    """One feature is split, as more of them meet defects of Grain's."""
    lengths = data.draw(st.lists(st.integers(1, 12), min_size=count, max_size=count))
    arrays = sequences(
        data.draw, data.draw(DTYPES), lengths, data.draw(st.sampled_from([(), (2,)]))
    )
    elements = [
        {"meta": np.arange(n % 3), "i": i, "x": x}
        for i, (n, x) in enumerate(zip(lengths, arrays, strict=True))
    ]
    kwargs: dict[str, Any] = {}
    if data.draw(st.booleans()):
        kwargs = {"bos_token_id": 1, "bos_features": ["x"]}
    _assert_concat_parity(
        elements,
        length_struct={"meta": 3, "x": data.draw(st.integers(1, 9)), "i": 4},
        meta_features=["i", "meta"],
        split_full_length_features=data.draw(st.booleans()),
        **kwargs,
    )


def _assert_concat_parity(elements: list[Any], **kwargs: Any) -> None:
    """Like `assert_parity`; Grain's own states do not survive JSON, but here they do."""
    runs = []
    for package in (grain, wg):
        names = package.experimental
        if "bos_token_id" in kwargs:
            kwargs["bos_handling"] = names.BOSHandling.REPLACE_FIRST_TOKEN_WITH_BOS
        dataset = names.ConcatThenSplitIterDataset(elements_of(package, elements), **kwargs)
        runs.append(run(iter(dataset)))
    (expected_rows, expected_states), (rows, states) = runs
    assert_same(expected_rows, rows, "rows")
    assert expected_states == states
    it = iter(dataset)
    for step, state in enumerate(expected_states[:-1]):
        for form in (state, json.loads(json.dumps(state))):
            it.set_state(form)
            assert it.get_state() == expected_states[step]
            following, states = run(it)
            assert_same(expected_rows[step:], following, f"rows after restoring state {step}")
            assert states == expected_states[step:]


@pytest.mark.parametrize(
    "values",
    [[True, 2.5], ["abc", "defgh"], [1, 2.5], [[1, 2, 3], [1.5]], [np.array(3), np.arange(2)]],
)
def test_concatenating_values_of_any_type(values: list[Any]) -> None:
    _assert_concat_parity([{"x": value} for value in values], length_struct={"x": 4})


@given(data=st.data(), count=st.integers(1, 12), limit=st.none() | st.integers(1, 3))
def test_the_pack_and_batch_operation(data: st.DataObject, count: int, limit: int | None) -> None:
    lengths = data.draw(st.lists(st.integers(0, 6), min_size=count, max_size=count))
    datas = [{"b": np.arange(n), "a": [np.full((7 - n, 2), n, np.float32)]} for n in lengths]
    batches = []
    for operations, records in ((grain.experimental, grain_python), (experimental, record)):
        with warnings.catch_warnings(action="ignore"):
            operation = operations.PackAndBatchOperation({"b": 6, "a": [9]}, 2, limit)
        inputs = [
            records.Record(records.RecordMetadata(i, record_key=9 * i), data)
            for i, data in enumerate(datas)
        ]
        packed = operation(iter(inputs))
        batches.append([(r.metadata.index, r.metadata.record_key, r.data) for r in packed])
    assert_same(batches[0], batches[1], "batches")
