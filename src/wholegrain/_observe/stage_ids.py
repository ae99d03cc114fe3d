"""The ids of the stages of a pipeline, the same in the main process and in workers."""

from __future__ import annotations

import functools
import threading
import weakref
from collections.abc import Iterator
from typing import Any, NamedTuple

from wholegrain._observe import outline
from wholegrain._observe.shown import READERS, runs_ahead_of

_Table = dict[int, tuple[Any, str]]
"""By `id()` of a dataset: a weak reference to it, and the id of a stage."""


class About(NamedTuple):
    """A stage that is not part of the graph: its label, and what runs the stages upstream."""

    label: str
    ahead: str | None


IMPLICIT_READER = About("to_iter_dataset", READERS)
"""The stage that reads a MapDataset which an IterDataset iterates over."""


class StageIds:
    """The ids of stages.

    The id of a stage is its path in the graph: "0" is the output, "0.0" its first parent. The
    datasets that a stage opens while it runs follow its parents. Equal ones share their ids, for
    example the datasets of a thousand files.

    Attributes:
        inside: The stages that were opened while the pipeline ran, by their ids.
        ahead: The ids of the stages that run ahead.
    """

    def __init__(self) -> None:
        self.inside: dict[str, About] = {}
        self.ahead: set[str] = set()
        self._names: _Table = {}
        self._readers: _Table = {}  # The implicit readers of MapDatasets.
        self._numbers: dict[str, int] = {}
        self._opened: dict[tuple[str, ...], str] = {}
        self._lock = threading.Lock()

    def add(self, dataset: Any) -> None:
        """Add all stages of a graph, given its output."""
        self._add(dataset, "0", is_inside=False)

    def _add(self, dataset: Any, name: str, is_inside: bool) -> None:
        if self._find(self._names, dataset) is not None:
            return  # Several stages read from it.
        self._put(self._names, dataset, name)
        ahead = runs_ahead_of(dataset)
        if ahead is not None:
            self.ahead.add(name)
        if is_inside and name not in self.inside:
            self.inside[name] = About(outline.plain_label(dataset), ahead)
        for child, parent, is_read in inputs_of(dataset, name):
            self._add_input(child, parent, is_read, is_inside)

    def _add_input(self, name: str, dataset: Any, is_read: bool, is_inside: bool) -> None:
        if is_read:
            self._put(self._readers, dataset, name)
            self.ahead.add(name)
            if is_inside:
                self.inside[name] = IMPLICIT_READER
            name = f"{name}.0"
        self._add(dataset, name, is_inside)

    def add_inside(self, opener: Any, dataset: Any) -> None:
        """Add the stages of a dataset that the stage `opener` opens while it runs."""
        consumer = self.of(opener)
        look = (consumer, *_look(dataset))
        with self._lock:
            name = self._opened.get(look)
            if name is None:
                number = sum(one[0] == consumer for one in self._opened) + len(opener.parents)
                name = self._opened[look] = f"{consumer}.{number}"
            self._add_input(name, dataset, hasattr(dataset, "getitems"), is_inside=True)

    def add_share(self, share: Any, whole: Any) -> None:
        """Give the stages of a worker's shard the ids of the stages of the whole pipeline."""
        name = self._find(self._names, whole)
        if name is None or share is whole:
            return
        self._put(self._names, share, name)
        reader = self._find(self._readers, whole)
        if reader is not None:
            self._put(self._readers, share, reader)
        parents = getattr(share, "parents", ())
        if type(share) is not type(whole) or len(parents) != len(whole.parents):
            for parent in parents:  # Sharding inserted a slice here.
                self.add_share(parent, whole)
            return
        for part, parent in zip(parents, whole.parents, strict=True):
            self.add_share(part, parent)

    def of(self, dataset: Any) -> str:
        """Return the id of a stage. A stage that a user's class opens has its label as its id."""
        name = self._find(self._names, dataset)
        if name is None and runs_ahead_of(dataset) == READERS:
            name = self._find(self._readers, dataset.parents[0])
        return name or f"inside {outline.plain_label(dataset)}"

    def number_of(self, name: str) -> int:
        """Return the number of a stage: 0 for the output; then the stages upstream of it."""
        return self._numbers.get(name, 0)

    def passes_on(self, dataset: Any) -> bool:
        """Return whether a stage is a slice that sharding has inserted downstream of another."""
        parents = getattr(dataset, "parents", ())
        return any(self.of(parent) == self.of(dataset) for parent in parents)

    def feeds_prefetch(self, name: str) -> bool:
        """Return whether a stage runs ahead, or is read by one that does."""
        return name in self.ahead or name.rpartition(".")[0] in self.ahead

    def _put(self, table: _Table, dataset: Any, name: str) -> None:
        key = id(dataset)
        self._numbers.setdefault(name, len(self._numbers))
        try:
            # Datasets are not kept alive: an interleave may open any number of them.
            reference: Any = weakref.ref(dataset, functools.partial(_forget, table, key))
        except TypeError:  # A class of the user's that has `__slots__`.
            reference = functools.partial(_same, dataset)
        table[key] = reference, name

    def _find(self, table: _Table, dataset: Any) -> str | None:
        known, name = table.get(id(dataset), (None, None))
        return name if known is not None and known() is dataset else None


def _same(dataset: Any) -> Any:
    return dataset


def _forget(table: _Table, key: int, reference: Any) -> None:
    if table.get(key, (None,))[0] is reference:
        del table[key]


def inputs_of(dataset: Any, name: str) -> Iterator[tuple[str, Any, bool]]:
    """Yield the id and the dataset of each input of a stage, and whether it is read implicitly.

    Iterating over a MapDataset reads it ahead: then the id is that of the implicit reader.
    """
    is_read = not hasattr(dataset, "getitems") and runs_ahead_of(dataset) != READERS
    for number, parent in enumerate(getattr(dataset, "parents", ())):
        yield f"{name}.{number}", parent, is_read and hasattr(parent, "getitems")


def _look(dataset: Any) -> Iterator[str]:
    """Yield what identifies the stages of a graph: equal graphs are measured as one."""
    transform = getattr(dataset, "_transform", None)
    code = getattr(transform, "__code__", None)
    yield type(dataset).__name__
    yield type(getattr(dataset, "_source", None)).__name__
    yield f"{outline.function_name(transform)}:{getattr(code, 'co_firstlineno', '')}"
    for parent in getattr(dataset, "parents", ()):
        yield from _look(parent)
    yield ""
