"""`wholegrain convert`: converts between formats in several processes, and can be interrupted.

A pipeline of this library does the work: its elements are shards, its map writes them, and its
workers are the processes.
"""

import argparse
import contextlib
import dataclasses
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import wholegrain as wg
from wholegrain._cli.console import Console, Progress, progress, size_text, time_text
from wholegrain._cli.convert import mapping
from wholegrain._cli.convert import plan as plans
from wholegrain._cli.convert.plan import Plan
from wholegrain._cli.convert.reading import open_reader, shared_reader
from wholegrain._cli.convert.shards import (
    CompareShard,
    WriteShard,
    done_path,
    files_folder,
    new_progress,
)
from wholegrain._cli.convert.work import Stage, WorkFolder
from wholegrain._cli.errors import BadInput
from wholegrain._cli.formats import Format, find, format_of_name
from wholegrain._read import machine
from wholegrain._shards.files import sync_folder

_UPDATES_PER_S = 10
_WRITTEN = (Format.ARRAY_RECORD, Format.TFRECORD, Format.PARQUET, Format.ARROW, Format.FOLDER)


def run(arguments: argparse.Namespace) -> int:
    """Convert; return the exit code."""
    try:
        return _convert(arguments)
    except KeyboardInterrupt as interrupt:
        raise KeyboardInterrupt("Run the same command again to continue.") from interrupt


def _convert(arguments: argparse.Namespace) -> int:
    console = Console()
    started = time.perf_counter()
    request = _Request(arguments)
    shared_reader.cache_clear()  # the files may have changed since this process read them
    with request.work.locked():
        if request.was_finished():
            console.line(f"{request.destination} is already finished.")
            return 0
        plan, is_new = request.plan()
        if plan.rows == "bytes" and plan.source.format is Format.FOLDER and not _keeps_names(plan):
            console.line(f"Note: {plan.format} does not keep file names.", "yellow")
        request.work.remove_temporary_files()
        todo = [shard.number for shard in plan.shards if not _is_done(plan, shard.number)]
        if not is_new:
            done = len(plan.shards) - len(todo)
            console.line(f"Continuing: {done} of {len(plan.shards)} shards are finished.", "yellow")
        crew = _Crew(arguments.workers, _ray_backend() if arguments.ray else None)
        _run_shards(plan, WriteShard(plan), todo, crew, "Writing")
        if arguments.verify:
            problem = _verify(plan, crew)
            if problem:
                console.line(
                    f"Verification failed: {problem} The destination was not changed.", "red"
                )
                return 1
        _put_in_place(plan)
        if request.work.path.exists():
            note = f"Note: {str(request.work.path)!r} was kept: convert did not write all of it."
            console.line(note, "yellow")
    took = time.perf_counter() - started
    _tell(console, plan, arguments.verify, took)
    return 0


class _Request:
    """The requested conversion."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        given = arguments.destination.rstrip("/")
        if not given:
            raise BadInput("The destination is empty.")
        if "://" in given:
            raise BadInput(
                f"{given!r} is in an object store, but convert writes only to local disks."
            )
        self.destination, sharded = plans.split_sharded(given)
        if sharded is not None and arguments.shards not in (None, sharded):
            raise BadInput(f"{given!r} names {sharded} shards, but --shards is {arguments.shards}.")
        self._shards: int | None = arguments.shards if sharded is None else sharded
        if self._shards == 0:
            raise BadInput(f"{given!r} names no shards; at least one is needed.")
        to = arguments.to or format_of_name(given)
        if to is None:
            raise BadInput(
                f"The suffix of {given!r} is not a known format. Add --to array_record,"
                " tfrecord, parquet, arrow or folder."
            )
        self._to = Format(to)
        if self._to not in _WRITTEN:
            raise BadInput(
                f"{self._to} files can be read, but not written; --to accepts array_record,"
                " tfrecord, parquet, arrow and folder."
            )
        parent = Path(self.destination).absolute().parent
        if not parent.is_dir():
            raise BadInput(f"There is no folder {str(parent)!r} to write to.")
        self.work = WorkFolder(self.destination)
        self._asked_rows: str = arguments.rows
        self._force: bool = arguments.force
        self.source = find(arguments.source)
        if self.source.is_remote:
            raise BadInput(
                f"{self.source.path!r} is in an object store; copy it to a local disk first."
            )

    def was_finished(self) -> bool:
        """Return whether an earlier run was killed after it had finished; clean up after it."""
        if self.work.stage is not Stage.FINISHED:
            return False
        self.work.clear()
        self.work.enter(Stage.WRITING)
        return not self._force

    def plan(self) -> tuple[Plan, bool]:
        """Return the plan, and whether it is new."""
        request = plans.request_of(
            self.source, self.destination, self._to, self._shards, self._asked_rows
        )
        if self._force:
            self._start_anew()
        earlier = plans.load_plan(self.destination)
        if earlier is not None:
            plans.check_same_request(earlier, request)
            return earlier, False
        new = self._new_plan(request)
        for path in filter(os.path.lexists, _places(new)):
            self._check_replaceable(path)
        self._start_anew()
        if self._to is Format.FOLDER:
            files_folder(new).mkdir()
        sync_folder(self.work.path.absolute().parent)
        new.save()
        return new, True

    def _start_anew(self) -> None:
        self.work.clear()
        self.work.enter(Stage.WRITING)

    def _check_replaceable(self, path: Path) -> None:
        """Raise if a shard may not replace what is at a path."""
        if path.is_dir() and not path.is_symlink():
            if self._to is Format.FOLDER and not any(path.iterdir()):
                return
            raise BadInput(
                f"{str(path)!r} is an existing folder, and convert does not remove folders."
                " Remove it yourself, or choose another destination."
            )
        read = filter(os.path.exists, self.source.files)
        if path.exists() and any(path.samefile(file) for file in read):
            raise BadInput(f"{str(path)!r} is also the source; choose another destination.")
        if self._to is Format.FOLDER:
            raise BadInput(f"{str(path)!r} already exists and is not a folder.")
        if not self._force:
            raise BadInput(f"{str(path)!r} already exists. Overwrite it with --force.")

    def _new_plan(self, request: dict[str, Any]) -> Plan:
        reader = open_reader(self.source)
        rows = mapping.choose_rows(reader, self._to, self._asked_rows)
        if self._to is Format.FOLDER:
            mapping.check_names(reader, rows)
        with progress("Reading the schema", reader.count, "records") as bar:
            schema = mapping.schema_to_write(reader, self._to, rows, bar.update)
        shards = self._shards or plans.default_shards(self.source, reader.count)
        return Plan(
            request=request,
            source=self.source,
            destination=self.destination,
            format=self._to,
            count=reader.count,
            rows=rows,
            schema=None if schema is None else schema.serialize().to_pybytes(),
            shards=plans.shards_of(self.destination, reader.count, shards),
            overwrite=self._force,
        )


def _places(plan: Plan) -> list[Path]:
    """Return the destinations of the shards."""
    if plan.format is Format.FOLDER:
        return [Path(plan.destination)]
    return [Path(plan.destination).with_name(shard.name) for shard in plan.shards]


def _is_done(plan: Plan, number: int) -> bool:
    if done_path(plan, plan.shards[number]).exists():
        return True
    # Once moving has started, shards that are not in the folder any more are at their destination.
    return WorkFolder(plan.destination).stage is Stage.PLACING


def _keeps_names(plan: Plan) -> bool:
    return plan.format.has_columns or plan.format is Format.FOLDER


@dataclasses.dataclass(frozen=True)
class _Crew:
    """Which processes do the work.

    Args:
        asked: How many; None for as many as there are processors, here or on the cluster.
        backend: Starts them; None for this machine.
    """

    asked: int | None
    backend: Any

    def count(self, shards: int) -> int:
        """Return the number of processes for so many shards."""
        if self.asked is not None:
            return min(self.asked, shards)
        if self.backend is not None:
            return min(int(self.backend.max_workers()), shards)
        workers = min(machine.available_cpus(), shards)
        return 0 if workers == 1 else workers  # For one shard a process would not be faster.


def _ray_backend() -> Any:
    from wholegrain.ray import RayBackend

    return RayBackend()


def _run_shards(
    plan: Plan, job: Callable[[int], Any], numbers: list[int], crew: _Crew, label: str
) -> list[Any]:
    """Apply a function to each of the shards in several processes."""
    if not numbers:
        return []
    ds = wg.MapDataset.source(numbers).map(job)
    # Each process handles one shard at a time, and no shard is handled twice.
    shards = ds.to_iter_dataset(wg.ReadOptions(num_threads=0, prefetch_buffer_size=0))
    workers = crew.count(len(numbers))
    if workers:
        options = wg.MultiprocessingOptions(
            workers, per_worker_buffer_size=len(numbers), backend=crew.backend
        )
        shards = shards.mp_prefetch(options)
    total = sum(plan.shards[n].stop - plan.shards[n].start for n in numbers)
    counted = new_progress(plan)
    with progress(label, total, "records") as bar, _updating(bar, counted):
        return list(shards)


@contextlib.contextmanager
def _updating(bar: Progress, counted: Any) -> Iterator[None]:
    """Show progress in a thread while the body runs."""
    ended = threading.Event()

    def update() -> None:
        while not ended.wait(1 / _UPDATES_PER_S):
            bar.update(int(counted.sum()))

    thread = threading.Thread(target=update, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
    bar.update(int(counted.sum()))


def _verify(plan: Plan, crew: _Crew) -> str:
    # Shards that an earlier run has moved were verified then, if requested.
    numbers = [s.number for s in plan.shards if done_path(plan, s).exists()]
    problems = _run_shards(plan, CompareShard(plan), numbers, crew, "Verifying")
    problem = next(filter(None, problems), "")
    if problem and plans.source_has_changed(plan):
        return f"The source {plan.source.path!r} was changed while it was converted. {problem}"
    return problem


def _put_in_place(plan: Plan) -> None:
    """Move everything to its destination, in an order that can be interrupted at any point."""
    places = _places(plan)
    work = WorkFolder(plan.destination)
    work.enter(Stage.PLACING)
    if plan.format is Format.FOLDER:
        moves = [(files_folder(plan), places[0])]
    else:
        moves = [(done_path(plan, s), at) for s, at in zip(plan.shards, places, strict=True)]
    for written, place in moves:
        if written.exists():  # otherwise it was moved before
            _move(written, place, overwrite=plan.overwrite)
    sync_folder(places[0].absolute().parent)
    work.enter(Stage.FINISHED)
    work.remove()


def _move(written: Path, place: Path, *, overwrite: bool) -> None:
    # `os.rename` replaces a folder only if it is empty.
    if not written.is_dir() and os.path.lexists(place) and not overwrite:
        raise BadInput(
            f"{str(place)!r} was created during the conversion. Move it away, and run the same"
            " command again."
        )
    try:
        os.rename(written, place)
    except OSError as error:
        raise BadInput(
            f"{str(written)!r} is finished, but cannot be moved to {str(place)!r}"
            f" ({error.strerror}). Fix that, and run the same command again."
        ) from error


def _tell(console: Console, plan: Plan, verified: bool, took: float) -> None:
    places = _places(plan)
    if plan.format is Format.FOLDER:
        size = sum(file.stat().st_size for file in places[0].rglob("*") if file.is_file())
    else:
        size = sum(place.stat().st_size for place in places)
    where = str(places[0]) if len(places) == 1 else f"{places[0]} … {len(places)} files"
    note = ", verified" if verified else ""
    rate = plan.count / max(took, 1e-9)
    console.line(
        f"{plan.count:,} records to {where}: {size_text(size)} of {plan.format}{note},"
        f" {time_text(took)}, {rate:,.0f} records/s.",
        "green",
    )
