"""Text and bytes out of Arrow's memory, one value at a time."""

from typing import Any

import numpy as np
import pytest

from wholegrain._core import native

pytestmark = pytest.mark.skipif(native.lib is None, reason="without the C extension")


def texts(values: list[bytes], kind: Any = np.int32) -> tuple[bytes, bytes]:
    ends = np.cumsum([0, *map(len, values)]).astype(kind)
    return ends.tobytes(), b"".join(values)


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
