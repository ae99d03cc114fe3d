"""Everything in one flat namespace, as older programs import it."""

from typing import TYPE_CHECKING, Any

from wholegrain import checkpoint as _checkpoint
from wholegrain import samplers as _samplers
from wholegrain import sharding as _sharding
from wholegrain import sources as _sources
from wholegrain import transforms as _transforms
from wholegrain._core.config import config as config
from wholegrain._graph.iter_dataset import IterDataset as IterDataset
from wholegrain._graph.iterator import DatasetIterator as DatasetIterator
from wholegrain._graph.map_dataset import MapDataset as MapDataset
from wholegrain._loader.data_loader import DataLoader as DataLoader
from wholegrain._loader.data_loader import load as load
from wholegrain._loader.iterator import DataLoaderIterator as _DataLoaderIterator
from wholegrain._loader.legacy import BatchOperation as BatchOperation
from wholegrain._loader.legacy import FilterOperation as FilterOperation
from wholegrain._loader.legacy import MapOperation as MapOperation
from wholegrain._loader.legacy import Operation as Operation
from wholegrain._loader.legacy import RandomMapOperation as RandomMapOperation
from wholegrain.constants import DATASET_INDEX as DATASET_INDEX
from wholegrain.constants import EPOCH as EPOCH
from wholegrain.constants import INDEX as INDEX
from wholegrain.constants import META_FEATURES as META_FEATURES
from wholegrain.constants import RECORD as RECORD
from wholegrain.constants import RECORD_KEY as RECORD_KEY
from wholegrain.constants import SEED as SEED
from wholegrain.multiprocessing import SharedMemoryArray as SharedMemoryArray
from wholegrain.options import MultiprocessingOptions as MultiprocessingOptions
from wholegrain.options import ReadOptions as ReadOptions
from wholegrain.python import experimental as experimental
from wholegrain.record import Record as Record
from wholegrain.record import RecordMetadata as RecordMetadata

if TYPE_CHECKING:
    from wholegrain.checkpoint import CheckpointRestore, CheckpointSave

    GrainCheckpointRestore = PyGrainCheckpointRestore = CheckpointRestore
    GrainCheckpointSave = PyGrainCheckpointSave = CheckpointSave

IndexSampler = _samplers.IndexSampler
Sampler = _samplers.Sampler
SequentialSampler = _samplers.SequentialSampler
NoSharding = _sharding.NoSharding
ShardByJaxProcess = _sharding.ShardByJaxProcess
ShardOptions = _sharding.ShardOptions
ArrayRecordDataSource = _sources.ArrayRecordDataSource
InMemoryDataSource = _sources.SharedMemoryDataSource
RandomAccessDataSource = _sources.RandomAccessDataSource
RangeDataSource = _sources.RangeDataSource
Batch = BatchTransform = _transforms.Batch
DatasetSelectionMap = _transforms.DatasetSelectionMap
FilterTransform = _transforms.Filter
FlatMapTransform = _transforms.FlatMap
MapTransform = _transforms.Map
MapWithIndexTransform = _transforms.MapWithIndex
RandomMapTransform = _transforms.RandomMap
Transformation = _transforms.Transformation
Transformations = _transforms.Transformations
PyGrainDatasetIterator = _DataLoaderIterator
PyGrainCheckpointHandler = GrainCheckpointHandler = _checkpoint.CheckpointHandler

_NEED_ORBAX = {
    f"{prefix}{name}": name
    for prefix in ("Grain", "PyGrain")
    for name in ("CheckpointSave", "CheckpointRestore")
}


def __getattr__(name: str) -> Any:
    if name in _NEED_ORBAX:
        return getattr(_checkpoint, _NEED_ORBAX[name])
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    there = set(dir(_checkpoint))
    return [*globals(), *(name for name, same in _NEED_ORBAX.items() if same in there)]
