"""What to do with objects that are not sources."""

import os
import re
from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from typing import Any

from wholegrain._core.names import kind_of

# The source that reads files with each suffix.
_ENDINGS = {
    "parquet": "ParquetDataSource",
    "pq": "ParquetDataSource",
    "arrow": "ArrowDataSource",
    "feather": "ArrowDataSource",
    "tfrecord": "TFRecordDataSource",
    "tfrecords": "TFRecordDataSource",
    "array_record": "ArrayRecordDataSource",
    "arrayrecord": "ArrayRecordDataSource",
    "bagz": "BagzDataSource",
    "npy": "NpyDataSource",
    "npz": "NpyDataSource",
}
_NAME = re.compile(
    r".*\.(?P<ending>[a-z_]+)(?:-\d+-of-\d+|@(?:\d+|\*))?", re.DOTALL | re.IGNORECASE
)


def no_records_error(what: str, source: Any) -> TypeError:
    """Return the error for an object without `__getitem__`."""
    return TypeError(
        f"{what} needs `__len__` and `__getitem__(index)`, but {kind_of(source)} has no"
        " `__getitem__`. A generator or another iterable can be turned into a list first."
    )


def check_source(source: Any) -> None:
    """Raise if records cannot be read from an object by index."""
    advice = _advice(source)
    if advice is not None:
        raise TypeError(f"`source` got {advice}")
    if not hasattr(source, "__getitem__"):
        raise no_records_error("A source", source)


def _advice(source: Any) -> str | None:
    """Return what an object is and what to do with it; None if it may be a source."""
    # Strings, dicts with integer keys and anything with a length and items are sources.
    match source:
        case str() if _is_path(source):
            return _advice_for_path(source)
        case os.PathLike():
            return _advice_for_path(os.fspath(source))
        case Mapping():
            return _advice_for_mapping(source)
        case AbstractSet():
            kind = type(source).__name__
            return f"a {kind}, whose elements have no order. Turn it into a list: `sorted(...)`."
        case Iterator():
            return (
                f"{kind_of(source)}, which can only be read once and in order. Turn it into"
                " a list, or subclass `IterDataset` to read it in order."
            )
    return _advice_for_library(source)


def _advice_for_library(source: Any) -> str | None:
    kind = type(source)
    library, name = kind.__module__.partition(".")[0], kind.__name__
    if library == "datasets" and name == "IterableDataset":
        return (
            "a streaming Hugging Face dataset, whose rows can only be read in order. Load it"
            " without `streaming=True`, or subclass `IterDataset` to read it in order."
        )
    if library == "pandas" and name == "DataFrame":
        return 'a pandas DataFrame. Pass its rows: `df.to_dict("records")`.'
    if library == "polars" and name == "DataFrame":
        return "a polars DataFrame. Pass its rows: `df.to_dicts()`."
    if library == "pyarrow" and name in ("Table", "RecordBatch"):
        return f"a pyarrow {name}. Pass its rows: `table.to_pylist()`."
    return None


def _is_path(text: str) -> bool:
    match = _NAME.fullmatch(text)
    return "/" in text or (match is not None and match["ending"].lower() in _ENDINGS)


def _advice_for_path(path: "str | bytes") -> str:
    name = os.fsdecode(path)
    match = _NAME.fullmatch(os.path.basename(name))
    reader = _ENDINGS.get(match["ending"].lower()) if match else None
    given = f"the path {name!r} instead of its content."
    if reader is None:
        return (
            f"{given} Sources for files are in `wholegrain.sources`: ParquetDataSource,"
            " ArrayRecordDataSource, FolderDataSource and others."
        )
    return f"{given} Read it with `wholegrain.sources.{reader}({name!r})`."


def _advice_for_mapping(source: "Mapping[Any, Any]") -> str | None:
    if not source or 0 in source:
        return None
    names = ", ".join(repr(name) for name in list(source)[:4])
    more = ", ..." if len(source) > 4 else ""
    if type(source).__module__.partition(".")[0] == "datasets":
        first = next(iter(source))
        return (
            f"the splits {names}{more} of a Hugging Face dataset. Pass one of them:"
            f" `dataset[{first!r}]`."
        )
    return (
        f"a dict with the keys {names}{more}, but records are read by index, starting at 0. If"
        " it has columns, pass its rows: `[dict(zip(d, row)) for row in zip(*d.values())]`; if it"
        " has records, pass `list(d.values())`."
    )
