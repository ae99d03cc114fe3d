import gc
import weakref
from typing import Any

import numpy as np
import pytest

from wholegrain._core import columns, native
from wholegrain._core.columns import values_of

needs_native = pytest.mark.skipif(native.lib is None, reason="without the C extension")

KINDS = ["i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8", "q", "Q", "g"]


def same(found: Any, expected: Any) -> bool:
    """Whether scalars are of one type and have the same bytes."""
    return type(found) is type(expected) and found.tobytes() == expected.tobytes()


@pytest.mark.parametrize("kind", KINDS)
def test_values_are_those_of_the_array(kind: str) -> None:
    some = np.random.default_rng(1).integers(0, 256, 100 * np.dtype(kind).itemsize, np.uint8)
    array = np.arange(100).astype(kind) if kind == "g" else np.frombuffer(some.tobytes(), kind)
    for part in (array, array[3:], array[::3], array[::-1], array[:0], array.copy()):
        found = list(values_of(part))
        assert len(found) == len(part)
        assert all(same(one, other) for one, other in zip(found, part, strict=True))


@pytest.mark.parametrize(
    "array",
    [
        np.array([True, False]),
        np.array([1, 2], ">i8"),
        np.array([1.5, 2.5], "c16"),
        np.array(["2024-01-01", "NaT"], "M8[D]"),
        np.array(["a", "bc"]),
        np.array(["a", None, 3], object),
    ],
    ids=str,
)
def test_arrays_of_something_else_are_left_as_they_are(array: Any) -> None:
    assert values_of(array) is array


def test_values_are_independent_and_outlive_the_array() -> None:
    array = np.arange(1000.0)
    values = iter(values_of(array))
    first = next(values)
    array[0] = array[1] = -1
    assert first == 0.0
    assert next(values) == -1
    rest = list(values)
    del array, values
    assert rest == list(range(2, 1000))


@needs_native
def test_the_array_is_let_go() -> None:
    array = np.arange(3)
    gone = weakref.ref(array)
    values = values_of(array)
    del array
    assert gone() is not None
    del values
    gc.collect()
    assert gone() is None


@needs_native
def test_where_a_scalar_has_its_value_elsewhere_numpy_serves(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(columns, "_is_behind_head", lambda kind: False)
    array = np.arange(3)
    assert values_of(array) is array


@needs_native
def test_numbers_need_one_dimension() -> None:
    lib: Any = native.lib
    with pytest.raises(ValueError, match="one dimension"):
        lib.Numbers(np.zeros((2, 2)), np.float64)
    with pytest.raises(TypeError):
        lib.Numbers(np.zeros(2), 3)
    with pytest.raises((TypeError, BufferError)):
        lib.Numbers(3, np.float64)


def texts(values: list[bytes], kind: Any = np.int32) -> tuple[bytes, bytes]:
    ends = np.cumsum([0, *map(len, values)]).astype(kind)
    return ends.tobytes(), b"".join(values)


@needs_native
@pytest.mark.parametrize("is_wide", [False, True])
def test_texts_lie_between_offsets(is_wide: bool) -> None:
    lib: Any = native.lib
    values = ["", "a", "bc", "Grüße", "", "漢字", "🌾", "\0"]
    stored = [value.encode() for value in values]
    offsets, content = texts(stored, np.int64 if is_wide else np.int32)
    assert list(lib.Texts(offsets, content, 0, 8, is_wide, True)) == values
    assert list(lib.Texts(offsets, content, 0, 8, is_wide, False)) == stored
    assert list(lib.Texts(offsets, content, 3, 6, is_wide, True)) == values[3:6]
    assert list(lib.Texts(offsets, content, 8, 8, is_wide, True)) == []
    assert list(lib.Texts(b"", b"", 0, 0, is_wide, True)) == []


@needs_native
def test_texts_that_are_not_there_are_an_error() -> None:
    lib: Any = native.lib
    offsets, content = texts([b"abc", b"d"])
    for start, stop in ((0, 3), (-1, 1), (2, 1)):
        with pytest.raises(ValueError, match="as many offsets"):
            lib.Texts(offsets, content, start, stop, False, True)
    with pytest.raises(ValueError, match="outside"):
        list(lib.Texts(offsets, b"abc", 0, 2, False, True))
    for wrong in ([0, 2, 1], [-1, 1, 2]):
        with pytest.raises(ValueError, match="outside"):
            list(lib.Texts(np.array(wrong, np.int32), content, 0, 2, False, True))
    with pytest.raises(UnicodeDecodeError):
        list(lib.Texts(*texts([b"\xff"]), 0, 1, False, True))
