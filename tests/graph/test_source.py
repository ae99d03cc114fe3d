"""source and range: where elements come from."""

from typing import Any

import numpy as np
import pytest

import wholegrain as wg
from tests.graph.tools import READ_OPTIONS, R, Unreadable, as_lists, outcomes, source
from wholegrain.testing import check_iter_dataset, check_map_dataset, difference


def test_lists_strings_and_ranges_are_sources() -> None:
    assert list(source([3, 1, 2])) == [3, 1, 2]
    assert list(source((3, 1))) == [3, 1]
    assert list(source("abc")) == ["a", "b", "c"]
    assert list(source(range(2, 9, 3))) == [2, 5, 8]
    assert source("abc").source == "abc"
    assert str(source([1])) == "SourceMapDataset(source=list)"


def test_indices_stay_within_the_source() -> None:
    class Strict:
        def __len__(self) -> int:
            return 4

        def __getitem__(self, index: int) -> int:
            assert type(index) is int
            assert 0 <= index < 4
            return index

    ds = source(Strict())
    assert [ds[i] for i in (-1, 0, 3, 4, 9, -9)] == [3, 0, 3, 0, 1, 3]
    assert list(ds.getitems(np.array([-1, 9]))) == [3, 1]
    check_map_dataset(ds, epochs=3)


def test_elements_are_not_copied() -> None:
    elements = [object(), object()]
    ds = source(elements)
    assert ds[0] is elements[0]
    assert all(a is b for a, b in zip(ds, elements, strict=True))


def test_a_source_without_a_length_is_read_by_index() -> None:
    class Endless:
        def __getitem__(self, index: int) -> int:
            return index

        def __len__(self) -> int:
            raise TypeError("endless")

    ds = source(Endless())
    assert ds[10**9] == 10**9
    assert ds[-3] == -3
    assert list(ds.getitems(np.array([5, -1]))) == [5, -1]


@pytest.mark.parametrize("dtype", ["int32", "float64", "bool", "<U3", "S2", "object", "M8[s]"])
@pytest.mark.parametrize("shape", [(5,), (5, 2)])
def test_arrays_are_sources_of_their_rows(dtype: str, shape: tuple[int, ...]) -> None:
    array = np.arange(int(np.prod(shape))).reshape(shape).astype(dtype)
    ds = source(array)
    expected = [array[i] for i in range(5)]
    assert difference(expected, [ds[i] for i in range(5)]) is None
    assert difference(expected, list(ds)) is None
    check_map_dataset(ds.shuffle(seed=1))


def test_structured_arrays_are_sources() -> None:
    array = np.array([(1, 2.0), (3, 4.0)], dtype=[("a", "i4"), ("b", "f8")])
    assert [row["a"] for row in source(array)] == [1, 3]
    assert next(iter(source(array).batch(2)))["b"].tolist() == [2.0, 4.0]


def test_a_source_like_torchs_is_asked_for_many() -> None:
    calls: list[int] = []

    class TorchLike:
        def __init__(self, method: str) -> None:
            setattr(self, method, self._many)

        def __len__(self) -> int:
            return 1000

        def __getitem__(self, index: int) -> dict[str, int]:
            return {"x": index}

        def _many(self, indices: list[int]) -> list[dict[str, int]]:
            calls.append(len(indices))
            return [{"x": index} for index in indices]

    for method in ("__getitems__", "_getitems"):
        calls.clear()
        ds = source(TorchLike(method)).shuffle(seed=1)
        assert sorted(e["x"] for e in ds.to_iter_dataset(wg.ReadOptions(0))) == list(range(1000))
        assert 0 < len(calls) < 200
        ds.batch(50)[0]
        assert calls[-1] == 50
        check_map_dataset(ds[:20])


@pytest.mark.parametrize("method", ["__getitems__", "_getitems"])
@pytest.mark.parametrize("returned", [[], [1], [1, 2, 3]])
def test_a_source_has_to_return_what_was_asked_for(method: str, returned: list[int]) -> None:
    class Wrong:
        def __len__(self) -> int:
            return 10

        def __getitem__(self, index: int) -> int:
            return index

    setattr(Wrong, method, lambda self, indices: returned)
    with pytest.raises(ValueError, match=rf"Wrong\.{method}. was asked for 2 elements") as raised:
        source(Wrong()).getitems(np.array([3, 4]))
    assert f"returned {len(returned)}" in str(raised.value)


def test_a_source_may_return_an_array_for_many() -> None:
    class Columns:
        def __len__(self) -> int:
            return 300

        def __getitem__(self, index: int) -> Any:
            return np.int64(index)

        def __getitems__(self, indices: list[int]) -> Any:
            return np.array(indices)

    for options in READ_OPTIONS:
        batches = source(Columns()).to_iter_dataset(options).batch(70)
        assert as_lists(batches) == [list(range(i, min(i + 70, 300))) for i in range(0, 300, 70)]
    check_map_dataset(source(Columns()).shuffle(seed=1)[:9])


def test_a_chunk_that_fails_is_read_one_by_one() -> None:
    class Fragile:
        def __len__(self) -> int:
            return 40

        def __getitem__(self, index: int) -> int:
            if index == 20:
                raise Unreadable("record 20")
            return index

        def __getitems__(self, indices: list[int]) -> list[int]:
            if 20 in indices:
                raise Unreadable("somewhere")
            return list(indices)

    for options in READ_OPTIONS:
        found = outcomes(iter(source(Fragile()).to_iter_dataset(options)))
        assert found[19:22] == [19, "record 20", 21]
        assert len(found) == 41


def test_a_dataset_is_a_source() -> None:
    inner = R(10).shuffle(seed=1).filter(lambda x: x != 3)
    ds = source(inner)
    assert ds.parents == ()
    assert list(ds) == list(inner)
    assert [ds[i] for i in range(10, 20)] == [inner[i] for i in range(10)]  # Its first epoch.
    check_map_dataset(ds.map(lambda x: x + 1), epochs=3)
    check_iter_dataset(ds.to_iter_dataset())


# Ranges.


@pytest.mark.parametrize("arguments", [(5,), (2, 5), (5, 2), (0, 10, 3), (10, 0, -3), (-5, 5, 2)])
def test_a_range_is_pythons(arguments: tuple[int, ...]) -> None:
    ds, numbers = R(*arguments), range(*arguments)
    assert len(ds) == len(numbers)
    assert list(ds) == list(numbers)
    assert (ds.start, ds.stop, ds.step) == (numbers.start, numbers.stop, numbers.step)
    if numbers:
        assert [ds[i] for i in (-1, len(numbers))] == [numbers[-1], numbers[0]]
        check_map_dataset(ds)


def test_elements_of_a_range_are_python_integers() -> None:
    ds = R(2**70, 2**70 + 3)
    assert list(ds) == [2**70, 2**70 + 1, 2**70 + 2]
    assert all(type(element) is int for element in R(100))
    assert all(type(element) is int for element in R(5).getitems(np.arange(5)))
    assert list(R(np.int32(3))) == [0, 1, 2]
    check_map_dataset(ds)


@pytest.mark.parametrize("wrong", [1.5, "3", None])
def test_the_bounds_are_whole_numbers(wrong: Any) -> None:
    with pytest.raises(TypeError):
        R(wrong)
