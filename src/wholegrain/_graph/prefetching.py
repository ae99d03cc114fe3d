"""The whole pipeline in several threads or processes, each on its share of the data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from wholegrain._core.types import T
from wholegrain._graph import rewrite, run
from wholegrain._graph.iter_dataset import IterDataset
from wholegrain._graph.iterator import DatasetIterator
from wholegrain._graph.nodes.interleave import InterleaveIterDataset
from wholegrain._graph.thread_iterator import ThreadPrefetchDatasetIterator
from wholegrain.options import MultiprocessingOptions


class ShardedIterDataset(InterleaveIterDataset[T]):
    """Shares of a pipeline, in turn: what several workers make of it.

    Seeds and specs pass through it as if the workers were not there.
    """

    only_prefetches = True

    def __init__(
        self, parent: IterDataset[T], num_workers: int, buffer_size: int, sequential: bool
    ) -> None:
        super().__init__(range(num_workers), cycle_length=num_workers, iter_buffer_size=buffer_size)
        self._parents = (parent,)
        self._sequential = sequential
        self._num_workers = num_workers

    def share(self, number: int) -> IterDataset[T]:
        """Return what one worker runs."""
        return rewrite.shard(self._parent, number, self._num_workers, self._sequential)

    def context_of(self, number: int, context: run.RunContext) -> run.RunContext:
        """Return the run as one worker sees it."""
        return run.RunContext(
            options=context.options, worker_index=number, worker_count=self._num_workers
        )

    def run_ahead(self, iterator: DatasetIterator[T]) -> DatasetIterator[T]:
        return ThreadPrefetchDatasetIterator(iterator, self._iter_buffer_size)

    @property
    def always_runs_ahead(self) -> bool:
        return True

    @property
    def make_ahead(self) -> tuple[int, int]:
        return 0, 0  # All are open from the start.

    @property
    def _element_spec(self) -> Any:
        return self._parent._element_spec

    def set_slice(self, sl: slice, sequential_slice: bool = False) -> None:
        raise ValueError(
            "A pipeline that already runs in several workers cannot be dealt out once more. Use"
            " one prefetch with all the workers."
        )


class MultithreadPrefetchIterDataset(ShardedIterDataset[T]):
    """Shares of a pipeline, each run by a thread."""

    def open_dataset(self, number: int, context: run.RunContext) -> DatasetIterator[T] | None:
        with run.entered(self.context_of(number, context)):
            return self.share(number).__iter__()

    def __str__(self) -> str:
        return f"MultithreadPrefetchIterDataset(num_threads={self._num_workers})"


def multithread_prefetch(
    ds: IterDataset[T], num_threads: int, buffer_size: int, sequential_slice: bool = False
) -> IterDataset[T]:
    """Run a pipeline in several threads of this process, each on its share of the data.

    Args:
        ds: The pipeline.
        num_threads: How many threads; 0 returns `ds` itself.
        buffer_size: How many elements each may hold ready.
        sequential_slice: Whether each thread reads a contiguous part of the sources instead of
            every n-th element.
    """
    if num_threads < 0:
        raise ValueError(f"`num_threads` cannot be negative, but got {num_threads}.")
    if num_threads == 0:
        return ds
    rewrite.check_can_shard(ds, num_threads, sequential_slice)
    return MultithreadPrefetchIterDataset(ds, num_threads, buffer_size, sequential_slice)


def process_prefetch(
    ds: IterDataset[T],
    options: MultiprocessingOptions | None,
    worker_init_fn: Callable[[int, int], None] | None,
    sequential_slice: bool,
) -> IterDataset[T]:
    """Run a pipeline in several processes; see `IterDataset.mp_prefetch`."""
    options = options or MultiprocessingOptions(num_workers=10)
    if options.num_workers == 0:
        return ds
    raise NotImplementedError(
        "`mp_prefetch` with workers is not there yet. Use `multithread_prefetch`, or"
        " `MultiprocessingOptions(num_workers=0)`."
    )
