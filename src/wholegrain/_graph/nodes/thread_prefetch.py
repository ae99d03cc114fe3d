"""A pipeline run ahead by a thread."""

from __future__ import annotations

from wholegrain._core.types import T
from wholegrain._graph.iterator import DatasetIterator
from wholegrain._graph.kinds import AnyDataset, OneParentIterNode
from wholegrain._graph.thread_iterator import ThreadPrefetchDatasetIterator, checked_buffer_size
from wholegrain._state.spec import CheckpointSpec


class ThreadPrefetchIterDataset(OneParentIterNode[T]):
    """The parent, run ahead by a thread of its own.

    Args:
        parent: What to run ahead.
        prefetch_buffer_size: How many finished elements may wait; 0 does nothing.
    """

    checkpoint = CheckpointSpec(free=("prefetch_buffer_size",), position="parent")

    def __init__(self, parent: AnyDataset[T], *, prefetch_buffer_size: int) -> None:
        super().__init__(parent)
        self._prefetch_buffer_size = checked_buffer_size(prefetch_buffer_size)

    def open(self) -> DatasetIterator[T]:
        return ThreadPrefetchDatasetIterator(self._parent.__iter__(), self._prefetch_buffer_size)

    def __str__(self) -> str:
        return f"ThreadPrefetchIterDataset(prefetch_buffer_size={self._prefetch_buffer_size})"
