"""Tracing: another graph, whose elements carry their origins.

Nothing is logged while a pipeline runs. Where an element comes from is computed when somebody asks,
by a graph of the same transformations over `Traced` elements. Each dataset says in `_traced` what
its counterpart is; the defaults of the kinds are here.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from typing import Any

from wholegrain._core.origins import Origin, Traced
from wholegrain._core.types import Indices, State
from wholegrain._graph.chunks import for_each, read_singly
from wholegrain._graph.iterator import (
    DatasetIterator,
    StageIterator,
    check_state_of,
    go_to_state_of,
)
from wholegrain._graph.kinds import ElementTransform, IterNode, MapNode
from wholegrain._graph.map_dataset import MapDataset
from wholegrain._observe import outline


class UntraceableError(NotImplementedError):
    """A stage does not tell where its elements come from."""


class UnknownPositionError(Exception):
    """A source in the middle of its elements does not know how many came before."""


class Tracer:
    """Makes the graph whose elements carry their origins.

    Args:
        dataset: The whole pipeline, in which sources have different names.
    """

    def __init__(self, dataset: Any) -> None:
        self._names = names_of_sources(dataset)
        self._made: dict[int, tuple[Any, Any]] = {}  # With the dataset, so that its id stays taken.

    def __call__(self, dataset: Any) -> Any:
        """Return the counterpart of a dataset."""
        if id(dataset) not in self._made:
            traced = getattr(dataset, "_traced", None)
            made = self.iterable(dataset) if traced is None else traced(self)
            self._made[id(dataset)] = dataset, made
        return self._made[id(dataset)][1]

    def parents(self, dataset: Any) -> list[Any]:
        """Return the counterparts of the parents of a dataset."""
        return [self(parent) for parent in dataset.parents]

    def passing(self, dataset: Any) -> Any:
        """Return the counterpart of a dataset that returns elements of its parents as they are."""
        return dataset.with_parents(self.parents(dataset))

    def inside(self, dataset: Any, where: str) -> Any:
        """Return the counterpart of a dataset that was made while the pipeline runs."""
        tracer = Tracer(dataset)
        tracer._names = {key: f"{where}: {name}" for key, name in tracer._names.items()}
        return tracer(dataset)

    def made(self, dataset: Any, name: str) -> Any:
        """Return the counterpart of a dataset that a source is made of; all parts have its name."""
        tracer = Tracer(dataset)
        tracer._names = dict.fromkeys(tracer._names, name)
        return tracer(dataset)

    def name(self, dataset: Any) -> str:
        """Return the name of a source."""
        return self._names.get(id(dataset)) or label_of(dataset)

    # The defaults of the kinds.

    def elements(self, dataset: Any) -> Any:
        """Return the counterpart of a dataset that computes each element from its parent's."""
        return _TracedElements(dataset, *self.parents(dataset))

    def source(self, dataset: Any, keeps_none: bool = False) -> Any:
        """Return the counterpart of a random-access source.

        Args:
            dataset: The source.
            keeps_none: Whether None is an element like any other.
        """
        return _TracedSource(dataset, self.name(dataset), keeps_none)

    def indexable(self, dataset: Any) -> Any:
        """Return the counterpart of a MapDataset of the user's."""
        return _Watched(dataset, self.parents(dataset)) if dataset.parents else self.source(dataset)

    def iterable(self, dataset: Any) -> Any:
        """Return the counterpart of an IterDataset of the user's."""
        parents = getattr(dataset, "parents", ())
        if not parents:
            return _TracedIterSource(dataset, self.name(dataset))
        if getattr(dataset, "only_chooses", False):
            return self.passing(dataset)
        kind = type(dataset).__name__
        raise UntraceableError(
            f"{kind} does not tell which elements of its parents its own elements are made from. If"
            " it returns them as they are, and only chooses which ones in which order, set"
            f" `only_chooses = True` in the class {kind}. Else make it a MapDataset, or use `map`,"
            " `filter`, `batch` and the other transformations."
        )


def names_of_sources(dataset: Any) -> dict[int, str]:
    """Return a name for each source of a pipeline, by the id of the source; all are different."""
    names: dict[int, str] = {}
    taken: dict[str, int] = {}
    for source in sources_of(dataset):
        if id(source) not in names:
            label = label_of(source)
            taken[label] = taken.get(label, 0) + 1
            names[id(source)] = label if taken[label] == 1 else f"{label} ({taken[label]})"
    return names


def sources_of(dataset: Any) -> Iterator[Any]:
    """Yield the datasets of a pipeline that have no parents."""
    inside = getattr(dataset, "traced_inputs", None)
    inputs = getattr(dataset, "parents", ()) if inside is None else inside
    if not inputs and inside is None:
        yield dataset
    for one in inputs:
        yield from sources_of(one)


def label_of(source: Any) -> str:
    """Return the name of a source that the user gave, or its label."""
    return getattr(source, "_shown_name", None) or outline.label(source)


class _TracedSource(MapNode[Traced]):
    """The elements of a source, with their positions in it."""

    def __init__(self, dataset: MapDataset[Any], name: str, keeps_none: bool) -> None:
        super().__init__()
        self._dataset = self.traced_from = dataset
        self._name = name
        self._keeps_none = keeps_none
        source = getattr(dataset, "_source", None)
        self._where_in_files = getattr(source, "_where", None)

    def __len__(self) -> int:
        return len(self._dataset)

    @property
    def sparse(self) -> bool:
        return self._dataset.sparse

    @property
    def chunk_hint(self) -> int:
        return self._dataset.chunk_hint

    def getitem(self, index: int) -> Traced | None:
        return self._with_origin(self._dataset.getitem(index), index)

    def getitems(self, indices: Indices) -> Sequence[Traced | None]:
        positions = indices.tolist()
        return for_each(self._pass, self, positions, self._dataset.getitems(indices), positions)

    def _pass(self, results: list[Any], elements: Sequence[Any], indices: list[int]) -> None:
        results.extend(map(self._with_origin, elements, indices))

    def _with_origin(self, element: Any, index: int) -> Traced | None:
        if element is None and not self._keeps_none:
            return None
        return Traced(element, (self.origin_at(index),))

    def origin_at(self, index: int) -> Origin:
        """Return where the element at an index comes from, without reading it."""
        record, epoch = self._dataset._record_at(index)
        path, path_index = None, None
        if self._where_in_files is not None:
            path, path_index = self._where_in_files(record)
        return Origin(self._name, path, record, epoch, path_index=path_index)

    def __str__(self) -> str:
        return str(self._dataset)


class _TracedElements(ElementTransform[Traced]):
    """The results of a transformation of elements, with the origins of those elements."""

    def __init__(self, dataset: ElementTransform[Any], parent: MapDataset[Any]) -> None:
        super().__init__(parent, dataset._transform)
        self._dataset = dataset

    @property
    def sparse(self) -> bool:
        return self._dataset.sparse

    def apply_to(self, element: Traced, index: int) -> Traced | None:
        value = self._dataset.apply_to(element.value, index)
        return None if value is None else element.but(value)

    def __str__(self) -> str:
        return str(self._dataset)


class _Watched(MapNode[Traced]):
    """The elements of a user's MapDataset. Their origins are those of all that it reads for them.

    It reads its parents in the thread that asks for an element.
    """

    def __init__(self, dataset: MapDataset[Any], parents: list[MapDataset[Any]]) -> None:
        super().__init__(parents)
        self._reads = _Reads()
        self._dataset = dataset.with_parents([_Seen(parent, self._reads) for parent in parents])

    def __len__(self) -> int:
        return len(self._dataset)

    @property
    def sparse(self) -> bool:
        return self._dataset.sparse

    def getitem(self, index: int) -> Traced | None:
        before, self._reads.origins = self._reads.origins, {}
        try:
            value = self._dataset.getitem(index)
            return None if value is None else Traced(value, tuple(self._reads.origins))
        finally:
            self._reads.origins = before

    def getitems(self, indices: Indices) -> Sequence[Traced | None]:
        return read_singly(self.getitem, indices.tolist(), self, indices)  # type: ignore[no-any-return]

    def __str__(self) -> str:
        return str(self._dataset)


class _Reads(threading.local):
    """The origins of what this thread has read, in order."""

    def __init__(self) -> None:
        self.origins: dict[Origin, None] = {}


class _Seen(MapNode[Any]):
    """The values of traced elements. It notes the origins of those that are read."""

    def __init__(self, parent: MapDataset[Any], reads: _Reads) -> None:
        super().__init__(parent)
        self._reads = reads

    def __len__(self) -> int:
        return len(self._parent)

    def getitem(self, index: int) -> Any:
        traced = self._parent.getitem(index)
        if traced is None:
            return None
        self._reads.origins.update(dict.fromkeys(traced.origins))
        return traced.value

    def getitems(self, indices: Indices) -> Sequence[Any]:
        return read_singly(self.getitem, indices.tolist(), self, indices)  # type: ignore[no-any-return]


class _TracedIterSource(IterNode[Traced]):
    """The elements of a source that is read in order."""

    def __init__(self, dataset: Any, name: str) -> None:
        super().__init__()
        self._dataset = dataset
        self._name = name

    def open(self) -> DatasetIterator[Traced]:
        paths: Any = getattr(self._dataset, "_shown_paths", ())
        path = paths[0] if len(paths) == 1 else None
        return _TracedSourceIterator(self._dataset.__iter__(), self._name, path)

    def __str__(self) -> str:
        return str(self._dataset)


class _TracedSourceIterator(StageIterator[Traced]):
    """A position in a source, with the source's own states."""

    closes_when_dropped = False

    def __init__(self, iterator: DatasetIterator[Any], name: str, path: str | None) -> None:
        super().__init__((iterator,))
        self._name = name
        self._path = path
        self._where_last = getattr(iterator, "_where_last", None)
        self._count: int | None = 0
        self._start: Any = None if self._where_last else iterator.get_state()

    def __next__(self) -> Traced:
        index = None if self._where_last else self._next_index()
        element = next(self._parent)
        path = self._path
        if self._where_last is not None:
            path, index = self._where_last()
        elif self._count is not None:
            self._count += 1
        in_file = None if path is None else index
        return Traced(element, (Origin(self._name, path, index or 0, path_index=in_file),))

    def _next_index(self) -> int:
        """Return how many elements come before the next one."""
        try:
            return self._parent._get_next_index()  # type: ignore[no-any-return]
        except (NotImplementedError, AttributeError):
            if self._count is None:
                raise UnknownPositionError(self._name) from None
            return self._count

    def get_state(self) -> State:
        return self._parent.get_state()  # type: ignore[no-any-return]

    def check_state(self, state: State) -> None:
        check_state_of(self._parent, state)

    def go_to(self, state: State) -> None:
        go_to_state_of(self._parent, state)
        self._count = 0 if state == self._start else None
