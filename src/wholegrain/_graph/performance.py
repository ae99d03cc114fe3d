"""How many workers and how much read-ahead fit into memory."""

import dataclasses
import itertools
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from wholegrain._core.log import logger
from wholegrain._graph.nodes.read_ahead import PrefetchIterDataset
from wholegrain._read import machine
from wholegrain.options import MultiprocessingOptions, ReadOptions

_MIB = 1 << 20
_LARGEST_BUFFER = 1000


@dataclasses.dataclass(slots=True)
class PerformanceConfig:
    """The suggestion of `pick_performance_config`.

    Args:
        multiprocessing_options: For `mp_prefetch`.
        read_options: For `to_iter_dataset`.
    """

    multiprocessing_options: MultiprocessingOptions | None = None
    read_options: ReadOptions | None = None


def pick_performance_config(
    ds: Any,
    *,
    ram_budget_mb: float | None,
    max_workers: int | None,
    max_buffer_size: int | None,
    samples_to_check: int = 5,
) -> PerformanceConfig:
    """Suggest a number of workers and a read-ahead, from the size of a few elements.

    The suggestion depends on the machine. If the number of workers changes the order of the
    elements, save it with the experiment.

    Args:
        ds: The pipeline, a MapDataset or an IterDataset.
        ram_budget_mb: How much memory the buffers may take; None for what is available now, in
            the container if there is one.
        max_workers: The maximum number of workers; None for the number of processors that this
            process may use.
        max_buffer_size: The maximum number of elements to read ahead; None for 1000.
        samples_to_check: How many elements to measure.
    """
    budget = machine.available_memory() / _MIB if ram_budget_mb is None else ram_budget_mb
    most_workers = max_workers or machine.available_cpus()
    largest_buffer = max_buffer_size or _LARGEST_BUFFER
    size = _average_mib([ds], samples_to_check)
    workers = min(int(budget / size), most_workers) if size else most_workers
    sources = _read_datasets(ds)
    source_size = _average_mib(sources, samples_to_check)
    if source_size:
        buffer = min(int(budget / (source_size * len(sources))), largest_buffer)
    else:
        buffer = largest_buffer
    return PerformanceConfig(
        multiprocessing_options=MultiprocessingOptions(num_workers=max(1, workers)),
        read_options=ReadOptions(prefetch_buffer_size=max(1, buffer)),
    )


def _average_mib(datasets: Sequence[Any], samples: int) -> float:
    """Return the average size of a few elements of each dataset; 0 if there are too few."""
    sizes: list[float] = []
    for dataset in datasets:
        iterator = iter(dataset)
        each = -(-samples // len(datasets))
        sizes += [_nbytes(element) / _MIB for element in itertools.islice(iterator, each)]
        iterator.close()
    if len(sizes) < samples:
        logger().warning(
            "There are only %d elements to estimate sizes from, fewer than %d, so the largest"
            " allowed values are used.",
            len(sizes),
            samples,
        )
        return 0.0
    return sum(sizes) / len(sizes)


def _nbytes(element: Any) -> int:
    if isinstance(element, np.ndarray):
        return element.nbytes
    if isinstance(element, Mapping):
        return sum(map(_nbytes, element.values()))
    if isinstance(element, (list, tuple)):
        return sum(map(_nbytes, element))
    return sys.getsizeof(element)


def _read_datasets(ds: Any) -> list[Any]:
    """Return the random-access datasets that the pipeline reads in order."""
    if isinstance(ds, PrefetchIterDataset):
        return list(ds.parents)
    return [found for parent in getattr(ds, "parents", ()) for found in _read_datasets(parent)]
