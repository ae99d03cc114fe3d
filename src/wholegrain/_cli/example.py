"""`tf.train.Example` records, which TensorFlow programs store in TFRecord files.

The message is simple enough to be read and written without protobuf:

    Example   { Features features = 1; }
    Features  { map<string, Feature> feature = 1; }
    Feature   { oneof: BytesList bytes_list = 1; FloatList float_list = 2;
                       Int64List int64_list = 3; }

Each list has its values in field 1; numbers are packed.
"""

import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

BYTES, FLOAT, INT64 = 1, 2, 3
KIND_NAMES = {BYTES: "bytes", FLOAT: "float", INT64: "int64"}

_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5

Feature = tuple[int, list[Any]]
"""The kind of a feature, and its values."""


class NotAnExampleError(ValueError):
    """These bytes are not a `tf.train.Example`."""


def encode(features: Mapping[str, Feature]) -> bytes:
    """Return a record with these features, in this order."""
    entries = []
    for name, (kind, values) in features.items():
        feature = _field(kind, _encode_list(kind, values))
        entries.append(_field(1, _field(1, name.encode()) + _field(2, feature)))
    return _field(1, b"".join(entries))


def _encode_list(kind: int, values: Sequence[Any]) -> bytes:
    if kind == BYTES:
        return b"".join(_field(1, value) for value in values)
    if not values:
        return b""
    if kind == FLOAT:
        return _field(1, struct.pack(f"<{len(values)}f", *values))
    return _field(1, b"".join(_varint(value & 0xFFFF_FFFF_FFFF_FFFF) for value in values))


def _field(number: int, content: bytes) -> bytes:
    return _varint(number << 3 | _LENGTH) + _varint(len(content)) + content


def _varint(value: int) -> bytes:
    if value < 0x80:
        return bytes((value,))
    parts = bytearray()
    while value >= 0x80:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    parts.append(value)
    return bytes(parts)


def decode(record: bytes) -> dict[str, Feature]:
    """Return the features of a record.

    Raises:
        NotAnExampleError: If it is something else.
    """
    features: dict[str, Feature] = {}
    for number, content in _fields(record):
        if number != 1 or not isinstance(content, bytes):
            raise NotAnExampleError("there is a field that an Example does not have")
        for inner, entry in _fields(content):
            if inner != 1 or not isinstance(entry, bytes):
                raise NotAnExampleError("there is a field that Features does not have")
            name, feature = _decode_entry(entry)
            features[name] = feature
    return features


def _decode_entry(entry: bytes) -> tuple[str, Feature]:
    name, feature = "", b""
    for number, content in _fields(entry):
        if number not in (1, 2) or not isinstance(content, bytes):
            raise NotAnExampleError("there is an entry without name or feature")
        if number == 1:
            try:
                name = content.decode()
            except UnicodeDecodeError as error:
                raise NotAnExampleError("the name of a feature is not valid UTF-8") from error
        else:
            feature = content
    kind, values = 0, []
    for number, content in _fields(feature):
        if number not in KIND_NAMES or not isinstance(content, bytes):
            raise NotAnExampleError(f"the feature {name!r} has an unknown kind")
        kind = number
        values = list(_decode_list(kind, content))
    return name, (kind, values)


def _decode_list(kind: int, content: bytes) -> Iterator[Any]:
    for number, value in _fields(content):
        if number != 1:
            raise NotAnExampleError("a list has a field that is not a value")
        if kind == BYTES:
            if not isinstance(value, bytes):
                raise NotAnExampleError("a list of bytes contains a number")
            yield value
        elif isinstance(value, int):
            yield _as_float(value) if kind == FLOAT else _signed(value)
        elif kind == FLOAT:
            if len(value) % 4:
                raise NotAnExampleError("a list of floats is truncated")
            yield from struct.unpack(f"<{len(value) // 4}f", value)
        else:
            at = 0
            while at < len(value):
                item, at = _read_varint(value, at)
                yield _signed(item)


def _fields(message: bytes) -> Iterator[tuple[int, bytes | int]]:
    """Yield the number and the content of each field of a message."""
    at = 0
    while at < len(message):
        tag, at = _read_varint(message, at)
        number, wire = tag >> 3, tag & 7
        if wire == _LENGTH:
            length, at = _read_varint(message, at)
        elif wire == _VARINT:
            value, at = _read_varint(message, at)
            yield number, value
            continue
        elif wire in (_FIXED32, _FIXED64):
            length = 4 if wire == _FIXED32 else 8
        else:
            raise NotAnExampleError("there is a field of unknown type")
        if not number or at + length > len(message):
            raise NotAnExampleError("the message is truncated")
        content = message[at : at + length]
        at += length
        yield number, content if wire == _LENGTH else int.from_bytes(content, "little")


def _read_varint(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if at >= len(message) or shift > 63:
            raise NotAnExampleError("a number is truncated")
        byte = message[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


def _signed(value: int) -> int:
    value &= 0xFFFF_FFFF_FFFF_FFFF
    return value - (1 << 64) if value >> 63 else value


def _as_float(bits: int) -> float:
    number: float = struct.unpack("<f", struct.pack("<I", bits & 0xFFFF_FFFF))[0]
    return number
