"""`wholegrain inspect`: shows the content of a file or a folder."""

import argparse
import dataclasses
import json
import os
from typing import Any

import numpy as np

from wholegrain._cli import example
from wholegrain._cli.console import Console, size_text
from wholegrain._cli.formats import Format, Found, find, open_source
from wholegrain._cli.previews import as_json, features_of, kind_of, preview

_MOST_SAMPLES = 1000


@dataclasses.dataclass(frozen=True)
class _Sizes:
    """The sizes of the sampled records."""

    sampled: int
    least: int
    mean: float
    most: int


def run(arguments: argparse.Namespace) -> int:
    """Print what is at a path."""
    found = find(arguments.path)
    source = open_source(found)
    count = len(source)
    first = [source[index] for index in range(min(count, arguments.records))]
    sample = _sample(found, source, count)
    sizes = _sizes(sample)
    schema = _schema(found, source, sample or first)
    if arguments.json:
        print(json.dumps(_as_json(found, count, sizes, schema, first), indent=2))
        return 0
    console = Console()
    console.line(found.path, "bold")
    facts = [("format", f"{found.format}, {found.note}" if found.note else str(found.format))]
    facts.append(("records", f"{count:,}"))
    if not found.is_remote:
        facts.append(("on disk", _disk_text(found)))
    if sizes is not None:
        facts.append(("record size", _sizes_text(sizes, count)))
    if sample and isinstance(sample[0], bytes):
        facts.append(("content", ", ".join(_kinds(sample))))
    console.facts(facts)
    if schema:
        console.headline("Schema")
        console.table(["name", "type"], schema)
    if first:
        console.headline(f"First {len(first)} of {count:,}" if len(first) < count else "Records")
        _show_records(console, found, source, first)
    return 0


def _sample(found: Found, source: Any, count: int) -> list[Any]:
    """Return a sample of records if they are bytes; rows are described by their schema."""
    if found.format.has_rows or not count:
        return []
    most = min(count, _MOST_SAMPLES)
    indices = np.linspace(0, count - 1, most).astype(np.int64)
    records: list[Any] = source.__getitems__(indices)
    return records


def _sizes(sample: list[Any]) -> _Sizes | None:
    if not sample:
        return None
    lengths = [len(record) for record in sample]
    return _Sizes(len(lengths), min(lengths), sum(lengths) / len(lengths), max(lengths))


def _sizes_text(sizes: _Sizes, count: int) -> str:
    text = (
        f"{size_text(sizes.least)} to {size_text(sizes.most)}, {size_text(sizes.mean)} on average"
    )
    if sizes.least == sizes.most:
        text = f"{size_text(sizes.least)} each"
    return text if sizes.sampled == count else f"{text} (of {sizes.sampled:,} sampled)"


def _kinds(sample: list[bytes]) -> list[str]:
    kinds = [kind_of(record) for record in sample]
    return sorted(set(kinds), key=lambda kind: (-kinds.count(kind), kind))


def _files(found: Found) -> list[tuple[str, int]]:
    """Return the names and sizes of the files on disk."""
    if os.path.isdir(found.files[0]):
        root = found.files[0]
        files = [os.path.join(at, name) for at, _, names in os.walk(root) for name in names]
    else:
        files = found.files
    return [(file, os.path.getsize(file)) for file in sorted(files)]


def _disk_text(found: Found) -> str:
    files = _files(found)
    total = size_text(sum(size for _, size in files))
    if len(files) == 1:
        return total
    return f"{total} in {len(files):,} files"


def _schema(found: Found, source: Any, records: list[Any]) -> list[list[str]]:
    """Return names and types: of columns, of arrays, or of the features of Examples."""
    if found.format is Format.PARQUET:
        # Both need pyarrow, unlike the other formats.
        from wholegrain.sources._parquet_reader import ParquetFileReader

        types = ParquetFileReader(found.files[0], None).types
        return [[name, str(kind)] for name, kind in types.items()]
    if found.format is Format.ARROW:
        from wholegrain.sources._arrow_reader import ArrowFileReader

        types = ArrowFileReader(found.files[0], None).types
        return [[name, str(kind)] for name, kind in types.items()]
    if found.format is Format.NPY:
        entry = records[0] if records else {}
        arrays = entry if isinstance(entry, dict) else {"": entry}
        return [[name, _array_type(value)] for name, value in arrays.items()]
    if found.format is Format.MDS:
        return [[name, encoding] for name, encoding in source.columns.items()]
    if found.format.has_rows:
        return _types_of_rows(records)
    return _features(records)


def _types_of_rows(records: list[Any]) -> list[list[str]]:
    """Return names and types of the members of the first rows."""
    types: dict[str, set[str]] = {}
    for record in records:
        for name, value in record.items() if isinstance(record, dict) else ():
            types.setdefault(name, set()).add(type(value).__name__)
    return [[name, ", ".join(sorted(found))] for name, found in types.items()]


def _array_type(value: Any) -> str:
    array = np.asarray(value)
    return f"{array.dtype}{list(array.shape)}" if array.shape else str(array.dtype)


def _features(records: list[Any]) -> list[list[str]]:
    """Return the features of Examples with their numbers of values, if all are Examples."""
    kinds: dict[str, int] = {}
    counts: dict[str, list[int]] = {}
    for record in records:
        features = features_of(record)
        if not features:
            return []
        for name, (kind, values) in features.items():
            kinds[name] = kind
            counts.setdefault(name, []).append(len(values))
    rows = []
    for name, kind in kinds.items():
        least, most = min(counts[name]), max(counts[name])
        number = "" if least == most == 1 else f"[{least}]" if least == most else "[]"
        missing = "" if len(counts[name]) == len(records) else ", not in every record"
        rows.append([name, f"{example.KIND_NAMES[kind]}{number}{missing}"])
    return rows


def _show_records(console: Console, found: Found, source: Any, first: list[Any]) -> None:
    names = source.names if found.format is Format.FOLDER else None
    for number, record in enumerate(first):
        if isinstance(record, dict):
            console.line(f"  {number}", "cyan")
            console.facts([(f"  {name}", preview(value)) for name, value in record.items()])
        else:
            label = str(number) if names is None else f"{number}  {names[number]}"
            console.facts([(label, preview(record))])


def _as_json(
    found: Found, count: int, sizes: _Sizes | None, schema: list[list[str]], first: list[Any]
) -> dict[str, Any]:
    files = [] if found.is_remote else _files(found)
    return {
        "path": found.path,
        "format": str(found.format),
        "note": found.note,
        "records": count,
        "files": found.files if found.is_remote else [name for name, _ in files],
        "bytes": None if found.is_remote else sum(size for _, size in files),
        "record_bytes": None if sizes is None else dataclasses.asdict(sizes),
        "schema": [{"name": name, "type": kind} for name, kind in schema],
        "first": [as_json(record) for record in first],
    }
