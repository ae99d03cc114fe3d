"""The work of one process on one shard: write it, and compare it with the source."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from wholegrain._cli.convert.mapping import chunks_to_write
from wholegrain._cli.convert.plan import Plan, Shard
from wholegrain._cli.convert.reading import Reader, open_reader, shared_reader
from wholegrain._cli.convert.work import DONE, FILES, PROGRESS
from wholegrain._cli.formats import Format, Found
from wholegrain._core.difference import difference
from wholegrain._core.types import NDArray
from wholegrain._shards.files import sync, sync_folder, temporary_name, write_whole
from wholegrain._shards.writing import arrow, finish, open_writer


def new_progress(plan: Plan) -> NDArray[np.int64]:
    """Return a shared array with the number of finished records of each shard."""
    path = plan.work / PROGRESS
    path.write_bytes(bytes(8 * len(plan.shards)))
    return _progress(path, len(plan.shards))


def _progress(path: Path, shards: int) -> NDArray[np.int64]:
    return np.asarray(np.memmap(path, np.int64, "r+", shape=(shards,)))


def files_folder(plan: Plan) -> Path:
    """Return where the files of a folder are until all are written."""
    return plan.work / FILES


def done_path(plan: Plan, shard: Shard) -> Path:
    """Return the file that exists when the shard is finished."""
    if plan.format is Format.FOLDER:
        return plan.work / DONE.format(shard.number)
    return plan.work / shard.name


def _reader(plan: Plan) -> Reader:
    return shared_reader(plan.source.path, plan.source.format, tuple(plan.source.files))


def _schema(plan: Plan) -> Any:
    return None if plan.schema is None else arrow().ipc.read_schema(arrow().py_buffer(plan.schema))


def _chunks(plan: Plan, shard: Shard) -> Iterator[Any]:
    """Yield the content of the shard, and count the records."""
    counted = _progress(plan.work / PROGRESS, len(plan.shards))
    done = 0
    for chunk in chunks_to_write(
        _reader(plan), plan.format, plan.rows, _schema(plan), shard.start, shard.stop
    ):
        yield chunk
        done += len(chunk)
        counted[shard.number] = done


class WriteShard:
    """Writes a shard, under a temporary name until it is finished."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan

    def __call__(self, number: int) -> int:
        plan = self._plan
        shard = plan.shards[number]
        path = done_path(plan, shard)
        if plan.format is Format.FOLDER:
            _write_files(plan, shard)
            write_whole(path, b"")
        else:
            temporary = temporary_name(plan.work)
            writer = open_writer(temporary, plan.format, _schema(plan))
            for chunk in _chunks(plan, shard):
                writer.write(chunk)
            finish(writer, temporary)
            os.rename(temporary, path)
        sync_folder(plan.work)
        return number


def _write_files(plan: Plan, shard: Shard) -> None:
    root = files_folder(plan)
    folders = {root}
    for chunk in _chunks(plan, shard):
        for name, record in chunk:
            path = root / name
            if path.parent not in folders:
                path.parent.mkdir(parents=True, exist_ok=True)
                folders.add(path.parent)
            temporary = temporary_name(plan.work)
            temporary.write_bytes(record)
            sync(temporary)
            os.rename(temporary, path)
    for folder in folders:
        sync_folder(folder)


class CompareShard:
    """Reads a shard, and describes how it differs from the source; empty if it does not."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan

    def __call__(self, number: int) -> str:
        plan = self._plan
        shard = plan.shards[number]
        if plan.format is Format.FOLDER:
            return _compare_files(plan, shard)
        path = done_path(plan, shard)
        found = open_reader(Found(str(path), plan.format, [str(path)]))
        expected = shard.stop - shard.start
        if found.count != expected:
            return f"{shard.name!r} has {found.count} records instead of {expected}."
        at = 0
        for chunk in _chunks(plan, shard):
            for other in found.read(at, at + len(chunk)):
                here = len(other)
                problem = _compare(chunk[:here], other, shard.start + at)
                if problem:
                    return (
                        f"{str(path)!r} and the source differ, so one of them was damaged after it"
                        f" was written: {problem}"
                    )
                chunk, at = chunk[here:], at + here
        return ""


def _compare(expected: Any, found: Any, first: int) -> str:
    if isinstance(expected, list):
        for number, (one, other) in enumerate(zip(expected, found, strict=True), first):
            if one != other:
                return f"record {number} has other bytes ({len(other)} instead of {len(one)})."
        return ""
    if expected.equals(found):
        return ""
    # The difference may be a NaN, which is not equal to itself.
    problem = difference(expected.to_pydict(), found.to_pydict())
    return f"among the rows from {first} on, {problem}." if problem else ""


def _compare_files(plan: Plan, shard: Shard) -> str:
    root = files_folder(plan)
    for chunk in _chunks(plan, shard):
        for name, record in chunk:
            if (root / name).read_bytes() != record:
                return (
                    f"The file {str(root / name)!r} and the source differ, so one of them was"
                    " damaged after it was written."
                )
    return ""
