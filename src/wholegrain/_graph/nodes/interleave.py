"""Interleaves several datasets, a few of which are open at a time."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from wholegrain._core.autotune_parameter import AutotuneParameter, plain_int
from wholegrain._core.difference import show
from wholegrain._core.types import T
from wholegrain._core.whole_number import whole_count
from wholegrain._graph import run
from wholegrain._graph.interleave_iterator import (
    InterleaveDatasetIterator as InterleaveDatasetIterator,
)
from wholegrain._graph.iter_dataset import IterDataset
from wholegrain._graph.iterator import DatasetIterator, run_ahead
from wholegrain._graph.kinds import AnyDataset, IterNode
from wholegrain._graph.map_dataset import MapDataset
from wholegrain._observe import outline
from wholegrain._state.spec import CheckpointSpec

if TYPE_CHECKING:
    from wholegrain._graph.tracing import Tracer


class InterleaveIterDataset(IterNode[T]):
    """One element of each of `cycle_length` datasets in turn.

    A dataset that ends is replaced by the next one when its turn comes again. If reading blocks,
    threads read the open datasets ahead and open the next ones in advance. That never changes the
    order.

    Args:
        datasets: A sequence of datasets, or a MapDataset whose elements are datasets. The latter
            creates each dataset when it is needed.
        cycle_length: How many datasets are open at a time. The order depends on it, so an
            `experimental.AutotuneParameter` keeps the value that it has now.
        num_make_iter_threads: How many threads may open datasets ahead.
        make_iter_buffer_size: How many datasets may be opened ahead.
        iter_buffer_size: How many elements of each dataset may be read ahead.
    """

    opens_later = True
    checkpoint = CheckpointSpec(
        fixed=("cycle_length",),
        free=("num_make_iter_threads", "make_iter_buffer_size", "iter_buffer_size"),
        inputs="datasets",
    )

    def __init__(
        self,
        datasets: Sequence[AnyDataset[T]] | MapDataset[AnyDataset[T]],
        *,
        cycle_length: int | AutotuneParameter,
        num_make_iter_threads: int = 1,
        make_iter_buffer_size: int = 1,
        iter_buffer_size: int = 1,
    ) -> None:
        super().__init__()
        _check_datasets(datasets)
        cycle_length = whole_count("cycle_length", plain_int(cycle_length))
        if cycle_length <= 0:
            raise ValueError(
                "`InterleaveIterDataset` needs at least one dataset open, but got"
                f" cycle_length={cycle_length}."
            )
        self._datasets = datasets
        self._cycle_length = cycle_length
        self._num_make_iter_threads = num_make_iter_threads
        self._make_iter_buffer_size = make_iter_buffer_size
        self._iter_buffer_size = iter_buffer_size

    def open(self) -> DatasetIterator[T]:
        return InterleaveDatasetIterator(self, run.current())

    @property
    def traced_inputs(self) -> Sequence[Any]:
        """The datasets, if they exist already."""
        return self._datasets if isinstance(self._datasets, (list, tuple)) else ()

    def _traced(self, tracer: Tracer) -> Any:
        traced = copy.copy(self)
        traced._datasets = _TracedDatasets(self._datasets, tracer)  # type: ignore[assignment]
        return traced

    @property
    def datasets(self) -> Sequence[Any] | MapDataset[Any]:
        return self._datasets

    @property
    def cycle_length(self) -> int:
        return min(self._cycle_length, len(self._datasets))

    def set_slice(self, sl: slice, sequential_slice: bool = False) -> None:
        """Keep a part of the datasets. This shards a worker's copy."""
        del sequential_slice  # Whole datasets are distributed in both cases.
        self._datasets = self._datasets[sl]

    def open_dataset(self, number: int, context: run.RunContext) -> DatasetIterator[T] | None:
        """Return an iterator of one of the datasets; None if it is missing."""
        dataset = self._datasets[number]
        if dataset is None:
            return None
        context.observed.ids.add_inside(self, dataset)
        options = context.options.merge(run.gather_options(dataset))
        with run.entered(context.but(options=options)):
            iterator: DatasetIterator[T] = dataset.__iter__()
        if iterator.moves_at_end and not isinstance(dataset, MapDataset):
            # When the iterator ends, the state to keep is the one of its last element.
            return run_ahead(iterator, 0)
        return iterator

    def run_ahead(self, iterator: DatasetIterator[T]) -> DatasetIterator[T]:
        """Return an iterator of the same elements, which threads read ahead."""
        if iterator.reads_ahead or not self._iter_buffer_size:
            return iterator
        return run_ahead(iterator, self._iter_buffer_size)

    @property
    def always_runs_ahead(self) -> bool:
        """Whether threads are used even if reading does not block."""
        return False

    @property
    def make_ahead(self) -> tuple[int, int]:
        """How many datasets are opened ahead, and by how many threads."""
        return self._make_iter_buffer_size, self._num_make_iter_threads

    @property
    def _element_spec(self) -> Any:
        first: Any = self._datasets[0]
        return first._element_spec

    def _label(self) -> str:
        return f"interleave ({outline.counted(len(self.datasets), 'dataset')})"

    def __str__(self) -> str:
        return (
            f"InterleaveIterDataset([{len(self._datasets)} datasets],"
            f" cycle_length={self._cycle_length})"
        )


class _TracedDatasets:
    """Datasets whose elements carry their origins, each made when it is opened."""

    def __init__(self, datasets: Sequence[Any] | MapDataset[Any], tracer: Tracer) -> None:
        self._datasets = datasets
        self._tracer = tracer

    def __len__(self) -> int:
        return len(self._datasets)

    def __getitem__(self, number: int) -> Any:
        dataset = self._datasets[number]
        if dataset is None:
            return None
        if isinstance(self._datasets, MapDataset):
            # It has just been made, so the graph could not give its sources different names.
            place = self._datasets.source_index(number)
            return self._tracer.inside(dataset, f"dataset {place}")
        return self._tracer(dataset)


def _check_datasets(datasets: Any) -> None:
    if not hasattr(datasets, "__len__") or not hasattr(datasets, "__getitem__"):
        raise TypeError(
            "`InterleaveIterDataset` takes a list of datasets, or a MapDataset whose elements are"
            f" datasets, but got {outline.label(datasets)}."
        )
    for dataset in datasets if isinstance(datasets, (list, tuple)) else ():
        if not isinstance(dataset, (IterDataset, MapDataset)):
            raise TypeError(
                f"`InterleaveIterDataset` takes datasets, but one of them is {show(dataset)}."
                " `MapDataset.source(...)` makes a dataset of a list or a source."
            )
