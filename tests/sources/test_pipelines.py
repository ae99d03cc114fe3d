"""Sources at work: in datasets, loaders and worker processes, and the same in Grain."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import wholegrain as wg
from tests.sources.files import (
    records,
    table,
    write_array_record,
    write_arrow,
    write_bagz,
    write_parquet,
    write_tfrecord,
)
from wholegrain import sources
from wholegrain.testing import check_map_dataset


def _array_record(folder: Path) -> Any:
    pytest.importorskip("array_record")
    parts = [records(40)[:15], records(40)[15:]]
    for i, part in enumerate(parts):
        write_array_record(folder / f"{i}", part)
    return sources.ArrayRecordDataSource([str(folder / "0"), str(folder / "1")])


def _bagz(folder: Path) -> Any:
    pytest.importorskip("bagz")
    return sources.BagzDataSource(write_bagz(folder / "a.bagz", records(40)))


def _tfrecord(folder: Path) -> Any:
    return sources.TFRecordDataSource(write_tfrecord(folder / "a", records(40)))


def _folder(folder: Path) -> Any:
    for i, record in enumerate(records(40)):
        (folder / f"{i:03d}").write_bytes(record)
    return sources.FolderDataSource(folder)


def _parquet(folder: Path) -> Any:
    pytest.importorskip("pyarrow")
    return sources.ParquetDataSource(write_parquet(folder / "a", table({"r": records(40)})))


def _arrow(folder: Path) -> Any:
    pytest.importorskip("pyarrow")
    return sources.ArrowDataSource(write_arrow(folder / "a", table({"r": records(40)})))


def _npy(folder: Path) -> Any:
    np.save(folder / "a.npy", np.arange(40))
    return sources.NpyDataSource(folder / "a.npy")


def _shared_memory(folder: Path) -> Any:
    return sources.SharedMemoryDataSource(records(40))


def _range(folder: Path) -> Any:
    return sources.RangeDataSource(0, 40, 1)


MAKERS = [
    _array_record,
    _bagz,
    _tfrecord,
    _folder,
    _parquet,
    _arrow,
    _npy,
    _shared_memory,
    _range,
]


@pytest.fixture(name="source", params=MAKERS, ids=lambda make: make.__name__[1:])
def _source(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    make: Callable[[Path], Any] = request.param
    return make(tmp_path)


def test_datasets_read_chunks_as_elements(source: Any) -> None:
    check_map_dataset(wg.MapDataset.source(source).shuffle(seed=3))


def test_the_repr_names_no_address(source: Any) -> None:
    assert "0x" not in repr(source)
    assert len(repr(source)) < 300


def test_workers_read_what_the_main_process_reads(source: Any) -> None:
    ds = wg.MapDataset.source(source).shuffle(seed=3).to_iter_dataset()
    expected = list(ds)
    found = list(ds.mp_prefetch(wg.MultiprocessingOptions(num_workers=2)))
    assert len(found) == 40
    assert found == expected


def test_a_loader_goes_on_from_its_state(source: Any) -> None:
    def loader() -> Any:
        return wg.load(source, num_epochs=1, shuffle=True, seed=3)

    it = iter(loader())
    for _ in range(10):
        next(it)
    state = it.get_state()
    rest = list(it)
    again = iter(loader())
    again.set_state(state)
    assert list(again) == rest
    assert len(rest) == 30


@pytest.mark.filterwarnings("ignore")
def test_array_records_are_read_as_by_grain(tmp_path: Path) -> None:
    pytest.importorskip("grain")
    grain: Any = pytest.importorskip("grain.sources")
    ours = _array_record(tmp_path)
    paths = ours.paths
    for given in (paths, paths[0], [f"{paths[0]}[3:9]", paths[1]], Path(paths[1])):
        theirs, mine = grain.ArrayRecordDataSource(given), sources.ArrayRecordDataSource(given)
        assert repr(mine) == repr(theirs)
        assert mine.paths == theirs.paths
        assert len(mine) == len(theirs)
        assert list(mine) == list(theirs) == [theirs[i] for i in range(len(theirs))]
        keys = [3, 0, 5, 3, len(theirs) - 1]
        assert mine.__getitems__(keys) == theirs.__getitems__(keys)
    for bad in ([], None, 5, [5], "missing"):
        with pytest.raises((ValueError, RuntimeError)) as expected:
            grain.ArrayRecordDataSource(bad)
        with pytest.raises(expected.type):
            sources.ArrayRecordDataSource(bad)  # type: ignore[arg-type]


@pytest.mark.filterwarnings("ignore")
def test_ranges_and_shared_memory_are_as_in_grain() -> None:
    pytest.importorskip("grain")
    grain: Any = pytest.importorskip("grain.sources")
    for bounds in ((0, 10, 3), (5, 0, -2), (0, 0, 1), (0, 1, -5)):
        theirs, ours = grain.RangeDataSource(*bounds), sources.RangeDataSource(*bounds)
        assert repr(ours) == repr(theirs)
        assert list(ours) == [theirs[i] for i in range(len(theirs))]
    values = [1, 2.5, True, "abc", b"xyz", None]
    their_memory, our_memory = (
        grain.SharedMemoryDataSource(values),
        sources.SharedMemoryDataSource(values),
    )
    assert list(our_memory) == [their_memory[i] for i in range(6)]
    assert our_memory.format == their_memory.format
    assert str(our_memory) == str(their_memory).replace(their_memory.shm.name, our_memory.shm.name)
    their_memory.unlink()
