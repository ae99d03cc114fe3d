"""Which part of a pipeline to read in a worker process of torch's DataLoader."""

import sys
from typing import Any

from wholegrain._graph import nodes

_WRAPPERS = ("accelerate", "transformers")
"""Packages whose datasets divide their attribute `dataset` among ranks, but not among workers."""


def share(dataset: Any) -> tuple[Any, int, int]:
    """Return what to read of a dataset here, and the number of this share and of all shares.

    If a dataset is passed to torch's DataLoader with workers, each worker iterates over it. Each of
    them then reads its share, as the workers of `mp_prefetch` do. Outside of such a worker it is
    all of the dataset. A torch dataset of the user that reads from ours has to divide it by itself,
    as torch demands of every dataset.
    """
    data = sys.modules.get("torch.utils.data")
    worker = None if data is None else data.get_worker_info()
    if worker is None or not _reads(worker.dataset, dataset):
        return dataset, 0, 1
    part = nodes.share_of(dataset, worker.id, worker.num_workers)
    return part, worker.id, worker.num_workers


def _reads(outer: Any, dataset: Any) -> bool:
    """Return whether torch reads `dataset`: itself, or as part of a wrapper of Hugging Face's."""
    while type(outer).__module__.partition(".")[0] in _WRAPPERS:
        outer = outer.dataset
    return outer is dataset
