"""Loads the C extension.

`lib` is the extension, or None. Without it, the numpy code computes the same results. Setting the
environment variable `WHOLEGRAIN_PURE=1` disables the extension.
"""

import importlib.util
import os
import sys
from collections.abc import Iterator
from typing import Any, Protocol, cast

import numpy as np

from wholegrain._core.types import NDArray

_Int64s = NDArray[np.int64]


class NativeLibrary(Protocol):
    """The functions of the C extension. Arrays are contiguous; `out` is filled in place."""

    def index_shuffle(
        self, index: int, max_index: int, seed: int, rounds: int, word_bits: int, /
    ) -> int: ...

    def shuffle_indices(
        self, indices: _Int64s, out: _Int64s, length: int, seed: int, word_bits: int, /
    ) -> None: ...

    def walk(
        self, indices: _Int64s, seeds: int | _Int64s, out: _Int64s, length: int, /
    ) -> None: ...

    def split_records(
        self, block: bytes, at: int, count: int, check: bool, /
    ) -> tuple[list[bytes], int]: ...

    def tfrecord_checksum(self, data: Any, /) -> int: ...

    def take_records(
        self, data: Any, starts: _Int64s, lengths: _Int64s, check: bool, /
    ) -> tuple[list[bytes], int]: ...

    def Texts(
        self, offsets: Any, content: Any, start: int, stop: int, is_wide: bool, is_text: bool, /
    ) -> Iterator[Any]: ...

    def Bins(
        self,
        features: tuple[tuple[Any, ...], ...],
        num_bins: int,
        max_sequences: int,
        best_fit: bool,
        array_type: type,
        /,
    ) -> "NativeBins": ...


class NativeBins(Protocol):
    """Bins that are filled with elements; see `wholegrain._packing`."""

    @property
    def num_open(self) -> int: ...

    def add(self, elements: list[Any], start: int, chosen: list[int] | None, /) -> int: ...

    def place(self, lengths: tuple[int, ...], /) -> tuple[int, ...] | None: ...


def _load() -> NativeLibrary | None:
    if os.environ.get("WHOLEGRAIN_PURE", "0") not in ("", "0"):
        return None
    if "t" in getattr(sys, "abiflags", "") and not _is_built_without_gil():
        return None
    try:
        from wholegrain._core import _native  # type: ignore[attr-defined,unused-ignore]
    except ImportError:
        return None
    return cast("NativeLibrary", _native)


def _is_built_without_gil() -> bool:
    """Return whether the extension fits a Python without the GIL.

    Such a Python finds a build for the stable ABI too, beside an editable install of another
    Python. It would crash, because objects have another layout.
    """
    spec = importlib.util.find_spec("wholegrain._core._native")
    return spec is not None and ".abi3." not in (spec.origin or "")


lib: NativeLibrary | None = _load()
