"""Where to find Grain's private names that programs use.

The modules under `grain._src` are listed. Their content follows a rule: a name is the object of
that name in one of `_PLACES`, with or without a leading underscore. `_ELSEWHERE` has the few
objects that have another name here.
"""

import importlib
from typing import Any

_MODULES = """
core: config constants exceptions monitoring profiler sharding traceback_util transforms tree_lib
python: data_loader data_sources load operations options record samplers shared_memory_array
python.checkpoint: base handler
python.dataset: base dataset elastic_iterator stats
python.dataset.sources: parquet_dataset tfrecord_dataset
python.dataset.transformations: batch cache concatenate filter flatmap interleave limit map mix
python.dataset.transformations: packing packing_concat_then_split packing_packed_batch prefetch
python.dataset.transformations: prefetch_autotune process_prefetch rebatch repeat shuffle slice
python.dataset.transformations: source zip
python.experimental.device_put: device_put
python.experimental.example_packing: packing
python.experimental.index_shuffle.python: index_shuffle_module
python.ipc: shared_memory_array
python.testing: experimental
"""

# The first module that defines the name wins.
_PLACES = (
    *("", "transforms", "sharding", "samplers", "constants", "multiprocessing", "sources"),
    *("experimental", "checkpoint", "checkpoint.handler", "python"),
    *("_graph.nodes", "_graph.nodes.read_ahead", "_graph.nodes.batch", "_graph.nodes.pack"),
    *("_graph.prefetching", "_graph.nodes.interleave"),
    *("_loader.data_loader", "_packing.packed_batch", "_core.config"),
    *("sources.tfrecord_iter", "sources.parquet_iter", "sources._tfrecord_reader"),
    *("_observe.summary", "_core.tracebacks", "compat.helpers"),
)

_ELSEWHERE = {
    "IterDatasetMeta": "_graph.iter_dataset:_IterDatasetFactories",
    "MapDatasetMeta": "_graph.map_dataset:_MapDatasetFactories",
    "flatten": "_core.tree:leaves",
    "get_process_index_and_count": "sharding:jax_process",
    "make_batch": "_core.stack:stack",
    "map_structure": "_core.tree:map_leaves",
}


def _all_modules() -> frozenset[str]:
    found = {"grain", "grain._src"}
    for line in _MODULES.strip().splitlines():
        package, _, names = line.partition(": ")
        parts = package.split(".")
        found |= {".".join(["grain._src", *parts[:end]]) for end in range(1, len(parts) + 1)}
        found |= {f"grain._src.{package}.{name}" for name in names.split()}
    return frozenset(found)


_ALL_MODULES = _all_modules()


def is_module(name: str) -> bool:
    """Return whether `name` is `grain` or one of the modules under `grain._src`."""
    return name in _ALL_MODULES


def find(name: str) -> Any:
    """Return the object that has `name` in one of Grain's private modules.

    Raises:
        AttributeError: If there is none.
    """
    if name in _ELSEWHERE:
        place, _, own = _ELSEWHERE[name].partition(":")
        return getattr(importlib.import_module(f"wholegrain.{place}"), own)
    for wanted in dict.fromkeys((name, name.lstrip("_"))):
        for place in _PLACES:
            try:
                return getattr(importlib.import_module(f"wholegrain.{place}".rstrip(".")), wanted)
            except (AttributeError, ImportError):
                continue
    raise AttributeError(name)
