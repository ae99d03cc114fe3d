"""The format of MosaicML's shards: their `index.json`, and the encodings of columns.

A shard is the number of samples, their offsets and the end, all uint32; a header in JSON; and the
samples. A sample is the lengths of its columns that have no fixed length, and the columns.
"""

import dataclasses
import decimal
import hashlib
import json
import math
import re
import struct
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from wholegrain.sources._errors import CorruptFileError, explaining
from wholegrain.sources._optional import require

_SCALARS = frozenset(
    f"{kind}{bits}" for kind in ("int", "uint", "float") for bits in (8, 16, 32, 64)
) - {"float8"}
# What the bytes of an array say about the type of its values, and of its shape.
_VALUE_TYPES = {
    8: "uint8", 9: "int8", 16: "uint16", 17: "int16", 18: "float16", 32: "uint32", 33: "int32",
    34: "float32", 64: "uint64", 65: "int64", 66: "float64",
}  # fmt: skip
_SHAPE_TYPES = ("u1", "u2", "u4", "u8")
# Encoded images, and pickles, which may run code when they are loaded: the user decodes them.
_OPAQUE = frozenset({"bytes", "jpeg", "png", "pil", "pkl", "jpeg_array", "jpegarray"})
_LIST = re.compile(r"list\[\w+\]")

Decoder = Callable[[bytes], Any]


@dataclasses.dataclass(frozen=True)
class ShardFile:
    """A file of a shard: its name, its length, and its hashes."""

    name: str
    nbytes: int
    hashes: dict[str, str]


@dataclasses.dataclass(frozen=True)
class Shard:
    """A shard as `index.json` describes it.

    Attributes:
        count: The number of samples.
        columns: The names of the columns.
        encodings: How they are encoded.
        sizes: Their lengths; 0 if that is not fixed.
        compression: "gzip" or "zstd"; None if it is not compressed.
        raw: The file without compression.
        zipped: The compressed file.
    """

    count: int
    columns: tuple[str, ...]
    encodings: tuple[str, ...]
    sizes: tuple[int, ...]
    compression: str | None
    raw: ShardFile
    zipped: ShardFile | None


def shards_of(path: str, content: bytes) -> list[Shard]:
    """Return the shards that an `index.json` lists."""
    with explaining(path, "the index of an MDS dataset"):
        index = json.loads(content)
        if not isinstance(index, dict):
            raise ValueError("it is not a JSON object")
        if index["version"] != 2:
            raise CorruptFileError(
                f"{path!r} has version {index['version']!r} of the MDS format, but only version 2"
                " can be read."
            )
        try:
            return [_shard(path, shard) for shard in index["shards"]]
        except (TypeError, AttributeError) as error:
            raise ValueError(f"a value has another type than it should: {error}") from error


def _shard(path: str, shard: dict[str, Any]) -> Shard:
    if shard["format"] != "mds":
        raise CorruptFileError(
            f"{path!r} lists shards of the format {shard['format']!r}, not of MDS."
        )
    zipped = shard["zip_data"] and _file(shard["zip_data"])
    columns, encodings, sizes = (
        tuple(shard[f"column_{part}"]) for part in ("names", "encodings", "sizes")
    )
    if not len(columns) == len(encodings) == len(sizes):
        raise ValueError("a shard has different numbers of column names, encodings and sizes")
    if not all(isinstance(text, str) for text in (*columns, *encodings)):
        raise ValueError("the names and encodings of columns are not texts")
    sizes = tuple(_natural(size or 0) for size in sizes)
    raw = _file(shard["raw_data"])
    compression = _compression(path, shard["compression"]) if zipped else None
    return Shard(
        _natural(shard["samples"]), columns, encodings, sizes, compression, raw, zipped or None
    )


def _natural(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError(f"{value!r} is not a count")
    return value


def _file(info: dict[str, Any]) -> ShardFile:
    name = info["basename"]
    if not isinstance(name, str) or not name or name.startswith("/") or ".." in name.split("/"):
        raise ValueError(f"{name!r} is not a file of the dataset")
    return ShardFile(name, _natural(info["bytes"]), dict(info.get("hashes") or {}))


def _compression(path: str, text: str) -> str:
    name = text.partition(":")[0]
    known = {"zstd": "zstd", "gz": "gzip"}
    if name not in known:
        raise CorruptFileError(
            f"{path!r} lists shards compressed with {name!r}, but only zstd and gz can be read."
            " Decompress them first."
        )
    return known[name]


# Hashes.


def hasher(hashes: dict[str, str], *, needed: bool) -> tuple[Any, str, str] | None:
    """Return an object that computes one of the given hashes, its name, and its expected value.

    Args:
        hashes: The values of hashes by their names.
        needed: Whether it is an error if none of them can be computed.
    """
    for name, value in hashes.items():
        if name in hashlib.algorithms_available:
            return hashlib.new(name, usedforsecurity=False), name, value
    for name, value in hashes.items():
        if name.startswith("xxh"):
            try:
                library = require("xxhash", extra="mds", purpose=f"The hash {name!r}")
            except ImportError:
                if needed:
                    raise
                return None
            if hasattr(library, name):
                return getattr(library, name)(), name, value
    if needed:
        found = ", ".join(hashes) or "none"
        raise ValueError(
            f"The hashes of a shard cannot be checked: {found} in the index. Pass"
            " `check_hashes=False`."
        )
    return None


# Columns.


class SampleDecoder:
    """Decodes the samples of a shard.

    Args:
        shard: The shard.
        fields: The columns to return; None for all.
    """

    def __init__(self, shard: Shard, fields: Sequence[str] | None) -> None:
        wanted = shard.columns if fields is None else fields
        decode = dict(zip(shard.columns, map(decoder_of, shard.encodings), strict=True))
        self._columns = [
            (name, size, decode[name] if name in wanted else None)
            for name, size in zip(shard.columns, shard.sizes, strict=True)
        ]
        self._order = None if fields is None else tuple(fields)
        self._head = struct.Struct(f"<{sum(not size for size in shard.sizes)}I")
        self._fixed = sum(shard.sizes)

    def __call__(self, data: bytes) -> dict[str, Any]:
        """Return the columns of a sample, or raise a ValueError."""
        if len(data) < self._head.size:
            raise ValueError("it is too short")
        lengths = self._head.unpack_from(data)
        at = self._head.size
        if at + self._fixed + sum(lengths) != len(data):
            raise ValueError(
                f"it has {len(data)} bytes, but its columns {at + self._fixed + sum(lengths)}"
            )
        variable = iter(lengths)
        sample: dict[str, Any] = {}
        for name, size, decode in self._columns:
            end = at + (size or next(variable))
            if decode is not None:
                sample[name] = decode(data[at:end])
            at = end
        return sample if self._order is None else {name: sample[name] for name in self._order}


def decoder_of(encoding: str) -> Decoder:
    """Return the function that decodes a column; unknown encodings stay bytes."""
    name, _, options = encoding.partition(":")
    if name in _SCALARS:
        dtype = np.dtype(name).newbyteorder("<")
        return lambda data: np.frombuffer(data, dtype, 1)[0]
    if name == "ndarray":
        return _array_decoder(options)
    known = _DECODERS.get(name)
    if known is None and name not in _OPAQUE and not _LIST.fullmatch(name):
        raise ValueError(f"the encoding {encoding!r} of a column is not known")
    return known or bytes


def _int(data: bytes) -> int:
    if len(data) != 8:
        raise ValueError("an int has not 8 bytes")
    return int.from_bytes(data, "little", signed=True)


def _text(data: bytes) -> str:
    return data.decode()


def _decimal(data: bytes) -> decimal.Decimal:
    try:
        return decimal.Decimal(data.decode())
    except decimal.InvalidOperation as error:
        raise ValueError(f"{data!r} is not a decimal number") from error


_DECODERS: dict[str, Decoder] = {
    "str": _text,
    "int": _int,
    "json": lambda data: json.loads(data.decode()),
    "str_int": lambda data: int(data.decode()),
    "str_float": lambda data: float(data.decode()),
    "str_decimal": _decimal,
}


def _array_decoder(options: str) -> Decoder:
    dtype_text, _, shape_text = options.partition(":")
    if dtype_text and dtype_text not in _VALUE_TYPES.values():
        raise ValueError(f"the type {dtype_text!r} of an array is not known")
    fixed_dtype = np.dtype(dtype_text).newbyteorder("<") if dtype_text else None
    fixed_shape = tuple(map(int, shape_text.split(","))) if shape_text else None

    def decode(data: bytes) -> Any:
        at = 0
        dtype, shape = fixed_dtype, fixed_shape
        if dtype is None:
            code = data[at] if len(data) > at else -1
            if code not in _VALUE_TYPES:
                raise ValueError(f"the type {code} of an array is not known")
            dtype, at = np.dtype(_VALUE_TYPES[code]).newbyteorder("<"), at + 1
        if shape is None:
            code = data[at] if len(data) > at else 0
            kind, axes = np.dtype(_SHAPE_TYPES[code & 3]).newbyteorder("<"), code >> 2
            at += 1
            if len(data) < at + axes * kind.itemsize:
                raise ValueError("an array is too short for its shape")
            shape = tuple(np.frombuffer(data, kind, axes, at).tolist())
            at += axes * kind.itemsize
        if math.prod(shape) * dtype.itemsize != len(data) - at:
            raise ValueError(f"an array of {len(data) - at} bytes cannot have the shape {shape}")
        return np.frombuffer(data, dtype, -1, at).reshape(shape)

    return decode
