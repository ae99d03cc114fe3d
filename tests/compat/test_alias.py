"""`import grain` gives wholegrain, where that was asked for."""

import importlib
import importlib.util
import pickle
import sys
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cloudpickle  # type: ignore[import-untyped]
import pytest

import wholegrain as wg
from tests.compat.programs import printed, python
from wholegrain.compat import uninstall_as_grain

# What programs reach into: as they write it, and what it has to be. None for anything at all.
_PRIVATE = {
    "python.ipc.shared_memory_array:SharedMemoryArrayMetadata": (
        "multiprocessing:SharedMemoryArrayMetadata"
    ),
    "python.ipc.shared_memory_array:SharedMemoryArray": "multiprocessing:SharedMemoryArray",
    "python.dataset.sources.tfrecord_dataset:TFRecordIterDataset": (
        "experimental:TFRecordIterDataset"
    ),
    "python.dataset.sources.tfrecord_dataset:_TFRecordReader": None,
    "python.dataset.sources.tfrecord_dataset:_TFRecordDatasetIterator": None,
    "core.constants:INDEX": "constants:INDEX",
    "core.constants:SEED": "constants:SEED",
    "core.transforms:Map": "transforms:Map",
    "core.transforms:FlatMap": "transforms:FlatMap",
    "core.tree_lib:map_structure": None,
    "core.sharding:even_split": "sharding:even_split",
    "python.dataset.dataset:MapDataset": ":MapDataset",
    "python.dataset.dataset:IterDataset": ":IterDataset",
    "python.dataset.dataset:DatasetIterator": ":DatasetIterator",
    "python.dataset.dataset:get_execution_summary": None,
    "python.dataset.base:DatasetOptions": "experimental:DatasetOptions",
    "python.dataset.base:RandomAccessDataSource": "sources:RandomAccessDataSource",
    "python.dataset.transformations.shuffle:WindowShuffleIterDataset": (
        "experimental:WindowShuffleIterDataset"
    ),
    "python.dataset.transformations.zip:ZipIterDataset": "experimental:ZipIterDataset",
    "python.dataset.transformations.flatmap:FlatMapIterDataset": "experimental:FlatMapIterDataset",
    "python.dataset.transformations.mix:MixedIterDataset": None,
    "python.dataset.transformations.prefetch:ThreadPrefetchIterDataset": (
        "experimental:ThreadPrefetchIterDataset"
    ),
    "python.dataset.transformations.prefetch:PrefetchIterDataset": None,
    "python.dataset.transformations.map:MapMapDataset": None,
    "python.dataset.transformations.map:RngPool": "experimental:RngPool",
    "python.dataset.transformations.interleave:InterleaveIterDataset": (
        "experimental:InterleaveIterDataset"
    ),
    "python.dataset.transformations.interleave:InterleaveDatasetIterator": None,
    "python.dataset.transformations.process_prefetch:_PROCESS_KILL_TIMEOUT_S": None,
    "python.dataset.stats:pretty_format_summary": None,
    "python.dataset.stats:HashableWeakRef": None,
    "python.data_loader:DataLoader": ":DataLoader",
    "python.data_loader:DataLoaderIterator": ":DataLoaderIterator",
    "python.data_loader:_determine_worker_count": None,
    "python.samplers:IndexSampler": "samplers:IndexSampler",
    "python.data_sources:ArrayRecordDataSource": "sources:ArrayRecordDataSource",
    "python.record:RecordMetadata": ":RecordMetadata",
    "python.options:ReadOptions": ":ReadOptions",
    "python.operations:BatchOperation": "python:BatchOperation",
    "python.checkpoint.handler:CheckpointHandler": "checkpoint:CheckpointHandler",
    "python.experimental.index_shuffle.python.index_shuffle_module:index_shuffle": (
        "experimental:index_shuffle"
    ),
}


def _put_aside() -> dict[str, Any]:
    ours = [name for name in sys.modules if name.partition(".")[0] == "grain"]
    return {name: sys.modules.pop(name) for name in ours}


@pytest.fixture
def alias() -> Iterator[None]:
    aside = _put_aside()
    wg.install_as_grain()
    try:
        yield
    finally:
        uninstall_as_grain()
        assert not _put_aside()
        sys.modules.update(aside)


def _import(name: str) -> Any:
    return importlib.import_module(name)


@pytest.mark.usefixtures("alias")
def test_public_modules_are_the_same_objects() -> None:
    grain, flat = _import("grain"), _import("grain.python")
    for name in ("checkpoint", "constants", "experimental", "multiprocessing", "samplers"):
        assert _import(f"grain.{name}") is getattr(wg, name) is getattr(grain, name)
    assert flat is _import("wholegrain.python")
    assert _import("grain.python.experimental") is flat.experimental
    assert grain.MapDataset is flat.MapDataset is wg.MapDataset
    assert grain.DataLoader is wg.DataLoader
    assert {"MapDataset", "DataLoader", "experimental"} <= set(dir(grain))


@pytest.mark.usefixtures("alias")
@pytest.mark.parametrize("private", _PRIVATE)
def test_private_names_that_programs_reach_into_are_ours(private: str) -> None:
    module, _, name = private.partition(":")
    found = getattr(_import(f"grain._src.{module}"), name)
    namespace: dict[str, Any] = {}
    package, _, last = f"grain._src.{module}".rpartition(".")
    exec(f"from grain._src.{module} import {name}\nfrom {package} import {last} as m", namespace)
    assert namespace[name] is found
    assert namespace["m"] is _import(f"grain._src.{module}")
    same = _PRIVATE[private]
    if same is not None:
        own, _, own_name = same.partition(":")
        assert found is getattr(_import(f"wholegrain.{own}".rstrip(".")), own_name)


@pytest.mark.usefixtures("alias")
def test_it_says_which_release_of_grain_it_stands_for() -> None:
    grain = _import("grain")
    assert grain.__version__ == "0.2.18"
    assert grain.__version_info__ == (0, 2, 18)
    assert importlib.util.find_spec("grain") is grain.__spec__
    assert wg.__spec__ is not None
    assert (wg.__name__, wg.__spec__.name) == ("wholegrain", "wholegrain")


@pytest.mark.usefixtures("alias")
def test_what_is_missing_is_missing_even_where_grain_is_installed() -> None:
    for missing in ("nothing", "_src.nothing", "_src.python.nothing", "_graph"):
        name = f"grain.{missing}"
        with pytest.raises(ModuleNotFoundError, match=f"'{name}'"):
            _import(name)
        assert importlib.util.find_spec(name) is None
    with pytest.raises(AttributeError, match="'grain' has no attribute 'nothing'"):
        _ = _import("grain").nothing
    with pytest.raises(AttributeError, match=r"`grain` is wholegrain here"):
        _ = _import("grain._src.python.record").nothing


@pytest.mark.usefixtures("alias")
def test_private_names_do_what_programs_do_with_them(tmp_path: Path) -> None:
    # Settings of Grain's that are none here can be set.
    prefetch = _import("grain._src.python.dataset.transformations.process_prefetch")
    prefetch._PROCESS_KILL_TIMEOUT_S = 1
    assert prefetch._PROCESS_KILL_TIMEOUT_S == 1

    ds = wg.MapDataset.range(3)
    reference = _import("grain._src.python.dataset.stats").HashableWeakRef
    assert {reference(ds): "seen"}[reference(ds)] == "seen"
    assert reference(ds)() is ds
    assert reference(ds) != weakref.ref(ds)

    tree = _import("grain._src.core.tree_lib")
    assert tree.map_structure(lambda a, b: a + b, {"x": 1}, {"x": 2}) == {"x": 3}
    assert tree.flatten({"a": 1, "b": [2, 3]}) == [1, 2, 3]
    assert tree.unflatten_as({"a": 1, "b": [2, 3]}, [4, 5, 6]) == {"a": 4, "b": [5, 6]}
    tree.assert_same_structure({"a": 1, "b": [2]}, {"a": 3, "b": [4]})
    for other in ({"a": 1}, {"a": 1, "b": 2}, {"a": 1, "b": [2, 3]}, 5):
        with pytest.raises(AssertionError, match="don't match"):
            tree.assert_same_structure({"a": 1, "b": [2]}, other)

    with _import("grain._src.core.profiler").TraceAnnotation("step", step_num=1):
        assert not _import("grain._src.core.profiler").is_enabled()
    traceback_util = _import("grain._src.core.traceback_util")
    assert traceback_util.run_with_traceback_filter(len)([1]) == 1
    assert isinstance(wg.MapDataset, _import("grain._src.python.dataset.dataset").MapDatasetMeta)

    # Attributes can be set on datasets and on modules.
    ds.class_names = ["a", "b"]
    experimental = _import("grain.experimental")
    experimental.invented = 1
    assert vars(wg.experimental)["invented"] == 1
    del experimental.invented


def test_a_data_loader_has_the_attributes_that_programs_read() -> None:
    source, sampler = range(6), wg.samplers.SequentialSampler(6, seed=0)
    loader = wg.DataLoader(
        data_source=source,
        sampler=sampler,
        operations=[wg.transforms.Batch(2)],
        worker_buffer_size=3,
        read_options=wg.ReadOptions(num_threads=2),
        enable_profiling=True,
        shard_options=wg.sharding.NoSharding(),
    )
    copy = wg.DataLoader(
        data_source=loader._data_source,
        sampler=loader._sampler,
        operations=list(loader._operations),
        worker_count=loader._multiprocessing_options.num_workers,
        worker_buffer_size=loader._multiprocessing_options.per_worker_buffer_size,
        shard_options=loader._shard_options,
        read_options=loader._read_options,
        enable_profiling=loader._multiprocessing_options.enable_profiling,
    )
    assert copy._data_source is source
    assert copy._sampler is sampler
    assert copy._multiprocessing_options == loader._multiprocessing_options
    assert copy._multiprocessing_options.enable_profiling
    assert (copy._shard_options, copy._read_options) == (loader._shard_options, wg.ReadOptions(2))
    assert [list(batch) for batch in copy] == [list(batch) for batch in loader._dataset]


@pytest.mark.usefixtures("alias")
def test_what_refers_to_the_modules_can_be_pickled() -> None:
    grain = _import("grain")
    private = _import("grain._src.python.dataset.dataset")
    for module in (grain, private):
        assert pickle.loads(pickle.dumps(module)) is module
        assert pickle.loads(cloudpickle.dumps(module)) is module


def test_pickles_are_understood_where_nothing_stands_for_grain(tmp_path: Path) -> None:
    (tmp_path / "write.py").write_text(
        "import cloudpickle, grain, grain.python as flat\n"
        "class Add(flat.MapTransform):\n"
        "    def map(self, x):\n"
        "        return x + grain.sources.RangeDataSource(5, 9, 1)[0]\n"
        "ds = grain.MapDataset.range(3).map(Add()).map(lambda x: (x, grain.__version__))\n"
        "print(cloudpickle.dumps(ds).hex())\n"
    )
    (text,) = printed("-m", "wholegrain", "write.py", cwd=tmp_path)
    assert list(pickle.loads(bytes.fromhex(text))) == [(n, "0.2.18") for n in (5, 6, 7)]


@pytest.mark.parametrize("start", ["auto", "spawn"])
def test_modules_that_workers_import_get_it_too(tmp_path: Path, start: str) -> None:
    (tmp_path / "my_pipeline.py").write_text(
        "import os\n"
        "import grain.python as grain\n"
        "class Where(grain.MapTransform):\n"
        "    def map(self, x):\n"
        "        from grain._src.python.ipc.shared_memory_array import SharedMemoryArray as a\n"
        "        from wholegrain.multiprocessing import SharedMemoryArray as b\n"
        "        return x, a is b, 'WHOLEGRAIN_WORKER' in os.environ\n"
    )
    (tmp_path / "main.py").write_text(
        "import grain, my_pipeline\n"
        "ds = grain.MapDataset.range(4).map(my_pipeline.Where()).to_iter_dataset()\n"
        "print(list(ds.mp_prefetch(grain.MultiprocessingOptions(num_workers=2))))\n"
    )
    lines = printed("-m", "wholegrain", "main.py", cwd=tmp_path, WHOLEGRAIN_WORKER_START=start)
    assert lines == [str([(n, True, True) for n in range(4)])]


def test_it_is_refused_where_grain_is_imported_already(tmp_path: Path) -> None:
    (tmp_path / "grain.py").write_text("")  # Any Grain will do.
    code = "import grain, wholegrain; wholegrain.install_as_grain()"
    run = python("-c", code, cwd=tmp_path)
    assert run.returncode == 1
    assert "ImportError" in run.stderr
    assert f"Grain is already imported, from {tmp_path / 'grain.py'}" in run.stderr
    assert "before the first import" in run.stderr


def test_it_goes_before_a_grain_that_is_installed_but_never_by_itself(tmp_path: Path) -> None:
    (tmp_path / "grain.py").write_text("which = 'the other'")
    code = "import wholegrain, grain; print(grain.which)"
    assert printed("-c", code, cwd=tmp_path) == ["the other"]
    code = "import wholegrain as w; w.install_as_grain(); w.install_as_grain(); import grain"
    assert printed("-c", f"{code}; print(grain.load is w.load)", cwd=tmp_path) == ["True"]


def test_a_notebook_loads_it_as_an_extension(tmp_path: Path) -> None:
    code = (
        "import wholegrain\n"
        "wholegrain.load_ipython_extension(None)\n"
        "import grain\n"
        "print(grain.MapDataset is wholegrain.MapDataset)\n"
        "wholegrain.unload_ipython_extension(None)\n"
        "import sys\n"
        "print('grain' in sys.modules)\n"
    )
    assert printed("-c", code, cwd=tmp_path) == ["True", "False"]
