"""How records of bytes are converted to rows of columns, and rows to bytes.

Bytes that stay bytes are copied, columns that stay columns keep their types. Between the two:

- "bytes": a row has a column `record` with the bytes; a folder also has a column `name`. The bytes
  are not interpreted.
- "example": a record is a `tf.train.Example`, and a column is one of its features.
- "json": a record is a JSON object, and a column is one of its members.
"""

import base64
import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from wholegrain._cli import example
from wholegrain._cli.convert.reading import BytesReader, Reader
from wholegrain._cli.errors import BadInput
from wholegrain._cli.formats import Format
from wholegrain._core.names import kind_of
from wholegrain._shards.writing import arrow

RECORD, NAME = "record", "name"
_ENDINGS = {"bytes": ".bin", "json": ".json", "example": ".example"}

Update = Callable[[int], None]


def choose_rows(reader: Reader, to: Format, asked: str) -> str:
    """Return how to convert between rows and bytes, or raise if that is impossible."""
    from_bytes, to_columns = isinstance(reader, BytesReader), to.has_columns
    if from_bytes != to_columns:
        if asked not in ("auto", "bytes"):
            raise BadInput(
                f"`--rows {asked}` selects how to convert between columns and bytes, but here"
                " records are not converted."
            )
        return "bytes"
    if isinstance(reader, BytesReader):
        default = "json" if reader.is_json else "bytes"
        return default if asked == "auto" else asked
    schema = reader.schema
    is_plain = _has_records(schema)
    if asked == "bytes" and not is_plain:
        raise BadInput(
            f"`--rows bytes` needs the bytes in a column `{RECORD}`, and no others but `{NAME}`;"
            f" the columns are {', '.join(schema.names)}."
        )
    if asked == "auto":
        asked = "bytes" if is_plain else "json" if to is Format.FOLDER else "example"
    if asked == "example":
        for field in schema:
            _kind_of_column(field)
    return asked


def _has_records(schema: Any) -> bool:
    types = arrow().types
    if RECORD not in schema.names or set(schema.names) - {RECORD, NAME}:
        return False
    kind = schema.field(RECORD).type
    if NAME in schema.names and not types.is_string(schema.field(NAME).type):
        return False
    return bool(types.is_binary(kind) or types.is_large_binary(kind))


def schema_to_write(reader: Reader, to: Format, rows: str, update: Update) -> Any:
    """Return the columns to write, or None for records of bytes.

    The columns of Examples and of JSON are the union over all records, so all are read.
    """
    if not to.has_columns:
        return None
    pa = arrow()
    if not isinstance(reader, BytesReader):
        return reader.schema
    if rows == "bytes":
        fields = [(NAME, pa.string())] if reader.names is not None else []
        return pa.schema([*fields, (RECORD, pa.binary())])
    find = _columns_of_examples if rows == "example" else _columns_of_json
    return find(reader, update)


# Rows to bytes.


def rows_to_bytes(table: Any, rows: str) -> list[bytes]:
    """Return a record for each row."""
    if rows == "bytes":
        values: list[bytes] = table.column(RECORD).to_pylist()
        if None in values:
            raise BadInput(f"The value of `{RECORD}` is missing in a row.")
        return values
    if rows == "json":
        return [_to_json(row) for row in table.to_pylist()]
    columns = [
        (name, _kind_of_column(field), table.column(name).to_pylist())
        for name, field in zip(table.schema.names, table.schema, strict=True)
    ]
    return [_to_example(columns, number) for number in range(table.num_rows)]


def _to_example(columns: Sequence[tuple[str, int, list[Any]]], number: int) -> bytes:
    features: dict[str, example.Feature] = {}
    for name, kind, values in columns:
        value = values[number]
        if value is None:
            continue  # a missing value becomes a missing feature
        items = value if isinstance(value, list) else [value]
        if None in items:
            raise BadInput(
                f"A list in the column {name!r} has a missing item, which a tf.train.Example"
                " cannot represent. Use `--rows json`."
            )
        if kind == example.BYTES:
            items = [item.encode() if isinstance(item, str) else item for item in items]
        elif kind == example.INT64 and items and max(items) >= 1 << 63:
            raise BadInput(
                f"The column {name!r} has the number {max(items)}, which is too large for a"
                " tf.train.Example. Use `--rows json`."
            )
        features[name] = kind, items
    return example.encode(features)


def _kind_of_column(field: Any) -> int:
    """Return the kind of feature for a column, or raise if information would be lost."""
    types = arrow().types
    kind = field.type
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        kind = kind.value_type
    if types.is_integer(kind) or types.is_boolean(kind):
        return example.INT64
    if types.is_float16(kind) or types.is_float32(kind):
        return example.FLOAT
    if (
        types.is_string(kind)
        or types.is_large_string(kind)
        or types.is_binary(kind)
        or types.is_large_binary(kind)
        or types.is_fixed_size_binary(kind)
    ):
        return example.BYTES
    why = "has only floats of 32 bits" if types.is_float64(kind) else "cannot represent it"
    raise BadInput(
        f"The column {field.name!r} is of type {field.type}, and a tf.train.Example {why}. Use"
        " `--rows json`."
    )


def _to_json(row: dict[str, Any]) -> bytes:
    text = json.dumps(row, ensure_ascii=False, separators=(",", ":"), default=_json_value)
    return text.encode("utf-8", "surrogatepass")


def _json_value(value: Any) -> Any:
    if isinstance(value, bytes):
        return {"base64": base64.b64encode(value).decode()}
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


# Bytes to rows.


def bytes_to_rows(records: Sequence[bytes], rows: str, schema: Any, names: Sequence[str]) -> Any:
    """Return a table with a row for each record."""
    pa = arrow()
    if rows == "bytes":
        columns: dict[str, Any] = {NAME: names} if NAME in schema.names else {}
        return pa.table({**columns, RECORD: records}, schema=schema)
    if rows == "json":
        parsed = [_from_json(record) for record in records]
        structs = pa.array(parsed, pa.struct(list(schema)))
        return pa.Table.from_batches([pa.RecordBatch.from_struct_array(structs)]).cast(schema)
    decoded = [_from_example(record) for record in records]
    lists = {field.name: pa.types.is_list(field.type) for field in schema}
    return pa.table(
        {
            name: [_value(features.get(name), is_list) for features in decoded]
            for name, is_list in lists.items()
        },
        schema=schema,
    )


def _value(feature: example.Feature | None, is_list: bool) -> Any:
    if feature is None:
        return None
    return feature[1] if is_list else feature[1][0]


def _from_example(record: bytes) -> dict[str, example.Feature]:
    try:
        return example.decode(record)
    except example.NotAnExampleError as error:
        raise BadInput(f"A record is not a tf.train.Example: {error}.") from error


def _columns_of_examples(reader: BytesReader, update: Update) -> Any:
    pa = arrow()
    kinds: dict[str, int] = {}
    are_single: dict[str, bool] = {}
    done = 0
    for records in reader.read(0, reader.count):
        for record in records:
            for name, (kind, values) in _from_example(record).items():
                if kind and kinds.setdefault(name, kind) != kind:
                    raise BadInput(
                        f"The feature {name!r} is a list of {example.KIND_NAMES[kind]} in one"
                        f" record and of {example.KIND_NAMES[kinds[name]]} in another."
                    )
                kinds.setdefault(name, example.BYTES)
                are_single[name] = are_single.get(name, True) and len(values) == 1
        done += len(records)
        update(done)
    types = {example.BYTES: pa.binary(), example.FLOAT: pa.float32(), example.INT64: pa.int64()}
    return pa.schema(
        [
            (name, types[kind] if are_single[name] else pa.list_(types[kind]))
            for name, kind in kinds.items()
        ]
    )


def _columns_of_json(reader: BytesReader, update: Update) -> Any:
    pa = arrow()
    schema = pa.schema([])
    done = 0
    for records in reader.read(0, reader.count):
        try:
            kind = pa.array([_from_json(record) for record in records]).type
            schema = pa.unify_schemas([schema, pa.schema(list(kind))], promote_options="permissive")
        except pa.ArrowException as error:
            raise BadInput(
                f"The records {done} to {done + len(records) - 1} do not have the same"
                f" columns. Arrow's error: {error}"
            ) from error
        done += len(records)
        update(done)
    return schema


def _from_json(record: bytes) -> dict[str, Any]:
    try:
        row = json.loads(record, object_hook=_from_base64)
    except ValueError as error:
        raise BadInput(f"A record is not valid JSON: {error}.") from error
    if not isinstance(row, dict):
        raise BadInput(f"A record is not a JSON object, but {kind_of(row)}.")
    return row


def _from_base64(members: dict[str, Any]) -> Any:
    if len(members) == 1 and isinstance(text := members.get("base64"), str):
        return base64.b64decode(text)
    return members


# Names of files.


def file_names(reader: Reader, rows: str, count: int) -> Callable[[int, Any], str]:
    """Return a function that names the file of a record, from its number or its row."""
    if isinstance(reader, BytesReader) and reader.names is not None:
        names = reader.names
        return lambda number, row: names[number]
    if rows == "bytes" and reader.schema is not None and NAME in reader.schema.names:
        return lambda number, row: str(row)
    width, ending = max(6, len(str(count - 1))), _ENDINGS[rows]
    return lambda number, row: f"{number:0{width}d}{ending}"


def check_names(reader: Reader, rows: str) -> None:
    """Raise if the names in a column cannot be file names in a folder."""
    if isinstance(reader, BytesReader) or rows != "bytes" or NAME not in reader.schema.names:
        return
    seen: set[str] = set()
    for table in reader.read(0, reader.count):
        for name in table.column(NAME).to_pylist():
            # Hidden files are not read as records; `..` is one of them.
            if not name or "\0" in name or not all(map(_is_visible, name.split("/"))):
                raise BadInput(f"A row has the name {name!r}, which cannot be a file name.")
            if name in seen:
                raise BadInput(f"Two rows have the name {name!r}, but file names must be unique.")
            seen.add(name)


def _is_visible(part: str) -> bool:
    return bool(part) and not part.startswith(".")


def chunks_to_write(
    reader: Reader, to: Format, rows: str, schema: Any, start: int, stop: int
) -> Iterator[Any]:
    """Yield what to write: tables, lists of bytes, or pairs of name and bytes for a folder."""
    name_of = file_names(reader, rows, reader.count) if to is Format.FOLDER else None
    at = start
    chunk: Any
    for chunk in reader.read(start, stop):
        if isinstance(reader, BytesReader):
            names = reader.names[at : at + len(chunk)] if reader.names is not None else ()
            if to.has_columns:
                yield bytes_to_rows(chunk, rows, schema, names)
                at += len(chunk)
                continue
            records, given = chunk, [None] * len(chunk)
        elif to.has_columns:
            yield chunk
            continue
        else:
            records = rows_to_bytes(chunk, rows)
            has_names = NAME in chunk.schema.names
            given = chunk.column(NAME).to_pylist() if has_names else [None] * len(records)
        if name_of is None:
            yield records
        else:
            pairs = zip(records, given, strict=True)
            yield [(name_of(at + n, row), record) for n, (record, row) in enumerate(pairs)]
        at += len(records)
