import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import wholegrain as wg
from wholegrain.experimental import BOSHandling, ConcatThenSplitIterDataset
from wholegrain.testing import check_iter_dataset

BOS = BOSHandling.REPLACE_FIRST_TOKEN_WITH_BOS


def concat(elements: list[Any], length_struct: dict[str, int], **kwargs: Any) -> Any:
    ds = wg.MapDataset.source(elements).to_iter_dataset()
    return ConcatThenSplitIterDataset(ds, length_struct=length_struct, **kwargs)


def numbered(*lengths: int) -> list[Any]:
    return [{"x": np.full(length, i + 1)} for i, length in enumerate(lengths)]


def test_splits_what_does_not_fit() -> None:
    rows = list(concat(numbered(3, 6, 2, 5, 6, 4), {"x": 6}))
    assert [row["x"].tolist() for row in rows] == [
        [1, 1, 1, 2, 2, 2],
        [2, 2, 2, 3, 3, 4],
        [4, 4, 4, 4, 5, 5],
        [5, 5, 5, 5, 6, 6],
        [6, 6, 0, 0, 0, 0],
    ]
    assert rows[1]["x_segment_ids"].tolist() == [1, 1, 1, 2, 2, 3]
    assert rows[1]["x_positions"].tolist() == [0, 1, 2, 0, 1, 0]
    assert list(rows[0]) == ["x", "x_segment_ids", "x_positions"]


def test_elements_of_full_length_can_stay_whole() -> None:
    rows = concat(numbered(3, 6, 2, 5, 6, 4), {"x": 6}, split_full_length_features=False)
    assert [row["x"].tolist() for row in rows] == [
        [1, 1, 1, 3, 3, 4],
        [2] * 6,
        [4, 4, 4, 4, 6, 6],
        [5] * 6,
        [6, 6, 0, 0, 0, 0],
    ]


@given(
    lengths=st.lists(st.tuples(st.integers(0, 10), st.integers(0, 10)), max_size=12),
    targets=st.tuples(st.integers(1, 7), st.integers(1, 7)),
    split=st.booleans(),
)
def test_every_token_of_several_features_comes_once(
    lengths: list[tuple[int, int]], targets: tuple[int, int], split: bool
) -> None:
    """Grain repeats tokens here, and may not end."""
    a, b = np.arange(1, 1000), np.arange(1001, 2000)
    elements = []
    for n, m in lengths:
        elements.append({"a": a[:n], "b": b[:m]})
        a, b = a[n:], b[m:]
    length_struct = dict(zip("ab", targets, strict=True))
    ds = concat(elements, length_struct, split_full_length_features=split)
    rows = list(ds)
    for name in "ab":
        found = [token for row in rows for token in row[name][row[f"{name}_segment_ids"] > 0]]
        expected = [token for element in elements for token in element[name]]
        assert (found if split else sorted(found)) == expected
        for row in rows:
            assert len(row[name]) == length_struct[name]
    check_iter_dataset(ds, max_restores=6)


@pytest.mark.parametrize("split", [True, False])
def test_resumes_at_every_row(split: bool) -> None:
    elements = numbered(3, 6, 2, 5, 6, 6, 0, 13, 4, 6)
    check_iter_dataset(concat(elements, {"x": 6}, split_full_length_features=split))
    check_iter_dataset(concat([], {"x": 6}))
    check_iter_dataset(concat(numbered(6), {"x": 6}, split_full_length_features=split))


def test_a_state_survives_json_and_keeps_its_tuples() -> None:
    ds = concat(numbered(3, 6, 2), {"x": 4})
    it = iter(ds)
    state = it.get_state()
    assert state["remainder_slices"] == {"x": (-1, -1)}
    next(it)
    next(it)
    state = it.get_state()
    assert state["remainder_slices"] == {"x": (1, 6)}
    assert type(state["remainder_slices"]["x"]) is tuple
    restored = iter(ds)
    restored.set_state(json.loads(json.dumps(state)))
    assert restored.get_state() == state
    assert next(restored)["x"].tolist() == next(it)["x"].tolist()


def test_every_piece_begins_with_the_token() -> None:
    ds = concat(numbered(3, 6), {"x": 4}, bos_handling=BOS, bos_features=["x"], bos_token_id=9)
    assert [row["x"].tolist() for row in ds] == [[9, 1, 1, 9], [9, 2, 2, 2], [9, 0, 0, 0]]


def test_an_empty_piece_has_no_first_token() -> None:
    kwargs: dict[str, Any] = {"bos_handling": BOS, "bos_features": ["x"], "bos_token_id": 9}
    rows = list(concat(numbered(2, 0, 0, 1, 1, 0), {"x": 4}, **kwargs))
    assert [row["x"].tolist() for row in rows] == [[9, 1, 9, 9]]
    assert rows[0]["x_segment_ids"].tolist() == [1, 1, 4, 5]


def test_meta_features_stay_whole_and_come_with_each_piece() -> None:
    elements = [{"x": np.full(n, i + 1), "id": i + 1} for i, n in enumerate((3, 6, 1))]
    ds = concat(elements, {"x": 4, "id": 3}, meta_features=["id"])
    assert [(row["x"].tolist(), row["id"].tolist()) for row in ds] == [
        ([1, 1, 1, 2], [1, 2, 0]),
        ([2, 2, 2, 2], [2, 0, 0]),
        ([2, 3, 0, 0], [2, 3, 0]),
    ]


def test_a_full_meta_feature_ends_the_row() -> None:
    elements = [{"x": np.array([i + 1]), "id": i + 1} for i in range(5)]
    ds = concat(elements, {"x": 4, "id": 2}, meta_features=["id"])
    assert [row["x"].tolist() for row in ds] == [[1, 2, 0, 0], [3, 4, 0, 0], [5, 0, 0, 0]]


def test_a_meta_feature_that_never_fits_is_an_error() -> None:
    ds = concat([{"x": np.ones(1), "m": np.arange(5)}], {"x": 2, "m": 3}, meta_features=["m"])
    with pytest.raises(ValueError, match=r"'m' has 5 of at most 3.*`length_struct`"):
        next(iter(ds))


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"length_struct": {}}, "empty"),
        ({"length_struct": {"x": 0}}, "at least 1, but got 0 for 'x'"),
        ({"bos_token_id": 0}, "bos_token_id=0 .* no effect"),
        ({"bos_features": ["x"]}, "no effect"),
        ({"bos_handling": BOS}, "needs a `bos_token_id`"),
        (
            {
                "bos_handling": BOS,
                "bos_token_id": 1,
                "bos_features": ["x"],
                "meta_features": ["x"],
            },
            r"\['x'\] are in `bos_features` and in `meta_features`",
        ),
    ],
)
def test_arguments_are_checked_at_once(kwargs: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        concat([], **({"length_struct": {"x": 4}} | kwargs))


@pytest.mark.parametrize(
    ("element", "message"),
    [
        (3, "flat dicts, but got an int"),
        ({"y": 1}, r"features \['y'\], but `length_struct` has \['x'\]"),
        ({"x": 1, "y": 1}, r"features \['x', 'y'\]"),
    ],
)
def test_elements_have_just_the_features(element: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        next(iter(concat([element], {"x": 4})))


def test_a_closed_iterator_keeps_its_state() -> None:
    it = iter(concat(numbered(3, 6, 2, 5), {"x": 4}))
    next(it)
    state = it.get_state()
    it.close()
    assert it.get_state() == state
    with pytest.raises(ValueError, match="closed"):
        next(it)
