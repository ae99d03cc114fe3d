"""Short descriptions of records: kind, size and first bytes."""

import json
import pickletools
from typing import Any

import numpy as np

from wholegrain._cli import example
from wholegrain._cli.console import size_text

_MAGICS = {
    b"\xff\xd8\xff": "JPEG image",
    b"\x89PNG\r\n\x1a\n": "PNG image",
    b"GIF8": "GIF image",
    b"\x93NUMPY": "NumPy array",
    b"PK\x03\x04": "zip archive",
    b"\x1f\x8b\x08": "gzip data",
    b"%PDF-": "PDF document",
    b"fLaC": "FLAC audio",
    b"OggS": "Ogg audio",
    b"ID3": "MP3 audio",
}
_LONGEST = 60
_MOST_FEATURES = 8


def kind_of(record: bytes) -> str:
    """Return the likely kind of some bytes."""
    if not record:
        return "empty"
    for magic, kind in _MAGICS.items():
        if record.startswith(magic):
            return kind
    if record.startswith(b"RIFF") and record[8:12] in (b"WAVE", b"WEBP"):
        return "WAV audio" if record[8:12] == b"WAVE" else "WebP image"
    if features_of(record):
        return "tf.train.Example"
    try:
        text = record.decode()
    except UnicodeDecodeError:
        return "pickle" if _is_pickle(record) else "bytes"
    if not all(character.isprintable() or character.isspace() for character in text):
        return "bytes"
    return "JSON" if _is_json(text) else "text"


def _is_pickle(record: bytes) -> bool:
    if not (record[:1] == b"\x80" and record.endswith(b".")):
        return False
    try:
        for _ in pickletools.genops(record):
            pass
    except Exception:
        return False
    return True


def _is_json(text: str) -> bool:
    if text[:1] not in "{[":
        return False
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def features_of(record: bytes) -> dict[str, example.Feature]:
    """Return the features of a `tf.train.Example`; empty if it is not one."""
    try:
        features = example.decode(record)
    except example.NotAnExampleError:
        return {}
    # Other bytes that parse as a message rarely have named features of a known kind.
    return features if all(name and kind for name, (kind, _) in features.items()) else {}


def preview(value: Any) -> str:
    """Return a one-line text of a value."""
    match value:
        case bytes():
            return _preview_of_bytes(value)
        case str():
            return repr(_shortened(value))
        case np.ndarray():
            if value.dtype == object:
                return f"{len(value)} items"
            start = ", ".join(str(item) for item in value.ravel()[:4].tolist())
            more = ", …" if value.size > 4 else ""
            return f"{value.dtype}{list(value.shape)} [{start}{more}]"
        case dict():
            inner = ", ".join(f"{name}: {preview(item)}" for name, item in value.items())
            return _shortened("{" + inner + "}", 2 * _LONGEST)
        case np.generic():
            return str(value.item())
        case _:
            return _shortened(str(value))


def _preview_of_bytes(value: bytes) -> str:
    kind = kind_of(value)
    if kind == "empty":
        return "0 B"
    size = size_text(len(value))
    if kind in ("text", "JSON"):
        return f"{size} {kind}: {_shortened(value.decode())}"
    if kind == "tf.train.Example":
        features = features_of(value)
        shown = [
            f"{name}: {_preview_of_feature(*feature)}"
            for name, feature in list(features.items())[:_MOST_FEATURES]
        ]
        more = ", …" if len(features) > _MOST_FEATURES else ""
        return f"{size} {kind}: {', '.join(shown)}{more}"
    start = value[:16].hex(" ")
    return f"{size} {kind}: {start}{' …' if len(value) > 16 else ''}"


def _preview_of_feature(kind: int, values: list[Any]) -> str:
    if len(values) != 1:
        return f"{len(values)} {example.KIND_NAMES[kind]}"
    value = values[0]
    if isinstance(value, bytes):
        what = kind_of(value)
        return repr(_shortened(value.decode(), 24)) if what == "text" else size_text(len(value))
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _shortened(text: str, longest: int = _LONGEST) -> str:
    line = " ".join(text.split())
    return line if len(line) <= longest else f"{line[: longest - 1]}…"


def as_json(value: Any) -> Any:
    """Return a value for JSON; bytes become their size, kind and first bytes."""
    match value:
        case bytes():
            kind = kind_of(value)
            start = _shortened(value.decode()) if kind in ("text", "JSON") else value[:16].hex()
            return {"bytes": len(value), "kind": kind, "start": start}
        case np.ndarray():
            return {"dtype": str(value.dtype), "shape": list(value.shape)}
        case np.generic():
            return as_json(value.item())
        case dict():
            return {str(name): as_json(item) for name, item in value.items()}
        case list() | tuple():
            return [as_json(item) for item in value]
        case None | bool() | int() | str():
            return value
        case float():
            return value if value == value and abs(value) != float("inf") else str(value)
        case _:
            return str(value)
