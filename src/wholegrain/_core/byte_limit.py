"""Numbers of bytes as users write them: `10**9`, `"100GB"`, or a fraction of a disk."""

import os
import re
import shutil

_UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_UNITS |= {"KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "TIB": 2**40}


def parse_bytes(text: str) -> int:
    """Return the number of bytes that a text such as "100GB" names."""
    match = re.fullmatch(r"\s*([0-9.]+)\s*([A-Za-z]*)\s*", text)
    try:
        if match is None:
            raise ValueError
        return int(float(match[1]) * _UNITS[match[2].upper()])
    except (KeyError, ValueError):
        raise ValueError(
            f'{text!r} is not a number of bytes. Write it as 100_000_000 or "100MB".'
        ) from None


def byte_limit(max_bytes: str | float, directory: str) -> int:
    """Return how many bytes `max_bytes` are; a float is a fraction of the disk of `directory`."""
    if isinstance(max_bytes, str):
        return parse_bytes(max_bytes)
    if isinstance(max_bytes, bool) or not isinstance(max_bytes, (int, float)):
        raise TypeError(f'`max_bytes` has to be a number or "100GB", but got {max_bytes!r}.')
    if isinstance(max_bytes, int):
        return max_bytes
    if not 0 < max_bytes <= 1:
        raise ValueError(
            f"`max_bytes` as a fraction of the disk has to be between 0 and 1, but got {max_bytes}."
        )
    while not os.path.exists(directory):
        directory = os.path.dirname(directory)
    return int(shutil.disk_usage(directory).total * max_bytes)
