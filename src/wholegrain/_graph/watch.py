"""Opens a tracked pipeline: one with a clock around each stage for the whole run."""

from __future__ import annotations

import glob
import os
import shutil
import tempfile
import weakref
from collections.abc import Iterator
from typing import Any

from wholegrain._core import events
from wholegrain._core.names import transform_name
from wholegrain._core.types import T
from wholegrain._graph import run
from wholegrain._graph.iter_dataset import IterDataset
from wholegrain._graph.iterator import DatasetIterator
from wholegrain._graph.kinds import IterNode
from wholegrain._graph.map_dataset import MapDataset
from wholegrain._graph.timed import timed_iterator
from wholegrain._graph.timed_dataset import TimedMapDataset
from wholegrain._graph.tracking import Aims, Watch
from wholegrain._graph.watched_output import WatchedOutput
from wholegrain._observe.board import Board, StageTimes, read_file
from wholegrain._observe.board_clock import BoardClock
from wholegrain._observe.shown import READERS

_OUTPUT = -1


class GraphWatch(Watch):
    """Opens one graph, and gives each of its stages a row of the board.

    Args:
        dataset: The output of the graph.
        aims: What the run is tracked for.
        board: Where the stages write.
        consumer: The row of the stage that reads from the output.
        rows: The rows of an equal graph that was opened before; by default new rows.
        feeds_prefetch: Whether the consumer is a stage that prefetches.
    """

    def __init__(
        self,
        dataset: Any,
        aims: Aims,
        board: Board | None = None,
        consumer: int = _OUTPUT,
        rows: list[int] | None = None,
        feeds_prefetch: bool = False,
    ) -> None:
        self.aims = aims
        self.board = board or Board()
        self.rows: list[int] = []
        self.folders: dict[int, str] = {}
        """The folders that the worker processes of a stage write to, by its row."""
        self._given = iter(rows or ())
        self._row_of: dict[int, int] = {}
        self._read_row_of: dict[int, int] = {}  # Of a MapDataset that an IterDataset reads.
        self._feeds_prefetch: set[int] = set()
        self._nodes: list[Any] = []  # Kept alive, so that their `id()` stays unique.
        self._add(dataset, consumer, feeds_prefetch)

    def _new_row(self, name: str, consumer: int, is_prefetch: bool) -> int:
        row = next(self._given, None)
        if row is None:
            row = self.board.add(name, consumer, is_prefetch)
        self.rows.append(row)
        return row

    def _add(self, dataset: Any, consumer: int, feeds_prefetch: bool) -> None:
        if id(dataset) in self._row_of:
            return
        row = self._new_row(str(dataset), consumer, _is_prefetch(dataset))
        if row < 0:
            return
        self._row_of[id(dataset)] = row
        self._nodes.append(dataset)
        if feeds_prefetch or _is_prefetch(dataset):
            self._feeds_prefetch.add(row)
        if _opens_later(dataset):
            return  # It opens the datasets upstream while it runs.
        reads_in_order = isinstance(dataset, IterDataset) and not _reads_ahead(dataset)
        for parent in dataset.parents:
            above = row
            if reads_in_order and isinstance(parent, MapDataset):
                above = self._new_row("PrefetchDatasetIterator", row, True)
                self._read_row_of[id(parent)] = above
                self._feeds_prefetch.add(above)
            self._add(parent, above, above != row or _is_prefetch(dataset))

    # Opening.

    def open(self, node: IterNode[Any]) -> DatasetIterator[Any]:
        """Open the iterator of a stage, with a clock around it."""
        row = self._row_of.get(id(node))
        if row is None and _reads_ahead(node):
            row = self._read_row_of.get(id(node.parents[0]))
        if row is None:
            return node.open()  # Not a stage of this graph.
        iterator: Any
        if _opens_later(node):
            branch = Branch(self.aims, self.board, row, self.folders, _is_prefetch(node))
            with run.entered(run.current().but(watch=branch)):
                iterator = node.open()
        elif _reads_ahead(node):
            twin: Any = node.with_parents([self._twin(node.parents[0])])
            iterator = twin.open()
        else:
            iterator = self._with_timed_parents(node).open()
        if not isinstance(iterator, DatasetIterator):
            return iterator  # type: ignore[no-any-return]
        iterator.opened_from = node
        if not (_opens_later(node) and _is_prefetch(node)) and _has_name(iterator):
            self.board.rename(row, str(iterator))
        if not self.aims.all_stages and row != 0 and not _is_prefetch(node):
            return iterator
        return self._timed(iterator, row, node)

    def _timed(self, iterator: DatasetIterator[Any], row: int, node: Any) -> DatasetIterator[Any]:
        listeners: list[Any] = []
        if self.aims.telemetry and _reads_ahead(node):
            from wholegrain._observe import prometheus

            listeners.append(prometheus.ready_listener(iterator))
        category = events.PREFETCH if _is_prefetch(node) else events.PREPROCESSING
        event = (f"{type(iterator).__name__}.__next__", str(iterator), category)
        return timed_iterator(iterator, self._clock(node, row, listeners, event))

    def _twin(self, dataset: MapDataset[Any]) -> MapDataset[Any]:
        """Return the same dataset with a clock around it and around each stage upstream."""
        row = self._row_of.get(id(dataset))
        parents = [self._twin(parent) for parent in dataset.parents]
        twin = dataset.with_parents(parents) if parents else dataset
        if row is None or not (self.aims.all_stages or not parents):
            return twin
        listeners = []
        if self.aims.telemetry and getattr(dataset, "_source", None) is not None:
            from wholegrain._observe import prometheus

            listeners.append(prometheus.source_listener(dataset))
        category = events.PREPROCESSING if parents else events.READ
        event = (f"{type(dataset).__name__}.__getitem__", str(dataset), category)
        return TimedMapDataset(twin, self._clock(dataset, row, listeners, event))

    def _with_timed_parents(self, node: IterNode[Any]) -> Any:
        """Return a stage whose parents have clocks, including those of the user's classes."""
        users = [p for p in node.parents if isinstance(p, IterDataset) and not _is_ours(p)]
        if not users or isinstance(node, UserIterDataset):
            return node
        parents: list[Any] = []
        for parent in node.parents:
            row = self._row_of.get(id(parent))
            if row is not None and any(parent is user for user in users):
                parent = UserIterDataset(parent)
                self._nodes.append(parent)
                self._row_of[id(parent)] = row
            parents.append(parent)
        return node.with_parents(parents)

    def _clock(
        self, dataset: Any, row: int, listeners: list[Any], event: tuple[str, str, str]
    ) -> BoardClock:
        counts_bytes = row in self._feeds_prefetch
        kept = event if self.aims.annotate else None
        return BoardClock(
            run.current().observed, dataset, self.board, row, counts_bytes, listeners, kept
        )


class Run(GraphWatch):
    """Opens the graph of a whole run, in the main process."""

    def open(self, node: IterNode[Any]) -> DatasetIterator[Any]:
        iterator = super().open(node)
        if self._row_of.get(id(node)) != 0:
            return iterator
        return WatchedOutput(iterator, self)

    def workers_of(self, row: int) -> list[list[StageTimes]]:
        """Return the measurements of each worker process of a stage."""
        folder = self.folders.get(row)
        if folder is None:
            return []
        boards = [read_file(path) for path in sorted(glob.glob(os.path.join(folder, "*.times")))]
        # A worker that is still starting has not added all of its stages.
        at_work = [board for board in boards if any(stage.elements for stage in board)]
        return at_work or [board for board in boards if board][:1]


class Branch(Watch):
    """Opens the graphs that an interleave or workers open while they run.

    Equal graphs share their rows, for example the graphs of a thousand files.
    """

    def __init__(
        self,
        aims: Aims,
        board: Board | None,
        row: int,
        folders: dict[int, str],
        feeds_prefetch: bool,
    ) -> None:
        self._aims = aims
        self._board = board
        self._feeds_prefetch = feeds_prefetch
        self._row = row
        self._folder = _folder_of(self) if board is not None and feeds_prefetch else ""
        if self._folder:
            folders[row] = self._folder
        self._rows: dict[tuple[str, ...], list[int]] = {}

    def open(self, node: IterNode[Any]) -> DatasetIterator[Any]:
        """Open the iterator of the output of such a graph."""
        context = run.current()
        if self._board is None:
            self._board = Board(os.path.join(self._folder, f"{os.getpid()}.times"))
            if self._aims.profile_workers:
                from wholegrain._observe import profiler

                profiler.serve(self._folder)
        look = tuple(_look(node))
        rows = self._rows.get(look)
        watch = GraphWatch(node, self._aims, self._board, self._row, rows, self._feeds_prefetch)
        self._rows[look] = watch.rows
        with run.entered(context.but(watch=watch)):
            return watch.open(node)

    def __getstate__(self) -> dict[str, Any]:
        """Return what a worker needs: what to track, and the folder to write to."""
        return {"aims": self._aims, "folder": self._folder}

    def __setstate__(self, state: dict[str, Any]) -> None:
        # A worker has its own board, on which its output has the first row.
        Branch.__init__(self, state["aims"], None, _OUTPUT, {}, feeds_prefetch=True)
        self._folder = state["folder"]


def _folder_of(branch: Branch) -> str:
    """Make a directory for the times of a stage's workers, removed together with `branch`."""
    folder = tempfile.mkdtemp(prefix="wholegrain-times-")
    weakref.finalize(branch, shutil.rmtree, folder, ignore_errors=True)
    return folder


def _reads_ahead(dataset: Any) -> bool:
    return getattr(dataset, "runs_ahead", None) == READERS


def _is_prefetch(dataset: Any) -> bool:
    return getattr(dataset, "runs_ahead", None) is not None


def _opens_later(dataset: Any) -> bool:
    """Return whether a stage opens the datasets upstream while it runs."""
    return bool(getattr(dataset, "opens_later", False))


def _has_name(iterator: DatasetIterator[Any]) -> bool:
    """Return whether an iterator defines `__str__`."""
    return type(iterator).__str__ is not DatasetIterator.__str__


def _is_ours(dataset: Any) -> bool:
    return isinstance(dataset, IterNode)


def _look(dataset: Any) -> Iterator[str]:
    """Yield what identifies the stages of a graph: equal graphs are measured as one."""
    yield type(dataset).__name__
    yield type(getattr(dataset, "_source", None)).__name__
    yield transform_name(getattr(dataset, "_transform", None))
    if not _opens_later(dataset):
        for parent in dataset.parents:
            yield from _look(parent)
        yield ""


class UserIterDataset(IterNode[T]):
    """Wraps an IterDataset of the user's, so that its iterators get clocks."""

    only_prefetches = True

    def __init__(self, dataset: Any) -> None:
        super().__init__((dataset,))
        self.dataset = dataset

    def __iter__(self) -> DatasetIterator[T]:
        watch = run.current().watch
        return self.open() if watch is None else watch.open(self)

    def open(self) -> DatasetIterator[T]:
        return self.dataset.__iter__()  # type: ignore[no-any-return]

    @property
    def _element_spec(self) -> Any:
        return self.dataset._element_spec

    def __str__(self) -> str:
        return str(self.dataset)
