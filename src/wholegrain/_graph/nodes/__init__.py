"""The transformations, one file each, imported on first use. They do not import each other."""

from typing import TYPE_CHECKING

from wholegrain._core import lazy

if TYPE_CHECKING:
    from wholegrain._graph.apply import apply_transformations as apply_transformations
    from wholegrain._graph.error_rules import checked_rule as checked_rule
    from wholegrain._graph.finding import scanned as scanned
    from wholegrain._graph.later_epochs import at_epoch as at_epoch
    from wholegrain._graph.mix_options import MixOptions as MixOptions
    from wholegrain._graph.mixtures import describe_mixture as describe_mixture
    from wholegrain._graph.mixtures import set_mixture_weights as set_mixture_weights
    from wholegrain._graph.nodes.autotune import autotune as autotune
    from wholegrain._graph.nodes.balance import BalanceMapDataset as BalanceMapDataset
    from wholegrain._graph.nodes.batch import BatchIterDataset as BatchIterDataset
    from wholegrain._graph.nodes.batch import BatchMapDataset as BatchMapDataset
    from wholegrain._graph.nodes.bucket import BucketIterDataset as BucketIterDataset
    from wholegrain._graph.nodes.cache import CacheIterDataset as CacheIterDataset
    from wholegrain._graph.nodes.concatenate import ConcatenateMapDataset as ConcatenateMapDataset
    from wholegrain._graph.nodes.disk_cache import DiskCacheMapDataset as DiskCacheMapDataset
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
    from wholegrain._graph.nodes.map_with_index import (
        MapWithIndexMapDataset as MapWithIndexMapDataset,
    )
    from wholegrain._graph.nodes.mix import MixedIterDataset as MixedIterDataset
    from wholegrain._graph.nodes.mix import MixedMapDataset as MixedMapDataset
    from wholegrain._graph.nodes.mix import SelectedMapDataset as SelectedMapDataset
    from wholegrain._graph.nodes.on_error import OnErrorIterDataset as OnErrorIterDataset
    from wholegrain._graph.nodes.on_error import OnErrorMapDataset as OnErrorMapDataset
    from wholegrain._graph.nodes.options import SeedIterDataset as SeedIterDataset
    from wholegrain._graph.nodes.options import SeedMapDataset as SeedMapDataset
    from wholegrain._graph.nodes.options import WithOptionsIterDataset as WithOptionsIterDataset
    from wholegrain._graph.nodes.quarantine import QuarantineMapDataset as QuarantineMapDataset
    from wholegrain._graph.nodes.random_map import RandomMapIterDataset as RandomMapIterDataset
    from wholegrain._graph.nodes.random_map import RandomMapMapDataset as RandomMapMapDataset
    from wholegrain._graph.nodes.read_ahead import PrefetchIterDataset as PrefetchIterDataset
    from wholegrain._graph.nodes.rebatch import RebatchIterDataset as RebatchIterDataset
    from wholegrain._graph.nodes.repeat import RepeatIterDataset as RepeatIterDataset
    from wholegrain._graph.nodes.repeat import RepeatMapDataset as RepeatMapDataset
    from wholegrain._graph.nodes.shard import shard_dataset as shard_dataset
    from wholegrain._graph.nodes.shuffle import ShuffleMapDataset as ShuffleMapDataset
    from wholegrain._graph.nodes.shuffle import WindowShuffleMapDataset as WindowShuffleMapDataset
    from wholegrain._graph.nodes.slice import ReindexMapDataset as ReindexMapDataset
    from wholegrain._graph.nodes.slice import SliceMapDataset as SliceMapDataset
    from wholegrain._graph.nodes.source import RangeMapDataset as RangeMapDataset
    from wholegrain._graph.nodes.source import SourceMapDataset as SourceMapDataset
    from wholegrain._graph.nodes.thread_prefetch import (
        ThreadPrefetchIterDataset as ThreadPrefetchIterDataset,
    )
    from wholegrain._graph.nodes.thread_prefetch import run_ahead as run_ahead
    from wholegrain._graph.nodes.window_shuffle import (
        WindowShuffleIterDataset as WindowShuffleIterDataset,
    )
    from wholegrain._graph.nodes.zip import ZipIterDataset as ZipIterDataset
    from wholegrain._graph.nodes.zip import ZipMapDataset as ZipMapDataset
    from wholegrain._graph.prefetching import multithread_prefetch as multithread_prefetch
    from wholegrain._graph.prefetching import process_prefetch as process_prefetch
    from wholegrain._graph.reseeding import reseeded as reseeded
    from wholegrain._graph.shares import share_of as share_of

_HOMES = {
    "apply_transformations": "apply",
    "scanned": "finding",
    "autotune": "nodes.autotune",
    "BalanceMapDataset": "nodes.balance",
    "BatchIterDataset": "nodes.batch",
    "BatchMapDataset": "nodes.batch",
    "BucketIterDataset": "nodes.bucket",
    "CacheIterDataset": "nodes.cache",
    "ConcatenateMapDataset": "nodes.concatenate",
    "DiskCacheMapDataset": "nodes.disk_cache",
    "FilterIterDataset": "nodes.filter",
    "FilterMapDataset": "nodes.filter",
    "FlatMapIterDataset": "nodes.flat_map",
    "FlatMapMapDataset": "nodes.flat_map",
    "InterleaveIterDataset": "nodes.interleave",
    "LimitIterDataset": "nodes.limit",
    "MapIterDataset": "nodes.map",
    "MapMapDataset": "nodes.map",
    "MapWithIndexIterDataset": "nodes.map_with_index",
    "MapWithIndexMapDataset": "nodes.map_with_index",
    "MixedIterDataset": "nodes.mix",
    "MixedMapDataset": "nodes.mix",
    "SelectedMapDataset": "nodes.mix",
    "OnErrorIterDataset": "nodes.on_error",
    "OnErrorMapDataset": "nodes.on_error",
    "checked_rule": "error_rules",
    "SeedIterDataset": "nodes.options",
    "SeedMapDataset": "nodes.options",
    "WithOptionsIterDataset": "nodes.options",
    "QuarantineMapDataset": "nodes.quarantine",
    "RandomMapIterDataset": "nodes.random_map",
    "RandomMapMapDataset": "nodes.random_map",
    "PrefetchIterDataset": "nodes.read_ahead",
    "RebatchIterDataset": "nodes.rebatch",
    "RepeatIterDataset": "nodes.repeat",
    "RepeatMapDataset": "nodes.repeat",
    "shard_dataset": "nodes.shard",
    "ShuffleMapDataset": "nodes.shuffle",
    "WindowShuffleMapDataset": "nodes.shuffle",
    "ReindexMapDataset": "nodes.slice",
    "SliceMapDataset": "nodes.slice",
    "RangeMapDataset": "nodes.source",
    "SourceMapDataset": "nodes.source",
    "ThreadPrefetchIterDataset": "nodes.thread_prefetch",
    "run_ahead": "nodes.thread_prefetch",
    "WindowShuffleIterDataset": "nodes.window_shuffle",
    "ZipIterDataset": "nodes.zip",
    "ZipMapDataset": "nodes.zip",
    "multithread_prefetch": "prefetching",
    "process_prefetch": "prefetching",
    "share_of": "shares",
    "at_epoch": "later_epochs",
    "MixOptions": "mix_options",
    "set_mixture_weights": "mixtures",
    "describe_mixture": "mixtures",
    "reseeded": "reseeding",
}

__getattr__ = lazy.importer(
    __name__, {name: f"wholegrain._graph.{home}" for name, home in _HOMES.items()}
)
