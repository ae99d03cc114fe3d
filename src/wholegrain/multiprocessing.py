"""Worker processes: what starts them, how many there are, and shared-memory arrays."""

from wholegrain._graph.auto_prefetch import set_worker_count as set_worker_count
from wholegrain._workers.backend import Backend as Backend
from wholegrain._workers.backend import WorkerExit as WorkerExit
from wholegrain._workers.backend import WorkerHandle as WorkerHandle
from wholegrain._workers.backend import WorkerSpec as WorkerSpec
from wholegrain._workers.shared_array import SharedMemoryArray as SharedMemoryArray
from wholegrain._workers.shared_array import (
    SharedMemoryArrayMetadata as SharedMemoryArrayMetadata,
)
from wholegrain._workers.worker import run_worker as run_worker
from wholegrain.options import MultiprocessingOptions as MultiprocessingOptions
