"""How fields of bytes are decoded: by functions, or by names of common ones."""

import io
import json
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from wholegrain._core.interruption import is_interruption
from wholegrain.sources._errors import CorruptFileError, DataFileError

Decode = Mapping[str, str | Callable[[Any], Any]]


def _npy(data: bytes) -> Any:
    return np.load(io.BytesIO(data), allow_pickle=False)


_DECODERS: dict[str, Callable[[bytes], Any]] = {
    "bytes": bytes,
    "text": bytes.decode,
    "int": int,
    "float": float,
    "json": json.loads,
    "npy": _npy,
}


def decoders(decode: Decode | None, of: str) -> dict[str, Callable[[Any], Any]]:
    """Return the functions that decode fields.

    Args:
        decode: What the user passed.
        of: The name of the source class, for errors.
    """
    found: dict[str, Callable[[Any], Any]] = {}
    for field, how in (decode or {}).items():
        function = _DECODERS.get(how) if isinstance(how, str) else how
        if function is None or not callable(function):
            raise ValueError(
                f"`{of}` cannot decode {field!r} with {how!r}. Pass a function, or one of the"
                f" names {', '.join(_DECODERS)}."
            )
        found[field] = function
    return found


def apply_decoders(
    record: dict[str, Any],
    functions: Mapping[str, Callable[[Any], Any]],
    name: Callable[[dict[str, Any]], str],
) -> None:
    """Decode fields of a record.

    Args:
        record: The record, which is changed.
        functions: What decodes the fields.
        name: Returns a text that names the record and its file, for errors.
    """
    for field, function in functions.items():
        if field not in record:
            continue
        try:
            record[field] = function(record[field])
        except Exception as error:
            if isinstance(error, DataFileError) or is_interruption(error):
                raise
            raise CorruptFileError(
                f"{name(record)}: the field {field!r} cannot be decoded"
                f" ({type(error).__name__}: {error})."
            ) from error
