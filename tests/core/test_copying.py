"""Copies past the caches have the content of plain ones, wherever arrays begin and end."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wholegrain._core import copying, native
from wholegrain._core.copying import copier
from wholegrain._core.stack import stack


@pytest.fixture(autouse=True, scope="module")
def _everything_is_large() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(copying, "_PAST_CACHES_BYTES", 0)
        yield


def _copied(source: Any, target: Any) -> None:
    copier(target.nbytes)(target, source)


@given(
    length=st.integers(0, 3000),
    source_start=st.integers(0, 130),
    target_start=st.integers(0, 130),
)
def test_copies_what_was_asked_for_and_nothing_beside_it(
    length: int, source_start: int, target_start: int
) -> None:
    bytes_ = np.random.default_rng(length).integers(0, 255, source_start + length, np.uint8)
    memory = np.full(target_start + length + 64, 255, np.uint8)
    _copied(bytes_[source_start:], memory[target_start : target_start + length])
    expected = np.full_like(memory, 255)
    expected[target_start : target_start + length] = bytes_[source_start:]
    np.testing.assert_array_equal(memory, expected)


@pytest.mark.parametrize(
    "source",
    [
        np.arange(1000.0).reshape(10, 100).T,
        np.arange(1000)[::-2],
        np.arange(600).astype("datetime64[s]"),
        np.array("2026-11-16", "datetime64[D]"),
        np.array(["a", "text"]),
        np.arange(600, dtype=">i4"),
        np.float32(1.5) * np.ones(()),
        np.zeros((0, 3)),
    ],
    ids=["transposed", "reversed", "dates", "a date", "text", "big-endian", "a number", "empty"],
)
def test_copies_arrays_of_any_kind(source: Any) -> None:
    target = np.empty(source.shape, source.dtype)
    _copied(source, target)
    np.testing.assert_array_equal(target, source)
    assert target.dtype == source.dtype


def test_converts_and_repeats_as_numpy_does() -> None:
    target = np.empty((3, 4), np.float64)
    _copied(np.arange(4, dtype=np.int32), target)
    np.testing.assert_array_equal(target, np.tile(np.arange(4.0), (3, 1)))


def test_does_not_write_to_what_cannot_be_written() -> None:
    target = np.zeros(600)
    target.flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        _copied(np.ones(600), target)
    assert not target.any()


def test_is_what_copies_here() -> None:
    assert (copier(1) is np.copyto) == (getattr(native.lib, "stream", None) is None)


def test_batches_are_the_same_that_are_stacked_past_the_caches() -> None:
    rows = [np.full((100, 100), number, np.float32) for number in range(5)]
    rows[2] = np.asfortranarray(rows[2] + np.arange(100, dtype=np.float32))
    np.testing.assert_array_equal(stack(rows, np.empty), np.stack(rows))
