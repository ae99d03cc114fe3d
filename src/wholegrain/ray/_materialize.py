"""`materialize`: the output of a pipeline as files, written by actors.

Everything is in the folder `PATH.unfinished` until the last shard is finished: a manifest with
what was asked for, and the finished shards. Then the folder becomes PATH. A shard gets its name
when it is complete, so whoever is killed, a shard is there as a whole or not at all.
"""

import contextlib
import fcntl
import importlib.metadata
import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from wholegrain._graph.iter_dataset import IterDataset
from wholegrain._graph.map_dataset import MapDataset
from wholegrain._read import machine
from wholegrain._shards.files import sync_folder, temporary_name, write_whole
from wholegrain._shards.writing import arrow, finish, open_writer
from wholegrain._state.fingerprint import fingerprint
from wholegrain.options import MultiprocessingOptions, ReadOptions
from wholegrain.ray._backend import RayBackend

_FORMATS = ("array_record", "tfrecord", "parquet", "arrow")
_MANIFEST = "manifest.json"
_ENDLESS = 1 << 60
_TOGETHER = 256


def materialize(
    ds: MapDataset[Any] | IterDataset[Any],
    path: str | os.PathLike[str],
    *,
    format: str = "array_record",
    records_per_shard: int = 10_000,
    num_workers: int | None = None,
    backend: Any = None,
) -> list[str]:
    """Write the elements of a pipeline to files, with the actors of a Ray cluster.

    The bytes do not depend on the number of actors. If the program is killed, the same call
    continues: finished shards are not written again. The actors need to see `path`.

    The shards of a MapDataset are written by the actors, each from its range of indices; missing
    elements are left out of their shard. The elements of an IterDataset are made by actors, and
    written by this process in their order.

    Args:
        ds: The pipeline. Its elements have to be `bytes` for "array_record" and "tfrecord", and
            dicts of numbers, strings, bytes and one-dimensional arrays for "parquet" and "arrow".
        path: The folder to create.
        format: "array_record", "tfrecord", "parquet" or "arrow".
        records_per_shard: How many elements are in each file.
        num_workers: How many actors to use; by default as many as the cluster grants.
        backend: Starts the workers: a `RayBackend`, or "fork" for this machine.

    Returns:
        The paths of the files.

    Example:
        >>> materialize(ds.map(tokenize).map(pickle.dumps), "/data/tokens", records_per_shard=5000)
    """
    if not isinstance(ds, (MapDataset, IterDataset)):
        raise TypeError(f"`materialize` needs a MapDataset or an IterDataset, but got {ds!r}.")
    if format not in _FORMATS:
        raise ValueError(f"`format` has to be one of {', '.join(_FORMATS)}, but got {format!r}.")
    if records_per_shard < 1:
        raise ValueError(f"`records_per_shard` has to be at least 1, but got {records_per_shard}.")
    if isinstance(ds, MapDataset) and len(ds) >= _ENDLESS:
        raise ValueError("The pipeline has no end: `repeat()` needs a number of epochs here.")
    if num_workers is not None and num_workers < 0:
        raise ValueError(f"`num_workers` cannot be negative, but got {num_workers}.")
    backend = RayBackend() if backend is None else backend
    place = Path(path).absolute()
    if place.exists():
        raise FileExistsError(f"{str(place)!r} exists already. Remove it, or choose another path.")
    with _working_in(Path(f"{place}.unfinished")) as work:
        manifest = _manifest(work, ds, format, records_per_shard)
        if isinstance(ds, MapDataset):
            count = _write_ranges(ds, work, manifest, num_workers, backend)
        else:
            count = _write_in_order(ds, work, manifest, num_workers, backend)
        for number in range(count):
            shard, name = work / _shard_name(number), f"data-{number:05d}-of-{count:05d}.{format}"
            if shard.exists():  # Otherwise an earlier run has renamed it.
                os.rename(shard, work / name)
        sync_folder(work)
        os.rename(work, place)
        for leftover in place.glob("*.state"):
            leftover.unlink()
        sync_folder(place.parent)
    return sorted(str(file) for file in place.glob(f"data-*.{format}"))


@contextlib.contextmanager
def _working_in(folder: Path) -> Iterator[Path]:
    """Create the folder if it does not exist, and lock it against other processes."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    folder.mkdir(exist_ok=True)
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise RuntimeError(f"Another process is writing to {str(folder)!r}.") from None
        for leftover in folder.glob(".*.tmp"):
            leftover.unlink()
        yield folder
    finally:
        os.close(descriptor)  # Releases the lock, as the end of the process would.


def _manifest(work: Path, ds: Any, format: str, records_per_shard: int) -> dict[str, Any]:
    """Return the manifest; raise if an unfinished run was asked for something else."""
    library = {"array_record": "array_record", "tfrecord": "wholegrain"}.get(format, "pyarrow")
    wanted: dict[str, Any] = {
        "format": format,
        "records_per_shard": records_per_shard,
        "pipeline": fingerprint(ds),
        "written by": f"{library} {importlib.metadata.version(library)}",
    }
    wanted = json.loads(json.dumps(wanted, default=str))
    file = work / _MANIFEST
    if not file.exists():
        write_whole(file, json.dumps(wanted, indent=1).encode())
        sync_folder(work)
        return wanted
    found: dict[str, Any] = json.loads(file.read_text())
    changed = [name for name, value in wanted.items() if found.get(name) != value]
    if changed:
        raise ValueError(
            f"{str(work)!r} has an unfinished output with other settings ({', '.join(changed)}"
            " changed). Repeat the call unchanged, or remove that folder."
        )
    return found


def _shard_name(number: int) -> str:
    return f"shard-{number:05d}"


def _is_finished(work: Path, number: int) -> bool:
    return (work / _shard_name(number)).exists() or any(work.glob(f"data-{number:05d}-of-*"))


def _worker_count(asked: int | None, backend: Any, tasks: int) -> int:
    if asked is not None:
        return min(asked, tasks)
    most: int | None = getattr(backend, "max_workers", lambda: None)()
    return min(most or machine.available_cpus(), tasks)


def _write_ranges(
    ds: MapDataset[Any], work: Path, manifest: dict[str, Any], asked: int | None, backend: Any
) -> int:
    """Let workers write the shards of a MapDataset; return how many shards there are."""
    size: int = manifest["records_per_shard"]
    count = max(1, -(-len(ds) // size))
    missing = [number for number in range(count) if not _is_finished(work, number)]
    if missing:
        schema = _schema_of(_first(ds), manifest["format"])
        write = WriteRange(ds, work, manifest["format"], size, schema)
        # Each worker writes one shard at a time, and no shard is written twice.
        here = ReadOptions(num_threads=0, prefetch_buffer_size=0)
        shards = MapDataset.source(missing).map(write).to_iter_dataset(here)
        options = MultiprocessingOptions(
            _worker_count(asked, backend, len(missing)),
            per_worker_buffer_size=len(missing),
            backend=backend,
        )
        with iter(shards.mp_prefetch(options)) as it:
            for _ in it:
                pass
    return count


def _first(ds: MapDataset[Any]) -> Any:
    return next((one for one in (ds[index] for index in range(len(ds))) if one is not None), None)


class WriteRange:
    """Writes a shard of a MapDataset."""

    def __init__(
        self, ds: MapDataset[Any], work: Path, format: str, size: int, schema: bytes | None
    ) -> None:
        self._ds, self._work, self._format = ds, work, format
        self._size, self._schema = size, schema

    def __call__(self, number: int) -> int:
        start = number * self._size
        part = self._ds.slice(slice(start, min(start + self._size, len(self._ds))))
        with iter(part.to_iter_dataset()) as elements:
            _write(elements, self._work, number, self._format, self._schema)
        return number


def _write_in_order(
    ds: IterDataset[Any], work: Path, manifest: dict[str, Any], asked: int | None, backend: Any
) -> int:
    """Write the elements of an IterDataset that workers make; return the number of shards."""
    size, to = manifest["records_per_shard"], manifest["format"]
    with iter(_in_workers(ds, asked, backend)) as elements:
        number = 0
        while (work / f"{number}.state").exists() and _is_finished(work, number):
            number += 1
        is_last = False
        if number:
            saved = json.loads((work / f"{number - 1}.state").read_text())
            is_last = saved["is_last"]
            elements.set_state(saved["state"])
        while not is_last:
            part = _Part(elements, size)
            schema = None if part.first is None else _schema_of(part.first, to)
            if number and part.first is None:
                break  # The elements fill the shards exactly.
            file = _write_temporary(part, work, to, schema)
            is_last = part.has_ended
            state = {"is_last": is_last, "state": elements.get_state()}
            write_whole(work / f"{number}.state", json.dumps(state).encode())
            os.rename(file, work / _shard_name(number))
            sync_folder(work)
            number += 1
    return number


def _in_workers(ds: IterDataset[Any], asked: int | None, backend: Any) -> IterDataset[Any]:
    """Return the pipeline in workers, if its order does not depend on their number."""
    options = MultiprocessingOptions("auto", max_workers=asked or None, backend=backend)
    try:
        return ds.mp_prefetch(options) if asked != 0 else ds
    except ValueError:
        return ds  # Where its elements are made is decided by the pipeline.


class _Part:
    """The next elements of an iterator, for one shard."""

    def __init__(self, elements: Any, size: int) -> None:
        self._elements, self._size = elements, size
        self.has_ended = False
        self.first = self._next()

    def _next(self) -> Any:
        try:
            return next(self._elements)
        except StopIteration:
            self.has_ended = True
            return None

    def __iter__(self) -> Iterator[Any]:
        element, given = self.first, 0
        while not self.has_ended:
            yield element
            given += 1
            if given == self._size:
                return
            element = self._next()


def _schema_of(element: Any, format: str) -> bytes | None:
    """Return the columns of an element, as Arrow serializes them; None for bytes."""
    if format not in ("parquet", "arrow"):
        return None
    rows = [] if element is None else [_row(element)]
    schema: bytes = arrow().Table.from_pylist(rows).schema.serialize().to_pybytes()
    return schema


def _row(element: Any) -> dict[str, Any]:
    if not isinstance(element, dict):
        raise TypeError(
            f"Files of columns need elements that are dicts, but one is a {type(element).__name__}."
        )
    return {
        key: value.tolist() if isinstance(value, np.generic) else value
        for key, value in element.items()
    }


def _record(element: Any) -> bytes:
    if isinstance(element, (bytes, bytearray, memoryview)):
        return bytes(element)
    raise TypeError(
        f"Files of records need elements that are bytes, but one is a {type(element).__name__}."
        ' Add a step such as `.map(pickle.dumps)`, or use format="parquet".'
    )


def _write(
    elements: Iterable[Any], work: Path, number: int, format: str, schema: bytes | None
) -> None:
    file = _write_temporary(elements, work, format, schema)
    os.rename(file, work / _shard_name(number))
    sync_folder(work)


def _write_temporary(
    elements: Iterable[Any], work: Path, format: str, schema: bytes | None
) -> Path:
    """Write a shard under a temporary name."""
    file = temporary_name(work)
    columns = None
    if schema is not None:
        columns = arrow().ipc.read_schema(arrow().py_buffer(schema))
    writer = open_writer(file, format, columns)
    rows: list[Any] = []

    def flush() -> None:
        if rows:
            chunk = (
                list(map(_record, rows))
                if columns is None
                else (arrow().Table.from_pylist(list(map(_row, rows)), schema=columns))
            )
            writer.write(chunk)
            rows.clear()

    for element in elements:
        rows.append(element)
        if len(rows) == _TOGETHER:
            flush()
    flush()
    finish(writer, file)
    return file
