"""Keeps elements on disk, so that they are computed once."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from wholegrain._core.byte_limit import byte_limit
from wholegrain._core.failure import PartlyFailed
from wholegrain._core.interruption import is_interruption
from wholegrain._core.types import IndexT, Indices, T
from wholegrain._disk_cache import folder
from wholegrain._disk_cache.store import MISSING, Store, index_bytes, open_store
from wholegrain._graph.chunks import for_each
from wholegrain._graph.kinds import ElementTransform, IndexTransform, OneParentMapNode
from wholegrain._graph.map_dataset import MapDataset
from wholegrain._observe import outline
from wholegrain._state.data_version import data_version
from wholegrain._state.fingerprint import fingerprint
from wholegrain._state.spec import CheckpointSpec

if TYPE_CHECKING:
    from wholegrain._graph.tracing import Tracer

_VERSION = 1


class DiskCacheMapDataset(OneParentMapNode[T]):
    """The parent's elements, read from disk if they were computed before.

    Args:
        parent: The dataset. Its elements have to be the same in each epoch.
        path: The folder of the cache.
        max_bytes: How large the folder may become.
    """

    keeps_size = True
    only_prefetches = True  # It changes no element, and therefore no seed downstream.
    checkpoint = CheckpointSpec(free=("path",), position="parent")

    def __init__(
        self,
        parent: MapDataset[T],
        path: str | os.PathLike[str],
        max_bytes: str | float | None,
    ) -> None:
        super().__init__(parent)
        _check_parent(parent)
        self._path = os.path.abspath(os.fspath(path))
        self._max_bytes = max_bytes
        self._length = len(parent)
        if max_bytes is not None:
            limit, least = byte_limit(max_bytes, self._path), index_bytes(self._length)
            if limit < least:
                raise ValueError(
                    f"`max_bytes` is {limit:,}, but already the index of {self._length:,} elements"
                    f" takes {least:,} bytes."
                )
        folder.check(self._path)
        self._name = _name_of(parent)
        self._described = {"length": self._length, "stages": list(_stage_labels(parent))[::-1]}
        self._opened: tuple[int, Store] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_opened": None}

    @property
    def store(self) -> Store:
        """The elements on disk, opened in this process."""
        opened = self._opened
        pid = os.getpid()
        if opened is None or opened[0] != pid:
            store = open_store(
                self._path, self._name, self._length, self._described, self._max_bytes
            )
            opened = self._opened = (pid, store)
        return opened[1]

    def getitem(self, index: int) -> T | None:
        position = index % self._length if self._length else index
        store = self.store
        element: Any = store.get(position) if self._length else MISSING
        if element is MISSING:
            element = self.parent.getitem(position)
            self._keep(store, position, element)
        return element  # type: ignore[no-any-return]

    def getitems(self, indices: Indices) -> Sequence[T | None]:
        if not self._length:
            return self.parent.getitems(indices)
        positions = indices % self._length
        store = self.store
        elements = store.get_many(positions)
        absent = [number for number, element in enumerate(elements) if element is MISSING]
        if not absent:
            return elements
        # An element that occurs twice is computed twice, as without a cache.
        missing = positions[np.array(absent)]
        computed = self.parent.getitems(missing)
        if store.keeps_more:
            computed = for_each(self._keep_each, self, missing, computed, missing.tolist())
        for number, element in zip(absent, computed, strict=True):
            elements[number] = element
        return PartlyFailed(elements) if type(computed) is PartlyFailed else elements

    def _traced(self, tracer: Tracer) -> Any:
        # What is on disk has no origins, so the elements are computed again.
        return _FirstEpoch(*tracer.parents(self))

    def _keep_each(self, results: list[Any], elements: Sequence[Any], at: list[int]) -> None:
        store = self.store
        for element, position in zip(elements, at, strict=True):
            self._keep(store, position, element)
            results.append(element)

    def _keep(self, store: Store, position: int, element: Any) -> None:
        try:
            store.put(position, element)
        except Exception as error:
            if is_interruption(error):
                raise
            raise TypeError(
                f"`cache` cannot keep element {position}, a {type(element).__name__}: it cannot be"
                f" pickled ({type(error).__name__}: {error}). Call `cache` before the stage that"
                " makes such elements."
            ) from error

    def part(self, share: str, parent: MapDataset[T]) -> DiskCacheMapDataset[T]:
        """Return the cache of a worker's part of the parent, whose elements have other indices."""
        part = self.with_parents([parent])
        assert isinstance(part, DiskCacheMapDataset)
        part._length = len(parent)
        part._name = _digest(f"{self._name} {share}")
        part._described = {**self._described, "length": part._length, "share": share}
        part._opened = None
        return part

    @property
    def keeps_indices(self) -> bool:
        """Whether indices are those of the source, because all stages make one element of each."""
        node: MapDataset[Any] = self.parent
        while isinstance(node, ElementTransform):
            node = node.parent
        return not node.parents

    def _label(self) -> str:
        return f"cache({outline.short_path(self._path)})"

    def __str__(self) -> str:
        return f"DiskCacheMapDataset(path={self._path!r})"


def _check_parent(parent: MapDataset[Any]) -> None:
    """Raise if the elements are not the same in each epoch."""
    for node in _upstream(parent):
        if node.same_each_epoch:
            continue
        stage = outline.plain_label(node)
        method = stage.partition("(")[0].strip()
        where = f"before it: `ds.cache(path).{method}(...)`"
        if len(node.parents) > 1:
            where = "on each of the datasets that it reads from"
        raise ValueError(
            f"`cache` keeps the elements of one epoch, but `{stage}` upstream of it makes other"
            f" ones in each epoch. Call `cache` {where}."
        )
    if outline.is_infinite(parent):
        raise ValueError("`cache` cannot keep an infinite dataset. Call `repeat` after `cache`.")


def _upstream(dataset: MapDataset[Any]) -> Iterator[MapDataset[Any]]:
    found = [dataset]
    while found:
        dataset = found.pop()
        yield dataset
        found += dataset.parents


def _stage_labels(dataset: Any) -> Iterator[str]:
    while True:
        yield outline.label(dataset)
        if len(dataset.parents) != 1:
            return
        (dataset,) = dataset.parents


def _name_of(parent: MapDataset[Any]) -> str:
    """Return a name for the elements of a pipeline: of its settings, code, data and files."""
    from wholegrain._workers.code_hash import code_hash  # Imports cloudpickle.

    sources = [node for node in _upstream(parent) if not node.parents]
    versions = [data_version(getattr(source, "source", source)) for source in sources]
    about = json.dumps([_VERSION, fingerprint(parent), versions], sort_keys=True)
    try:
        code = code_hash(parent)
    except Exception as error:
        if is_interruption(error):
            raise
        raise TypeError(
            "`cache` needs a pipeline that can be pickled, as worker processes do: that identifies"
            f" the data and the functions that elements come from. {type(error).__name__}: {error}"
        ) from error
    return _digest(f"{about} {code}")


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


class _FirstEpoch(IndexTransform[T]):
    """The elements of the first epoch in every epoch, as a cache has them."""

    checkpoint = CheckpointSpec(position="parent")

    def parent_index(self, index: IndexT) -> IndexT:
        return index % len(self.parent)
