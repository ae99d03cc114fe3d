"""Less common features, under Grain's names."""

from wholegrain import transforms as _transforms
from wholegrain._core.autotune_parameter import AutotuneParameter as AutotuneParameter
from wholegrain._core.permute import index_shuffle as index_shuffle
from wholegrain._core.rng import RngPool as RngPool
from wholegrain._core.spec import ShapeDtypeStruct as ShapeDtypeStruct
from wholegrain._core.spec import ShapeDtypeStructProtocol as ShapeDtypeStructProtocol
from wholegrain._core.stack import batch_and_pad as batch_and_pad
from wholegrain._graph.apply import apply_transformations as apply_transformations
from wholegrain._graph.device import device_put as device_put
from wholegrain._graph.iterator import get_next_index as get_next_index
from wholegrain._graph.iterator import set_next_index as set_next_index
from wholegrain._graph.nodes import CacheIterDataset as CacheIterDataset
from wholegrain._graph.nodes import FlatMapIterDataset as FlatMapIterDataset
from wholegrain._graph.nodes import FlatMapMapDataset as FlatMapMapDataset
from wholegrain._graph.nodes import InterleaveIterDataset as InterleaveIterDataset
from wholegrain._graph.nodes import LimitIterDataset as LimitIterDataset
from wholegrain._graph.nodes import RebatchIterDataset as RebatchIterDataset
from wholegrain._graph.nodes import RepeatIterDataset as RepeatIterDataset
from wholegrain._graph.nodes import ThreadPrefetchIterDataset as ThreadPrefetchIterDataset
from wholegrain._graph.nodes import WindowShuffleIterDataset as WindowShuffleIterDataset
from wholegrain._graph.nodes import WindowShuffleMapDataset as WindowShuffleMapDataset
from wholegrain._graph.nodes import WithOptionsIterDataset as WithOptionsIterDataset
from wholegrain._graph.nodes import ZipIterDataset as ZipIterDataset
from wholegrain._graph.nodes import ZipMapDataset as ZipMapDataset
from wholegrain._graph.nodes.autotune import AutotuneModelConfig as AutotuneModelConfig
from wholegrain._graph.nodes.autotune import BufferRegularizationMode as BufferRegularizationMode
from wholegrain._graph.nodes.autotune import (
    ConcurrencyRegularizationMode as ConcurrencyRegularizationMode,
)
from wholegrain._graph.nodes.autotune import autotune as autotune
from wholegrain._graph.nodes.concat_split import (
    ConcatThenSplitIterDataset as ConcatThenSplitIterDataset,
)
from wholegrain._graph.nodes.pack import BestFitPackIterDataset as BestFitPackIterDataset
from wholegrain._graph.nodes.pack import FirstFitPackIterDataset as FirstFitPackIterDataset
from wholegrain._graph.nodes.thread_prefetch import (
    ThreadPrefetchDatasetIterator as ThreadPrefetchDatasetIterator,
)
from wholegrain._graph.performance import PerformanceConfig as PerformanceConfig
from wholegrain._graph.performance import pick_performance_config as pick_performance_config
from wholegrain._graph.prefetching import multithread_prefetch as multithread_prefetch
from wholegrain._graph.specs import get_element_spec as get_element_spec
from wholegrain._observe.summary import get_execution_summary as get_execution_summary
from wholegrain._packing.concat_split import BOSHandling as BOSHandling
from wholegrain._packing.pack_and_batch import PackAndBatchOperation as PackAndBatchOperation
from wholegrain.checkpoint.elastic import ElasticIterator as ElasticIterator
from wholegrain.options import DatasetOptions as DatasetOptions
from wholegrain.options import ExecutionTrackingMode as ExecutionTrackingMode
from wholegrain.sources.hf_iter import HFIterableDatasetProtocol as HFIterableDatasetProtocol
from wholegrain.sources.hf_iter import HFIterDataset as HFIterDataset
from wholegrain.sources.iterable_iter import IterableIterDataset as IterableIterDataset
from wholegrain.sources.line_iter import CsvIterDataset as CsvIterDataset
from wholegrain.sources.line_iter import JsonlIterDataset as JsonlIterDataset
from wholegrain.sources.line_iter import TextLineIterDataset as TextLineIterDataset
from wholegrain.sources.parquet_iter import ParquetIterDataset as ParquetIterDataset
from wholegrain.sources.tar_iter import TarIterDataset as TarIterDataset
from wholegrain.sources.tfrecord_iter import TFRecordIterDataset as TFRecordIterDataset
from wholegrain.testing import (
    assert_equal_output_after_checkpoint as assert_equal_output_after_checkpoint,
)

FlatMapTransform = _transforms.FlatMap
MapWithIndexTransform = _transforms.MapWithIndex
