"""The checksums in TFRecord files: CRC-32C, rotated and shifted by a constant."""

import functools
import importlib
import struct
from collections.abc import Callable

from wholegrain._core import native
from wholegrain.sources._optional import require

_POLYNOMIAL = 0x82F63B78

# None without the extension.
tfrecord_lib = native.lib


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


def _mask(crc: int) -> int:
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


@functools.cache
def fast_checksum() -> Callable[[bytes], int] | None:
    """Return a fast checksum function for payloads; None if there is only the one in Python."""
    if tfrecord_lib is not None:
        return tfrecord_lib.tfrecord_checksum
    try:
        crc32c: Callable[[bytes], int] = importlib.import_module("google_crc32c").value
    except ImportError:
        return None
    return lambda payload: _mask(crc32c(payload))


# A file has few different record lengths, so most checksums are cached.
@functools.lru_cache(maxsize=65536)
def checksum_of_length(length: int) -> int:
    """Return the checksum that follows a record's length."""
    head = struct.pack("<Q", length)
    checksum = fast_checksum()
    return _mask(crc32c_in_python(head)) if checksum is None else checksum(head)


def payload_checksum() -> Callable[[bytes], int]:
    """Return the function that computes the checksum that follows a record's payload."""
    checksum = fast_checksum()
    if checksum is None:
        require("google_crc32c", extra="tfrecord", purpose="Checksums of TFRecord files")
        raise AssertionError  # Any implementation that can be imported is fast.
    return checksum


def checks(check_payload: bool | None) -> bool:
    """Return whether to check payloads; by default they are checked if that is cheap."""
    if check_payload is None:
        return fast_checksum() is not None
    if check_payload:
        payload_checksum()
    return bool(check_payload)
