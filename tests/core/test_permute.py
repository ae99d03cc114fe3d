import concurrent.futures
import json
import pathlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wholegrain._core import native, permute

GOLDEN = pathlib.Path(__file__).parents[1] / "golden" / "golden_dataset.json"
EXTENSION = native.lib

seeds = st.integers(0, 2**32 - 1)
lengths = st.one_of(
    st.integers(1, 2**63 - 1),
    st.integers(1, 300_000),
    st.sampled_from([2**k + d for k in (16, 18, 20, 24, 32, 50, 62) for d in (-1, 0, 1, 2, 3)]),
)


@pytest.fixture(params=["extension", "numpy"])
def path(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Run a test with the C extension, then without."""
    if request.param == "extension" and EXTENSION is None:
        pytest.skip("the C extension is not built")
    monkeypatch.setattr(native, "lib", EXTENSION if request.param == "extension" else None)
    permute.forget_permutations()
    yield
    permute.forget_permutations()


def golden() -> dict[str, Any]:
    table: dict[str, Any] = json.loads(GOLDEN.read_text())["index_shuffle"]
    return table


def is_superseded(index: int, max_index: int) -> bool:
    return max_index > 0 and index >= 1 << 2 * permute.bits_per_word(max_index)


@pytest.mark.usefixtures("path")
def test_equals_grain_at_every_golden_point() -> None:
    for max_index, seed, rounds, points in golden()["points"]:
        for index, expected in points:
            wanted = index if is_superseded(index, max_index) else expected
            assert permute.index_shuffle(index, max_index, seed, rounds) == wanted
            if rounds == 4 and max_index < 2**63 - 1:
                assert permute.shuffle_index(index, max_index + 1, seed) == wanted
                many = permute.shuffle_indices(np.array([index, index]), max_index + 1, seed)
                assert many.tolist() == [wanted, wanted]


@pytest.mark.usefixtures("path")
def test_equals_grain_over_whole_permutations() -> None:
    for case in golden()["permutations"]:
        n, seed, rounds, places = case["n"], case["seed"], case["rounds"], case["perm"]
        assert [permute.index_shuffle(i, n - 1, seed, rounds) for i in range(n)] == places
        if rounds == 4:
            assert permute.permutation(n, seed).tolist() == places


def test_derives_the_keys_of_std_seed_seq() -> None:
    for case in golden()["round_keys"]:
        assert list(permute.round_keys(case["seed"], case["rounds"])) == case["keys"]


@pytest.mark.usefixtures("path")
@pytest.mark.parametrize("length", [1, 2, 3, 1000, 65535, 65536, 65537, 65538, 262145, 300_000])
def test_moves_every_index_to_a_place_of_its_own(length: int) -> None:
    places = permute.shuffle_indices(np.arange(length), length, seed=7)
    assert places.dtype == np.int64
    assert np.array_equal(np.sort(places), np.arange(length))


@pytest.mark.usefixtures("path")
@pytest.mark.parametrize("max_index", [2**16, 2**18, 2**32, 2**50, 2**50 + 1])
def test_an_index_without_room_in_the_block_keeps_its_place(max_index: int) -> None:
    assert permute.index_shuffle(max_index, max_index, 42, 4) == max_index
    assert permute.shuffle_index(max_index, max_index + 1, 42) == max_index
    both = np.array([0, max_index])
    moved, kept = permute.shuffle_indices(both, max_index + 1, 42).tolist()
    assert moved == permute.index_shuffle(0, max_index, 42, 4)
    assert moved < kept == max_index


@settings(deadline=None)
@given(data=st.data(), length=lengths, seed=seeds)
def test_one_index_many_indices_extension_and_numpy_agree(
    data: st.DataObject, length: int, seed: int
) -> None:
    indices = data.draw(st.lists(st.integers(0, length - 1), min_size=1, max_size=20))
    results = []
    for lib in {EXTENSION, None}:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(native, "lib", lib)
            permute.forget_permutations()
            results += [
                [permute.index_shuffle(i, length - 1, seed, 4) for i in indices],
                [permute.shuffle_index(i, length, seed) for i in indices],
                permute.shuffle_indices(np.array(indices), length, seed).tolist(),
            ]
    assert all(result == results[0] for result in results)
    assert all(0 <= place < length for place in results[0])


@settings(deadline=None)
@given(
    data=st.data(),
    max_index=lengths.filter(lambda n: n > 40_000),  # below, walks are long
    seed=seeds,
    rounds=st.integers(2, 512),
)
def test_any_number_of_rounds_agrees(
    data: st.DataObject, max_index: int, seed: int, rounds: int
) -> None:
    index = data.draw(st.integers(0, max_index))
    expected = permute.index_shuffle(index, max_index, seed, 2 * rounds)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(native, "lib", None)
        assert permute.index_shuffle(index, max_index, seed, 2 * rounds) == expected


@pytest.mark.usefixtures("path")
def test_takes_arrays_of_any_shape_and_stride() -> None:
    indices = np.arange(60_000, 120_000).reshape(300, 200)[::3, ::7]
    places = permute.shuffle_indices(indices, 200_000, seed=1)
    assert places.shape == indices.shape
    assert places[4, 5] == permute.shuffle_index(int(indices[4, 5]), 200_000, seed=1)
    assert permute.shuffle_indices(indices[:0], 200_000, seed=1).shape == (0, 29)
    assert permute.shuffle_indices(indices[:0, 0], 10, seed=1).shape == (0,)


@pytest.mark.usefixtures("path")
@pytest.mark.parametrize("bad", [-1, 200_000, 2**62])
def test_an_index_outside_is_an_error_not_an_endless_walk(bad: int) -> None:
    with pytest.raises(IndexError, match=r"not in 0\.\.199999"):
        permute.shuffle_indices(np.array([3, bad]), 200_000, seed=1)


@pytest.mark.usefixtures("path")
def test_gives_the_same_from_many_threads() -> None:
    jobs = [(length, seed) for length in (5_000, 60_000) for seed in range(40)] * 2
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        sums = list(pool.map(lambda job: permute.permutation(*job).sum(), jobs))
    assert sums == [length * (length - 1) // 2 for length, _ in jobs]


@pytest.mark.usefixtures("path")
def test_keeps_only_so_many_permutations() -> None:
    for seed in range(40):
        permute.permutation(permute.SMALL_LENGTH, seed)
    assert permute.num_kept_indices() <= 2**21


def test_kept_permutations_cannot_be_written_to() -> None:
    with pytest.raises(ValueError, match="read-only"):
        permute.permutation(10, 0)[0] = 1


@pytest.mark.usefixtures("path")
def test_takes_integers_of_any_kind_by_position_or_name() -> None:
    expected = permute.index_shuffle(1, 10, 3, 4)
    assert permute.index_shuffle(np.int64(1), True + 9, np.uint32(3), np.int8(4)) == expected
    assert permute.index_shuffle(index=1, max_index=10, seed=3, rounds=4) == expected
    assert type(permute.index_shuffle(np.int64(1), 10, 3, 4)) is int


@pytest.mark.parametrize(
    "arguments",
    [
        (1.0, 10, 0, 4),
        (1, np.float64(10), 0, 4),
        ("1", 10, 0, 4),
        (None, 10, 0, 4),
        (1, 10, -1, 4),
        (1, 10, 2**32, 4),
        (1, 10, 0, -2),
        (1, 10, 0, 2**32),
        (2**63, 2**63, 0, 4),
        (1, 10, 0),
    ],
)
def test_refuses_what_is_no_integer_of_the_right_size(arguments: tuple[Any, ...]) -> None:
    with pytest.raises(TypeError):
        permute.index_shuffle(*arguments)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((-1, -5, 0, 3), "`rounds`.* 3"),
        ((0, 10, 0, 2), "`rounds`.* 2"),
        ((0, 10, 0, 1026), "`rounds`.* 1026"),
        ((0, 0, 0, 5), "`rounds`.* 5"),
        ((-1, 10, 0, 4), "index=-1"),
        ((11, 10, 0, 4), "index=11 and max_index=10"),
        ((0, -1, 0, 4), "max_index=-1"),
    ],
)
def test_refuses_values_out_of_range(arguments: tuple[int, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        permute.index_shuffle(*arguments)


@pytest.mark.usefixtures("path")
@settings(max_examples=60)
@given(
    length=st.one_of(st.integers(1, 70_000), st.sampled_from([2, 255, 256, 257, 2**16, 2**16 + 1])),
    data=st.data(),
)
def test_with_a_seed_for_each_index_all_are_shuffled_as_by_themselves(
    length: int, data: st.DataObject
) -> None:
    pairs = data.draw(st.lists(st.tuples(st.integers(0, length - 1), seeds), max_size=40))
    some = pairs + [(index, 7) for index, _ in pairs]
    indices = np.array([index for index, _ in some], dtype=np.int64)
    own_seeds = np.array([seed for _, seed in some], dtype=np.int64)
    expected = [permute.index_shuffle(index, length - 1, seed, 4) for index, seed in some]
    assert permute.shuffle_each(indices, length, own_seeds).tolist() == expected


@pytest.mark.usefixtures("path")
def test_many_indices_outside_are_refused() -> None:
    for length in (5, 3000, 10**6):
        with pytest.raises(IndexError):
            permute.shuffle_indices(np.array([0, length]), length, 1)
