"""A pipeline run ahead by a thread."""

from __future__ import annotations

from wholegrain._core.types import T
from wholegrain._graph.iterator import DatasetIterator
from wholegrain._graph.kinds import AnyDataset, OneParentIterNode
from wholegrain._graph.stage import Stage
from wholegrain._graph.thread_iterator import ThreadPrefetchDatasetIterator, checked_buffer_size
from wholegrain._observe.shown import THREAD


class ThreadPrefetchIterDataset(OneParentIterNode[T]):
    """The parent, run ahead by a thread of its own.

    Args:
        parent: What to run ahead.
        prefetch_buffer_size: How many finished elements may wait; 0 does nothing.
    """

    keeps_size = True
    runs_ahead = THREAD
    _stage = Stage(free=("prefetch_buffer_size",), position="parent")

    def __init__(self, parent: AnyDataset[T], *, prefetch_buffer_size: int) -> None:
        super().__init__(parent)
        self._prefetch_buffer_size = checked_buffer_size(prefetch_buffer_size)

    def open(self) -> DatasetIterator[T]:
        return ThreadPrefetchDatasetIterator(self._parent.__iter__(), self._prefetch_buffer_size)

    def _label(self) -> str:
        return f"thread prefetch (buffer {self._prefetch_buffer_size})"

    def _about(self, name: str) -> str:
        ahead = self._prefetch_buffer_size
        return f"{name}: a thread runs everything upstream, up to {ahead} elements ahead."

    def __str__(self) -> str:
        return f"ThreadPrefetchIterDataset(prefetch_buffer_size={self._prefetch_buffer_size})"
