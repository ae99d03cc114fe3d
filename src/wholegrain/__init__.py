"""Data loading for machine-learning training: Grain's API, bit for bit, many times faster.

Example:
    >>> import wholegrain as grain
    >>> ds = grain.MapDataset.source(records).shuffle(seed=1).map(decode).batch(32)
    >>> for batch in ds:
    ...     print(batch)
"""

import os
from typing import TYPE_CHECKING

from wholegrain._core import lazy
from wholegrain._core.config import config as config
from wholegrain._graph.iter_dataset import IterDataset as IterDataset
from wholegrain._graph.iterator import DatasetIterator as DatasetIterator
from wholegrain._graph.map_dataset import MapDataset as MapDataset
from wholegrain.compat import keras_hook as _keras_hook
from wholegrain.compat import torch_hook as _torch_hook
from wholegrain.options import MultiprocessingOptions as MultiprocessingOptions
from wholegrain.options import ReadOptions as ReadOptions

if TYPE_CHECKING:
    from wholegrain import checkpoint as checkpoint
    from wholegrain import constants as constants
    from wholegrain import experimental as experimental
    from wholegrain import multiprocessing as multiprocessing
    from wholegrain import samplers as samplers
    from wholegrain import schedule as schedule
    from wholegrain import sharding as sharding
    from wholegrain import sources as sources
    from wholegrain import testing as testing
    from wholegrain import torch as torch
    from wholegrain import transforms as transforms
    from wholegrain._core.origins import Origin as Origin
    from wholegrain._core.tolerated import FailedRecord as FailedRecord
    from wholegrain._graph.quarantine import quarantine as quarantine
    from wholegrain._graph.tolerance import TooManyErrorsError as TooManyErrorsError
    from wholegrain._loader.data_loader import DataLoader as DataLoader
    from wholegrain._loader.data_loader import load as load
    from wholegrain._loader.iterator import DataLoaderIterator as DataLoaderIterator
    from wholegrain._observe.dashboard import dashboard as dashboard
    from wholegrain.compat import install_as_grain as install_as_grain
    from wholegrain.compat import load_ipython_extension as load_ipython_extension
    from wholegrain.compat import unload_ipython_extension as unload_ipython_extension
    from wholegrain.python import Batch as Batch
    from wholegrain.python import BatchTransform as BatchTransform
    from wholegrain.python import GrainCheckpointHandler as GrainCheckpointHandler
    from wholegrain.python import GrainCheckpointRestore as GrainCheckpointRestore
    from wholegrain.python import GrainCheckpointSave as GrainCheckpointSave
    from wholegrain.record import Record as Record
    from wholegrain.record import RecordMetadata as RecordMetadata

__version__ = "0.1.0"
__version_info__ = tuple(int(part) for part in __version__.split("."))

# Imported when first used, so that a program only pays for the imports that it needs.
_MODULES = (
    "checkpoint",
    "constants",
    "experimental",
    "multiprocessing",
    "samplers",
    "schedule",
    "sharding",
    "sources",
    "testing",
    "transforms",
)
_NAMES = {
    "Origin": "wholegrain._core.origins",
    "FailedRecord": "wholegrain._core.tolerated",
    "TooManyErrorsError": "wholegrain._graph.tolerance",
    "quarantine": "wholegrain._graph.quarantine",
    "DataLoader": "wholegrain._loader.data_loader",
    "DataLoaderIterator": "wholegrain._loader.iterator",
    "load": "wholegrain._loader.data_loader",
    "dashboard": "wholegrain._observe.dashboard",
    "install_as_grain": "wholegrain.compat",
    "load_ipython_extension": "wholegrain.compat",
    "unload_ipython_extension": "wholegrain.compat",
    "Record": "wholegrain.record",
    "RecordMetadata": "wholegrain.record",
}
# Modules that need the package of the same name; `dir` does not list them.
_FRAMEWORKS = ("torch",)
# Names of `wholegrain.python` that Grain's documentation also uses with `import grain`.
_FLAT_NAMES = (
    "Batch",
    "BatchTransform",
    "GrainCheckpointHandler",
    "GrainCheckpointRestore",
    "GrainCheckpointSave",
)

__getattr__ = lazy.importer(
    __name__,
    _NAMES
    | dict.fromkeys((*_MODULES, *_FRAMEWORKS), __name__)
    | dict.fromkeys(_FLAT_NAMES, "wholegrain.python"),
)


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES, *_NAMES})


if os.environ.get("ENABLE_PYGRAIN_PROMETHEUS_TELEMETRY", "").lower() == "true":
    from wholegrain._observe import prometheus as _prometheus

    _prometheus.start()

# Keras takes classes of this package for Grain's because of their module names: see keras_hook.
_keras_hook.watch()
_torch_hook.watch()
