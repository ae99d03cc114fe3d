"""`wholegrain convert`: from one format into another, by several processes, whatever interrupts it.

The work is done by a pipeline of this library: its elements are shards, its one map writes them,
its workers are the processes.
"""

import argparse
import contextlib
import fcntl
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
from wholegrain._cli.convert.files import empty, remove, remove_temporary_files, sync_folder
from wholegrain._cli.convert.plan import Plan
from wholegrain._cli.convert.reading import open_reader, shared_reader
from wholegrain._cli.convert.shards import (
    CompareShard,
    WriteShard,
    done_path,
    files_folder,
    new_progress,
)
from wholegrain._cli.errors import BadInput
from wholegrain._cli.formats import Format, find, format_of_name

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
    with _locked(request.destination):
        if request.was_finished():
            console.line(f"{request.destination} was finished before.")
            return 0
        plan, is_new = request.plan()
        if plan.rows == "bytes" and plan.source.format is Format.FOLDER and not _keeps_names(plan):
            console.line(f"Note: names of files are not kept in {plan.format}.", "yellow")
        remove_temporary_files(plan.work)
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
        self._asked_rows: str = arguments.rows
        self._force: bool = arguments.force
        self.source = find(arguments.source)
        if self.source.is_remote:
            raise BadInput(f"{self.source.path!r} is in a store; copy it to a disk first.")

    def was_finished(self) -> bool:
        """Return whether an earlier run was killed when all was in place; tidy up after it."""
        finished = plans.finished_folder(self.destination)
        is_there = finished.is_dir()
        remove(finished)
        return is_there and not self._force

    def plan(self) -> tuple[Plan, bool]:
        """Return what to do, and if that is new."""
        request = plans.request_of(
            self.source, self.destination, self._to, self._shards, self._asked_rows
        )
        work = plans.work_folder(self.destination)
        if self._force:
            empty(work)
        earlier = plans.load_plan(self.destination)
        if earlier is not None:
            plans.check_same_request(earlier, request)
            return earlier, False
        new = self._new_plan(request)
        there = [path for path in _places(new) if os.path.lexists(path)]
        for path in there:
            if any(os.path.exists(file) and path.samefile(file) for file in self.source.files):
                raise BadInput(f"{str(path)!r} is what is read; write to another place.")
        if there and not self._force:
            raise BadInput(f"{str(there[0])!r} is there already. Overwrite it with --force.")
        for path in there:
            remove(path)
        empty(work)
        if self._to is Format.FOLDER:
            files_folder(new).mkdir()
        sync_folder(work.absolute().parent)
        new.save()
        return new, True

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
        )


@contextlib.contextmanager
def _locked(destination: str) -> Iterator[None]:
    """Keep others from converting to the same destination meanwhile."""
    # The system lets go of the lock when this process ends, however it does.
    work = plans.work_folder(destination)
    while True:
        work.mkdir(exist_ok=True)
        descriptor = os.open(work, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(descriptor), os.stat(work)):
                break
        except FileNotFoundError:
            pass  # it was moved away by the one that has just finished
        except BlockingIOError:
            os.close(descriptor)
            raise BadInput(f"Another conversion to {destination!r} is running.") from None
        os.close(descriptor)
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            work.rmdir()  # if nothing is in it
        os.close(descriptor)


def _places(plan: Plan) -> list[Path]:
    """Return where the shards go."""
    if plan.format is Format.FOLDER:
        return [Path(plan.destination)]
    return [Path(plan.destination).with_name(shard.name) for shard in plan.shards]


def _is_done(plan: Plan, number: int) -> bool:
    if done_path(plan, plan.shards[number]).exists():
        return True
    # What is in place was put there by this plan: nothing was when it was made.
    place = _places(plan)[0 if plan.format is Format.FOLDER else number]
    return place.exists()


def _keeps_names(plan: Plan) -> bool:
    return plan.format.has_columns or plan.format is Format.FOLDER


def _worker_count(asked: int | None, shards: int) -> int:
    workers = min(os.cpu_count() or 1, shards) if asked is None else min(asked, shards)
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
    return next(filter(None, problems), "")


def _put_in_place(plan: Plan) -> None:
    """Move everything to its place; in an order that can be interrupted anywhere."""
    places = _places(plan)
    if plan.format is Format.FOLDER:
        if not places[0].exists():
            os.rename(files_folder(plan), places[0])
    else:
        for shard, place in zip(plan.shards, places, strict=True):
            if not place.exists():
                os.rename(done_path(plan, shard), place)
    sync_folder(places[0].absolute().parent)
    # From here on it is finished: what follows tidies up.
    finished = plans.finished_folder(plan.destination)
    os.rename(plan.work, finished)
    remove(finished)


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
