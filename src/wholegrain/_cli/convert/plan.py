"""The plan of a conversion: decided once, kept beside what is written, followed by every restart.

All that is written on the way to `DST` lies in the folder `DST.converting`: the plan, and shards
under their names once they are finished. Shards are moved to their places when all are there; then
the folder is removed. A marker in it says which of these is going on (`work.py`), so at any moment
it is known what is to be done.
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
from wholegrain._cli.convert.files import sync_folder, write_whole
from wholegrain._cli.convert.work import PLAN, WorkFolder
from wholegrain._cli.errors import BadInput
from wholegrain._cli.formats import Format, Found

_BYTES_PER_SHARD = 256_000_000
_SHARDED = re.compile(r"(?P<base>.*)@(?P<count>\d+)(?P<ending>\.[^@/.]*)?", re.DOTALL)
_ENDING = re.compile(r"(?P<base>.*[^/])(?P<ending>\.[A-Za-z_]+)", re.DOTALL)


@dataclasses.dataclass(frozen=True)
class Shard:
    """A part of what is written: the records `start` to `stop - 1`, and the name of their file."""

    number: int
    name: str
    start: int
    stop: int


@dataclasses.dataclass(frozen=True)
class Plan:
    """What becomes what.

    Attributes:
        request: What was asked, and of what: a restart that asks for something else is refused.
        source: What is read.
        destination: Where it goes: a file, a folder, or the name that shards are named after.
        format: The format that is written.
        count: How many records there are.
        rows: How rows become bytes or bytes rows: "bytes", "example" or "json".
        schema: The columns that are written, as Arrow serializes them; None where there are none.
        shards: The parts.
        overwrite: Whether files that have the names of shards may be replaced.
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
        """The folder of what is not finished."""
        return WorkFolder(self.destination).path

    def save(self) -> None:
        """Write the plan, as a whole or not at all."""
        content = dataclasses.asdict(self)
        if self.schema is not None:
            content["schema"] = base64.b64encode(self.schema).decode()
        write_whole(self.work / PLAN, json.dumps(content, indent=1).encode())
        sync_folder(self.work)


def load_plan(destination: str) -> Plan | None:
    """Return the plan of an earlier run that did not come to its end, or None."""
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
            " anew."
        ) from error


def split_sharded(destination: str) -> tuple[str, int | None]:
    """Return what "out@8.parquet" means: "out.parquet" in 8 shards; others without a number."""
    if match := _SHARDED.fullmatch(destination):
        return match["base"] + (match["ending"] or ""), int(match["count"])
    return destination, None


def shards_of(destination: str, count: int, number: int) -> list[Shard]:
    """Return `number` parts of about the same number of records."""
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
    """Return everything that what is written follows from."""
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
    """Return whether files of the source were changed since the plan was made."""
    return bool(_digest(plan.source) != plan.request["files of SRC"])


def _listing(source: Found) -> list[tuple[str, int, int]]:
    """Return the name, the size and the time of the last change of each file."""
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
    """Raise if an unfinished conversion was asked for something else."""
    different = [name for name, value in request.items() if plan.request.get(name) != value]
    if different:
        raise BadInput(
            f"An earlier conversion to {plan.destination!r} is unfinished, and was asked for"
            f" something else ({', '.join(different)} changed). Repeat it as it was, or start"
            " anew with --force."
        )
