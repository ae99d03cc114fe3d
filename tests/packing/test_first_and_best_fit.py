import gc
import itertools
import json
from collections.abc import Sequence
from typing import Any

import cloudpickle  # type: ignore[import-untyped]
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import wholegrain as wg
from wholegrain._packing.recycling import RecycledArrays
from wholegrain.experimental import BestFitPackIterDataset, FirstFitPackIterDataset
from wholegrain.testing import check_iter_dataset

both = pytest.mark.parametrize("pack", [FirstFitPackIterDataset, BestFitPackIterDataset])

LENGTHS = [3, 5, 2, 7, 1, 4, 6, 2, 2, 8, 3, 3, 1, 5, 4, 4]


def numbered(lengths: Sequence[int]) -> wg.IterDataset[Any]:
    """Make sequences of these lengths: the first one of 1s, the second one of 2s, and so on."""
    elements = [{"x": np.full(length, i + 1)} for i, length in enumerate(lengths)]
    return wg.MapDataset.source(elements).to_iter_dataset()


def packed(pack: Any, lengths: Sequence[int], **kwargs: Any) -> Any:
    kwargs = {"length_struct": {"x": 8}, "num_packing_bins": 3, "shuffle_bins": False} | kwargs
    return pack(numbered(lengths), **kwargs)


def test_first_fit_takes_the_first_bin_with_room() -> None:
    rows = list(packed(FirstFitPackIterDataset, LENGTHS))
    assert [row["x"].tolist() for row in rows][:4] == [
        [1, 1, 1, 2, 2, 2, 2, 2],
        [3, 3, 5, 6, 6, 6, 6, 0],
        [4, 4, 4, 4, 4, 4, 4, 0],
        [7, 7, 7, 7, 7, 7, 8, 8],
    ]
    assert rows[1]["x_segment_ids"].tolist() == [1, 1, 2, 3, 3, 3, 3, 0]
    assert rows[1]["x_positions"].tolist() == [0, 1, 0, 0, 1, 2, 3, 0]


def test_best_fit_takes_the_fullest_bin_with_room() -> None:
    rows = list(packed(BestFitPackIterDataset, LENGTHS))
    assert [row["x"].tolist() for row in rows][:3] == [
        [1, 1, 1, 2, 2, 2, 2, 2],
        [3, 3, 6, 6, 6, 6, 0, 0],
        [4, 4, 4, 4, 4, 4, 4, 5],
    ]


@both
@given(data=st.data(), limit=st.none() | st.integers(1, 3), bins=st.integers(1, 6))
def test_each_element_is_in_the_bin_that_its_rule_says(
    pack: Any, data: st.DataObject, limit: int | None, bins: int
) -> None:
    """A plain model of two features packs the same rows."""
    capacities = {"a": 6, "b": 9}
    pairs = data.draw(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 9)), max_size=30))
    alignment = data.draw(st.fixed_dictionaries({"a": st.integers(1, 3), "b": st.integers(1, 3)}))
    elements = [{"a": np.full(a, i + 1), "b": np.full(b, i + 1)} for i, (a, b) in enumerate(pairs)]
    rows: list[dict[str, Any]] = []
    batch: list[dict[str, Any]] = []
    for i, element in enumerate(elements):
        fits = [
            row
            for row in batch
            if (limit is None or row["count"] < limit)
            and all(row["free"][f] + len(element[f]) <= capacities[f] for f in capacities)
        ]
        if not fits and len(batch) == bins:
            rows += batch
            batch = []
        if not fits:
            batch.append({"count": 0, "free": {"a": 0, "b": 0}, "ids": []})
            fits = batch[-1:]
        if pack is BestFitPackIterDataset:
            # The last is the empty one, if it is there at all.
            fits.sort(key=lambda row: -sum(row["free"].values()))
        chosen = fits[0]
        chosen["count"] += 1
        chosen["ids"].append(i + 1)
        for f in capacities:
            end = chosen["free"][f] + len(element[f])
            chosen["free"][f] = -(-end // alignment[f]) * alignment[f]
    expected = [row["ids"] for row in rows + batch]
    ds = pack(
        wg.MapDataset.source([e | {"id": i + 1} for i, e in enumerate(elements)]).to_iter_dataset(),
        length_struct=capacities,
        num_packing_bins=bins,
        shuffle_bins=False,
        meta_features=["id"],
        pack_alignment_struct=alignment,
        max_sequences_per_bin=limit,
    )
    assert [row["id"] for row in ds] == expected


@both
@pytest.mark.parametrize("bins", [1, 2, 3, 100])
@pytest.mark.parametrize("shuffle", [False, True])
def test_resumes_at_every_row(pack: Any, bins: int, shuffle: bool) -> None:
    check_iter_dataset(packed(pack, LENGTHS, num_packing_bins=bins, shuffle_bins=shuffle))
    check_iter_dataset(packed(pack, [], num_packing_bins=bins))


@both
def test_the_extension_is_not_in_the_pipeline(pack: Any) -> None:
    ds = packed(pack, LENGTHS)
    copy = cloudpickle.loads(cloudpickle.dumps(ds))
    assert [r["x"].tolist() for r in copy] == [r["x"].tolist() for r in ds]


@both
def test_rows_stay_as_they_are_while_someone_holds_them(pack: Any) -> None:
    lengths = [1 + (7 * i) % 8 for i in range(500)]
    ds = packed(pack, lengths)
    kept, copies = [], []
    for i, row in enumerate(ds):
        if i % 5 == 0:
            # A view of a view of a row, when the row itself is gone.
            kept.append(row["x"][1:][::2])
            copies.append(kept[-1].copy())
        del row
    assert all(np.array_equal(a, b) for a, b in zip(kept, copies, strict=True))


def test_memory_is_used_again_when_nothing_refers_to_it() -> None:
    memory = RecycledArrays(max_spare=2)
    first = memory.full((4, 100), None, np.int32)
    address = first.ctypes.data
    view = first[1:, 5:].T[::2]
    del first
    gc.collect()
    assert memory.full((4, 100), None, np.int32).ctypes.data != address
    del view
    second = memory.full((4, 100), 7, np.int32)
    third = memory.full((4, 100), None, np.int32)
    assert address in (second.ctypes.data, third.ctypes.data)
    assert (second == 7).all()
    assert not third.any()


@both
def test_reads_no_further_than_it_must(pack: Any) -> None:
    read = []

    def note(element: Any) -> Any:
        read.append(len(element["x"]))
        return element

    options = wg.ReadOptions(num_threads=0, prefetch_buffer_size=0)
    source = wg.MapDataset.source([{"x": np.arange(n)} for n in LENGTHS])
    ds = source.to_iter_dataset(options).map(note)
    it = iter(pack(ds, length_struct={"x": 8}, num_packing_bins=3))
    next(it)
    assert read == LENGTHS[:7]  # One does not fit.
    next(it)
    assert read == LENGTHS[:7]


@both
def test_goes_on_behind_an_element_that_is_too_long(pack: Any) -> None:
    it = iter(packed(pack, [3, 9, 4, 8, 2], num_packing_bins=1))
    with pytest.raises(ValueError, match=r"'x' has 9 of at most 8.*`length_struct`"):
        next(it)
    assert [row["x"].tolist() for row in it] == [
        [1, 1, 1, 3, 3, 3, 3, 0],
        [4] * 8,
        [5, 5, 0, 0, 0, 0, 0, 0],
    ]


@both
def test_goes_on_behind_a_parent_that_failed(pack: Any) -> None:
    def fail(element: Any) -> Any:
        if len(element["x"]) == 5:
            raise RuntimeError("five")
        return element

    ds = numbered([3, 5, 2, 7, 1]).map(fail)
    it = iter(pack(ds, length_struct={"x": 8}, num_packing_bins=3, shuffle_bins=False))
    with pytest.raises(RuntimeError, match="five"):
        next(it)
    rows = [row["x"].tolist() for row in it]
    if pack is FirstFitPackIterDataset:
        assert rows == [[1, 1, 1, 3, 3, 5, 0, 0], [4, 4, 4, 4, 4, 4, 4, 0]]
    else:
        assert rows == [[1, 1, 1, 3, 3, 0, 0, 0], [4, 4, 4, 4, 4, 4, 4, 5]]


@both
def test_an_empty_element_takes_its_place_too(pack: Any) -> None:
    """With a limit of elements, one without any cells counts."""
    rows = list(packed(pack, [0, 0, 0], num_packing_bins=2, max_sequences_per_bin=1))
    assert len(rows) == 3


@both
def test_a_state_of_another_dataset_is_refused(pack: Any) -> None:
    it = iter(packed(pack, LENGTHS))
    next(it)
    before = it.get_state()
    for next_row, counter, message in [
        (3, 3, "3 rows of a packed batch were read, and more follow; but with num_packing_bins=3"),
        (2, 1, "2 rows of a packed batch were read, but only 1"),
    ]:
        with pytest.raises(ValueError, match=message):
            it.set_state({"parent": {"next_index": 0}, "next_row": next_row, "counter": counter})
        assert it.get_state() == before
    # Only packing shows that the last batch has a single row.
    it.set_state({"parent": {"next_index": 15}, "next_row": 2, "counter": 8})
    with pytest.raises(ValueError, match=r"2 rows .* another dataset"):
        next(it)


@both
def test_lists_are_packed_like_arrays(pack: Any) -> None:
    source = wg.MapDataset.source([{"x": [1, 2]}, {"x": (3,)}, {"x": np.array([4])}])
    ds = pack(source.to_iter_dataset(), length_struct={"x": 4}, num_packing_bins=1)
    (row,) = ds
    assert row["x"].tolist() == [1, 2, 3, 4]


@both
def test_a_closed_iterator_keeps_its_state(pack: Any) -> None:
    it = iter(packed(pack, LENGTHS))
    expected = [row["x"].tolist() for row in it]
    for read in range(len(expected)):
        it = iter(packed(pack, LENGTHS))
        for _ in range(read):
            next(it)
        state = it.get_state()
        it.close()
        assert it.get_state() == state
        with pytest.raises(ValueError, match="closed"):
            next(it)
        it = iter(packed(pack, LENGTHS))
        it.set_state(json.loads(json.dumps(state)))
        assert [row["x"].tolist() for row in it] == expected[read:]


@both
@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"num_packing_bins": 0}, "`num_packing_bins` must be at least 1, but got 0"),
        ({"max_sequences_per_bin": 0}, "`max_sequences_per_bin` must be at least 1, but got 0"),
        ({"length_struct": [8]}, r"`length_struct` must be a dict .* \[8\]"),
        ({"length_struct": {}}, "`length_struct` is empty"),
        ({"length_struct": {"x": {"y": 8}}}, "'x' of `length_struct` is nested"),
        ({"padding_struct": {"y": 1}}, "`padding_struct` has no value for the feature 'x'"),
        ({"pack_alignment_struct": {}}, "`pack_alignment_struct` has no value for the feature 'x'"),
        ({"pack_alignment_struct": {"x": 0}}, "at least 1, but got 0 for the feature 'x'"),
    ],
)
def test_arguments_are_checked_at_once(pack: Any, kwargs: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        packed(pack, [1], **kwargs)


@both
@pytest.mark.parametrize(
    ("element", "error"),
    [({"y": 1}, KeyError), (4, TypeError), ({"x": {"z": 1}}, TypeError)],
)
def test_elements_need_the_features(pack: Any, element: Any, error: type[Exception]) -> None:
    ds = wg.MapDataset.source([{"x": np.arange(2)}, element]).to_iter_dataset()
    it = iter(pack(ds, length_struct={"x": 4}, num_packing_bins=1))
    with pytest.raises(error):
        next(it)
    assert next(it)["x"].tolist() == [0, 1, 0, 0]


@both
def test_an_alignment_is_found_by_its_name(pack: Any) -> None:
    source = wg.MapDataset.source([{"a": np.ones(1), "b": np.ones(1)}] * 2)
    ds = pack(
        source.to_iter_dataset(),
        length_struct={"a": 4, "b": 4},
        num_packing_bins=1,
        pack_alignment_struct={"b": 2, "a": 1},
    )
    (row,) = ds
    assert row["a"].tolist() == [1, 1, 0, 0]
    assert row["b"].tolist() == [1, 0, 1, 0]


@both
def test_the_size_of_a_packed_batch_is_known_after_the_first_element(pack: Any) -> None:
    it: Any = iter(packed(pack, LENGTHS))
    with pytest.raises(ValueError, match="call `next`"):
        it.get_packed_batch_size_bytes()
    next(it)
    assert it.get_packed_batch_size_bytes() == 3 * 8 * (8 + 4 + 4) + 3 * 8


@both
def test_a_long_stream_is_packed_completely(pack: Any) -> None:
    lengths = [1 + (i * i) % 61 for i in range(3000)]
    ds = packed(pack, lengths, length_struct={"x": 64}, num_packing_bins=50, shuffle_bins=True)
    counts = np.zeros(len(lengths) + 1, np.int64)
    for row in ds:
        counts += np.bincount(row["x"], minlength=len(counts))
    assert np.array_equal(counts[1:], lengths)
    fill = [np.count_nonzero(row["x"]) / 64 for row in itertools.islice(ds, 40)]
    assert np.mean(fill) > 0.9
