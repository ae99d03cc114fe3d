"""The checksums in TFRecord files: CRC-32C, rotated and shifted by a constant."""

import functools
import importlib
import struct
from collections.abc import Callable

from wholegrain.sources._optional import require

_POLYNOMIAL = 0x82F63B78


def _table_entry(byte: int) -> int:
    for _ in range(8):
        byte = (byte >> 1) ^ (_POLYNOMIAL if byte & 1 else 0)
    return byte


@functools.cache
def _table() -> tuple[int, ...]:
    return tuple(_table_entry(byte) for byte in range(256))


def crc32c_in_python(data: bytes) -> int:
    """Return the CRC-32C of a few bytes. For many, `google-crc32c` is 10,000 times faster."""
    table = _table()
    crc = 0xFFFFFFFF
    for byte in data:
        crc = table[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    return crc ^ 0xFFFFFFFF


@functools.cache
def _any_crc32c() -> Callable[[bytes], int]:
    try:
        value: Callable[[bytes], int] = importlib.import_module("google_crc32c").value
    except ImportError:
        return crc32c_in_python
    return value


def _mask(crc: int) -> int:
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


# Records of one file have few different lengths: most are looked up.
@functools.lru_cache(maxsize=65536)
def checksum_of_length(length: int) -> int:
    """Return the checksum that follows a record's length."""
    return _mask(_any_crc32c()(struct.pack("<Q", length)))


def payload_checksum() -> Callable[[bytes], int]:
    """Return the function that computes the checksum that follows a record's payload."""
    crc32c = require(
        "google_crc32c", extra="tfrecord", purpose="Checking the payload of TFRecord files"
    ).value

    def checksum(payload: bytes) -> int:
        return _mask(crc32c(payload))

    return checksum
