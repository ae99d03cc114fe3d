"""Shared-memory arrays, and how many workers there are."""

from wholegrain._graph.auto_prefetch import set_worker_count as set_worker_count
from wholegrain._workers.shared_array import SharedMemoryArray as SharedMemoryArray
from wholegrain._workers.shared_array import (
    SharedMemoryArrayMetadata as SharedMemoryArrayMetadata,
)
from wholegrain.options import MultiprocessingOptions as MultiprocessingOptions
