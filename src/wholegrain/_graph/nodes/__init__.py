"""The transformations, one file each. They do not know each other."""

# Made of the ones above.
from wholegrain._graph.apply import apply_transformations as apply_transformations
from wholegrain._graph.nodes.batch import BatchIterDataset as BatchIterDataset
from wholegrain._graph.nodes.batch import BatchMapDataset as BatchMapDataset
from wholegrain._graph.nodes.cache import CacheIterDataset as CacheIterDataset
from wholegrain._graph.nodes.concatenate import ConcatenateMapDataset as ConcatenateMapDataset
from wholegrain._graph.nodes.filter import FilterIterDataset as FilterIterDataset
from wholegrain._graph.nodes.filter import FilterMapDataset as FilterMapDataset
from wholegrain._graph.nodes.flat_map import FlatMapIterDataset as FlatMapIterDataset
from wholegrain._graph.nodes.flat_map import FlatMapMapDataset as FlatMapMapDataset
from wholegrain._graph.nodes.interleave import InterleaveIterDataset as InterleaveIterDataset
from wholegrain._graph.nodes.limit import LimitIterDataset as LimitIterDataset
from wholegrain._graph.nodes.map import MapIterDataset as MapIterDataset
from wholegrain._graph.nodes.map import MapMapDataset as MapMapDataset
from wholegrain._graph.nodes.map_with_index import (
    MapWithIndexIterDataset as MapWithIndexIterDataset,
)
from wholegrain._graph.nodes.map_with_index import MapWithIndexMapDataset as MapWithIndexMapDataset
from wholegrain._graph.nodes.mix import MixedIterDataset as MixedIterDataset
from wholegrain._graph.nodes.mix import MixedMapDataset as MixedMapDataset
from wholegrain._graph.nodes.mix import SelectedMapDataset as SelectedMapDataset
from wholegrain._graph.nodes.options import SeedIterDataset as SeedIterDataset
from wholegrain._graph.nodes.options import SeedMapDataset as SeedMapDataset
from wholegrain._graph.nodes.options import WithOptionsIterDataset as WithOptionsIterDataset
from wholegrain._graph.nodes.random_map import RandomMapIterDataset as RandomMapIterDataset
from wholegrain._graph.nodes.random_map import RandomMapMapDataset as RandomMapMapDataset
from wholegrain._graph.nodes.read_ahead import PrefetchIterDataset as PrefetchIterDataset
from wholegrain._graph.nodes.rebatch import RebatchIterDataset as RebatchIterDataset
from wholegrain._graph.nodes.repeat import RepeatIterDataset as RepeatIterDataset
from wholegrain._graph.nodes.repeat import RepeatMapDataset as RepeatMapDataset
from wholegrain._graph.nodes.shuffle import ShuffleMapDataset as ShuffleMapDataset
from wholegrain._graph.nodes.shuffle import WindowShuffleMapDataset as WindowShuffleMapDataset
from wholegrain._graph.nodes.slice import IndexedMapDataset as IndexedMapDataset
from wholegrain._graph.nodes.slice import SliceMapDataset as SliceMapDataset
from wholegrain._graph.nodes.source import RangeMapDataset as RangeMapDataset
from wholegrain._graph.nodes.source import SourceMapDataset as SourceMapDataset
from wholegrain._graph.nodes.thread_prefetch import (
    ThreadPrefetchIterDataset as ThreadPrefetchIterDataset,
)
from wholegrain._graph.nodes.window_shuffle import (
    WindowShuffleIterDataset as WindowShuffleIterDataset,
)
from wholegrain._graph.nodes.zip import ZipIterDataset as ZipIterDataset
from wholegrain._graph.nodes.zip import ZipMapDataset as ZipMapDataset
from wholegrain._graph.prefetching import multithread_prefetch as multithread_prefetch
from wholegrain._graph.prefetching import process_prefetch as process_prefetch
