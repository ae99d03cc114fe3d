"""The plan of a conversion: made once, saved next to the output, and followed by every restart.

The folder `DST.converting` holds everything until the conversion is finished: the plan, and the
finished shards under their final names. When all shards are finished, they are moved to their
destinations and the folder is removed. A marker in the folder records the current phase
(`work.py`), so that a restart knows what to do.
"""

import base64
import dataclasses
import hashlib
import importlib.metadata
import json
import os
import re
from pathlib import Path
from typing import Any

import wholegrain
from wholegrain._cli.convert.work import PLAN, WorkFolder
from wholegrain._cli.errors import BadInput
from wholegrain._cli.formats import Format, Found
from wholegrain._shards.files import sync_folder, write_whole

_BYTES_PER_SHARD = 256_000_000
_SHARDED = re.compile(r"(?P<base>.*)@(?P<count>\d+)(?P<ending>\.[^@/.]*)?", re.DOTALL)
_ENDING = re.compile(r"(?P<base>.*[^/])(?P<ending>\.[A-Za-z_]+)", re.DOTALL)


@dataclasses.dataclass(frozen=True)
class Shard:
    """One shard of the output: the records `start` to `stop - 1`, and the name of their file."""

    number: int
    name: str
    start: int
    stop: int


@dataclasses.dataclass(frozen=True)
class Plan:
    """What is converted to what.

    Attributes:
        request: The options and the source; a restart with another request is refused.
        source: What is read.
        destination: A file, a folder, or the base name of shards.
        format: The output format.
        count: The number of records.
        rows: How to convert between rows and bytes: "bytes", "example" or "json".
        schema: The output columns, as Arrow serializes them; None if there are none.
        shards: The shards of the output.
        overwrite: Whether existing files with the names of shards may be replaced.
    """

    request: dict[str, Any]
    source: Found
    destination: str
    format: Format
    count: int
    rows: str
    schema: bytes | None
    shards: list[Shard]
    overwrite: bool

    @property
    def work(self) -> Path:
        """The folder of the unfinished conversion."""
        return WorkFolder(self.destination).path

    def save(self) -> None:
        """Write the plan atomically."""
        content = dataclasses.asdict(self)
        if self.schema is not None:
            content["schema"] = base64.b64encode(self.schema).decode()
        write_whole(self.work / PLAN, json.dumps(content, indent=1).encode())
        sync_folder(self.work)


def load_plan(destination: str) -> Plan | None:
    """Return the plan of an earlier unfinished run, or None."""
    path = WorkFolder(destination).path / PLAN
    try:
        content = json.loads(path.read_text())
        source, schema = content["source"], content["schema"]
        return Plan(
            request=content["request"],
            source=Found(**{**source, "format": Format(source["format"])}),
            destination=content["destination"],
            format=Format(content["format"]),
            count=content["count"],
            rows=content["rows"],
            schema=None if schema is None else base64.b64decode(schema),
            shards=[Shard(**shard) for shard in content["shards"]],
            overwrite=content["overwrite"],
        )
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError) as error:
        raise BadInput(
            f"The plan {str(path)!r} cannot be read ({error}). With --force the conversion starts"
            " again."
        ) from error


def split_sharded(destination: str) -> tuple[str, int | None]:
    """Parse "out@8.parquet" as "out.parquet" in 8 shards; other names have no number."""
    if match := _SHARDED.fullmatch(destination):
        return match["base"] + (match["ending"] or ""), int(match["count"])
    return destination, None


def shards_of(destination: str, count: int, number: int) -> list[Shard]:
    """Return `number` shards with about the same number of records."""
    name = os.path.basename(destination)
    match = _ENDING.fullmatch(name)
    base, ending = (match["base"], match["ending"]) if match else (name, "")
    return [
        Shard(
            shard,
            name if number == 1 else f"{base}-{shard:05d}-of-{number:05d}{ending}",
            shard * count // number,
            (shard + 1) * count // number,
        )
        for shard in range(number)
    ]


def default_shards(source: Found, count: int) -> int:
    """Return one shard for each 256 MB of the source. It does not depend on the machine."""
    size = sum(size for _, size, _ in _listing(source))
    return max(1, min(count, -(-size // _BYTES_PER_SHARD)))


def request_of(
    source: Found, destination: str, to: Format, shards: int | None, rows: str
) -> dict[str, Any]:
    """Return everything that determines the output."""
    return {
        "files of SRC": _digest(source),
        "SRC": os.path.abspath(source.path),
        "DST": os.path.abspath(destination),
        "--to": str(to),
        "--shards": shards,
        "--rows": rows,
        "versions": {name: _version(name) for name in ("pyarrow", "array_record")}
        | {"wholegrain": wholegrain.__version__},
    }


def _digest(source: Found) -> str:
    return hashlib.sha256(json.dumps(_listing(source)).encode()).hexdigest()


def source_has_changed(plan: Plan) -> bool:
    """Return whether files of the source have changed since the plan was made."""
    return bool(_digest(plan.source) != plan.request["files of SRC"])


def _listing(source: Found) -> list[tuple[str, int, int]]:
    """Return the name, size and modification time of each file."""
    root = source.files[0]
    files = source.files
    if os.path.isdir(root):
        files = sorted(os.path.join(at, name) for at, _, names in os.walk(root) for name in names)
    stats = [(file, os.stat(file)) for file in files]
    return [(file, stat.st_size, stat.st_mtime_ns) for file, stat in stats]


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def check_same_request(plan: Plan, request: dict[str, Any]) -> None:
    """Raise if an unfinished conversion had another request."""
    different = [name for name, value in request.items() if plan.request.get(name) != value]
    if different:
        raise BadInput(
            f"An earlier conversion to {plan.destination!r} is unfinished, and had another"
            f" request ({', '.join(different)} changed). Repeat it unchanged, or start"
            " again with --force."
        )
