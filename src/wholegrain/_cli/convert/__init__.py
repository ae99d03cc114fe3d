"""`wholegrain convert`: from one format into another, by several processes, whatever interrupts it.

The work is done by a pipeline of this library: its elements are shards, its one map writes them,
its workers are the processes.
"""

import argparse
import contextlib
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
from wholegrain._cli.convert.files import sync_folder
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
from wholegrain._read import limits

_UPDATES_PER_S = 10


def run(arguments: argparse.Namespace) -> int:
    """Convert; return the exit code."""
    try:
        return _convert(arguments)
    except KeyboardInterrupt as interrupt:
        raise KeyboardInterrupt("The same command goes on from here.") from interrupt


def _convert(arguments: argparse.Namespace) -> int:
    console = Console()
    started = time.perf_counter()
    request = _Request(arguments)
    shared_reader.cache_clear()  # the files may have changed since this process read them
    with request.work.locked():
        if request.was_finished():
            console.line(f"{request.destination} was finished before.")
            return 0
        plan, is_new = request.plan()
        if plan.rows == "bytes" and plan.source.format is Format.FOLDER and not _keeps_names(plan):
            console.line(f"Note: names of files are not kept in {plan.format}.", "yellow")
        request.work.remove_temporary_files()
        todo = [shard.number for shard in plan.shards if not _is_done(plan, shard.number)]
        if not is_new:
            done = len(plan.shards) - len(todo)
            console.line(f"Going on: {done} of {len(plan.shards)} parts were there.", "yellow")
        workers = _worker_count(arguments.workers, len(todo))
        _run_shards(plan, WriteShard(plan), todo, workers, "Writing")
        if arguments.verify:
            problem = _verify(plan, arguments.workers)
            if problem:
                console.line(f"Verification failed: {problem} Nothing was put in place.", "red")
                return 1
        _put_in_place(plan)
        if request.work.path.exists():
            note = f"Note: {str(request.work.path)!r} stays, for files that are not of convert."
            console.line(note, "yellow")
    took = time.perf_counter() - started
    _tell(console, plan, arguments.verify, took)
    return 0


class _Request:
    """What was asked for."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        given = arguments.destination.rstrip("/")
        if not given:
            raise BadInput("The destination is empty.")
        if "://" in given:
            raise BadInput(f"{given!r} is in a store; convert writes to a disk.")
        self.destination, sharded = plans.split_sharded(given)
        if sharded is not None and arguments.shards not in (None, sharded):
            raise BadInput(f"{given!r} is {sharded} shards, but --shards is {arguments.shards}.")
        self._shards: int | None = arguments.shards if sharded is None else sharded
        if self._shards == 0:
            raise BadInput(f"{given!r} stands for no shards; there has to be one at least.")
        to = arguments.to or format_of_name(given)
        if to is None:
            raise BadInput(
                f"The name {given!r} does not say which format to write. Add --to array_record,"
                " tfrecord, parquet, arrow or folder."
            )
        self._to = Format(to)
        if self._to in (Format.BAGZ, Format.NPY):
            raise BadInput(
                f"{self._to} files can be read, but not written; --to takes array_record,"
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
            raise BadInput(f"{self.source.path!r} is in a store; copy it to a disk first.")

    def was_finished(self) -> bool:
        """Return whether an earlier run was killed when all was in place; tidy up after it."""
        if self.work.stage is not Stage.FINISHED:
            return False
        self.work.clear()
        self.work.enter(Stage.WRITING)
        return not self._force

    def plan(self) -> tuple[Plan, bool]:
        """Return what to do, and if that is new."""
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
        """Raise if a shard may not take the place of what is at a path."""
        if path.is_dir() and not path.is_symlink():
            if self._to is Format.FOLDER and not any(path.iterdir()):
                return
            raise BadInput(
                f"{str(path)!r} is a folder that is there already. convert removes no folders;"
                " remove it yourself, or write to another place."
            )
        read = filter(os.path.exists, self.source.files)
        if path.exists() and any(path.samefile(file) for file in read):
            raise BadInput(f"{str(path)!r} is what is read; write to another place.")
        if self._to is Format.FOLDER:
            raise BadInput(f"{str(path)!r} is there already, and is no folder.")
        if not self._force:
            raise BadInput(f"{str(path)!r} is there already. Overwrite it with --force.")

    def _new_plan(self, request: dict[str, Any]) -> Plan:
        reader = open_reader(self.source)
        rows = mapping.choose_rows(reader, self._to, self._asked_rows)
        if self._to is Format.FOLDER:
            mapping.check_names(reader, rows)
        with progress("Looking at columns", reader.count, "records") as bar:
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
    """Return where the shards go."""
    if plan.format is Format.FOLDER:
        return [Path(plan.destination)]
    return [Path(plan.destination).with_name(shard.name) for shard in plan.shards]


def _is_done(plan: Plan, number: int) -> bool:
    if done_path(plan, plan.shards[number]).exists():
        return True
    # Once shards are moved to their places, those that are not in the folder any more are there.
    return WorkFolder(plan.destination).stage is Stage.PLACING


def _keeps_names(plan: Plan) -> bool:
    return plan.format.has_columns or plan.format is Format.FOLDER


def _worker_count(asked: int | None, shards: int) -> int:
    workers = min(limits.available_cpus(), shards) if asked is None else min(asked, shards)
    # A process of its own would not do a single shard any faster.
    return 0 if workers == 1 and asked is None else workers


def _run_shards(
    plan: Plan, job: Callable[[int], Any], numbers: list[int], workers: int, label: str
) -> list[Any]:
    """Do something for each of the shards, in several processes."""
    if not numbers:
        return []
    ds = wg.MapDataset.source(numbers).map(job)
    # One shard at a time in each process, and none is made twice.
    shards = ds.to_iter_dataset(wg.ReadOptions(num_threads=0, prefetch_buffer_size=0))
    if workers:
        options = wg.MultiprocessingOptions(workers, per_worker_buffer_size=len(numbers))
        shards = shards.mp_prefetch(options)
    total = sum(plan.shards[n].stop - plan.shards[n].start for n in numbers)
    counted = new_progress(plan)
    with progress(label, total, "records") as bar, _updating(bar, counted):
        return list(shards)


@contextlib.contextmanager
def _updating(bar: Progress, counted: Any) -> Iterator[None]:
    """Show how many records are done while something else goes on."""
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


def _verify(plan: Plan, asked: int | None) -> str:
    # Shards that an earlier run has put in place already were compared by it, or not wanted to be.
    numbers = [s.number for s in plan.shards if done_path(plan, s).exists()]
    workers = _worker_count(asked, len(numbers))
    problems = _run_shards(plan, CompareShard(plan), numbers, workers, "Verifying")
    problem = next(filter(None, problems), "")
    if problem and plans.source_has_changed(plan):
        return f"The source {plan.source.path!r} was changed while it was converted. {problem}"
    return problem


def _put_in_place(plan: Plan) -> None:
    """Move everything to its place; in an order that can be interrupted anywhere."""
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
    # A folder takes the place of an empty folder only: the system sees to it.
    if not written.is_dir() and os.path.lexists(place) and not overwrite:
        raise BadInput(
            f"{str(place)!r} has appeared during the conversion. Move it away, and the same"
            " command goes on."
        )
    try:
        os.rename(written, place)
    except OSError as error:
        raise BadInput(
            f"{str(written)!r} is finished, but cannot be moved to {str(place)!r}"
            f" ({error.strerror}). Make room for it, and the same command goes on."
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
