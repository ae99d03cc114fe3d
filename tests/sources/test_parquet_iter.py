import datetime as dt
import json
import pickle
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import wholegrain as wg
from tests.sources.files import table, write_parquet
from wholegrain.experimental import ParquetIterDataset
from wholegrain.testing import check_iter_dataset, difference

pa: Any = pytest.importorskip("pyarrow")
pq: Any = pytest.importorskip("pyarrow.parquet")


def numbers(start: int, stop: int) -> Any:
    indices = range(start, stop)
    return table({"x": list(indices), "t": [f"text {i}" for i in indices]}, x=pa.int64())


@pytest.fixture(name="path")
def _path(tmp_path: Path) -> Path:
    return write_parquet(tmp_path / "a.parquet", numbers(0, 10))


def write_files(folder: Path, sizes: Sequence[int]) -> list[str]:
    paths = []
    for i, size in enumerate(sizes):
        data = numbers(100 * i, 100 * i + size)
        paths.append(str(write_parquet(folder / f"{i:02d}.parquet", data)))
    return paths


def xs(ds: Any) -> list[int]:
    return [int(row["x"]) for row in ds]


def test_reads_the_rows_of_a_file_in_order(path: Path) -> None:
    ds = ParquetIterDataset(str(path))
    rows = list(ds)
    assert rows == [{"x": i, "t": f"text {i}"} for i in range(10)]
    assert type(rows[0]["x"]) is np.int64
    check_iter_dataset(ds)
    check_iter_dataset(ds.map(lambda row: row["x"]).filter(lambda x: x % 3 > 0).batch(2))


def test_the_state_is_the_row_group_and_the_row_in_it(path: Path) -> None:
    it = iter(ParquetIterDataset(str(path)))
    states = [it.get_state()]
    for _ in range(10):
        next(it)
        states.append(it.get_state())
    expected = [(0, 0), (0, 1), (0, 2), (0, 3), (0, 4), (1, 1), (1, 2), (1, 3), (1, 4), (2, 1)]
    expected.append((2, 2))
    assert states == [{"row_group": g, "index_within_row_group": i} for g, i in expected]
    with pytest.raises(StopIteration):
        next(it)
    assert it.get_state() == states[-1]
    it.set_state({"row_group": 1, "index_within_row_group": 0})
    assert next(it)["x"] == 4


def test_a_row_group_that_is_not_there_is_an_error(path: Path) -> None:
    it = iter(ParquetIterDataset(str(path)))
    with pytest.raises(ValueError, match=r"a\.parquet', row group 7"):
        it.set_state({"row_group": 7, "index_within_row_group": 0})
    assert next(it)["x"] == 0


def test_reads_several_files_in_turn(tmp_path: Path) -> None:
    ds = ParquetIterDataset(write_files(tmp_path, [3, 1, 5]))
    assert xs(ds) == [0, 100, 200, 1, 201, 2, 202, 203, 204]
    check_iter_dataset(ds)
    check_iter_dataset(ParquetIterDataset(write_files(tmp_path, [2, 0, 3] * 7)))


def test_no_thread_runs_single_rows_ahead(tmp_path: Path) -> None:
    it = iter(ParquetIterDataset(write_files(tmp_path, [9, 5])))
    before = set(threading.enumerate())
    it.start_prefetch()
    assert next(it)["x"] == 0
    # Rows are run ahead by row groups, and these are small. Only the next file may be opened.
    names = {thread.name for thread in set(threading.enumerate()) - before}
    assert all(name.startswith("wholegrain-open") for name in names)
    assert xs(it) == [100, 1, 101, 2, 102, 3, 103, 4, 104, 5, 6, 7, 8]


def test_the_state_of_several_files_is_that_of_an_interleaved_dataset(tmp_path: Path) -> None:
    it = iter(ParquetIterDataset(write_files(tmp_path, [9, 2])))
    for _ in range(3):
        next(it)
    assert it.get_state() == {
        "next_index_in_cycle": 1,
        "next_index_in_datasets": 2,
        "iterators_in_use_indices": [0, 1],
        "iterators_in_use_states": [
            {"row_group": 0, "index_within_row_group": 2},
            {"row_group": 0, "index_within_row_group": 1},
        ],
        "exhausted": [0, 0],
        "future_states": {},
    }


def test_reads_globs_path_objects_and_bytes(path: Path, tmp_path: Path) -> None:
    assert xs(ParquetIterDataset(path)) == list(range(10))
    assert xs(ParquetIterDataset(bytes(path))) == list(range(10))
    assert xs(ParquetIterDataset([path])) == list(range(10))
    assert xs(ParquetIterDataset(str(tmp_path / "*.parquet"))) == list(range(10))


def test_no_files_are_an_empty_dataset() -> None:
    ds = ParquetIterDataset([])
    assert list(ds) == []
    check_iter_dataset(ds)


def test_a_slice_keeps_a_part_of_the_files(tmp_path: Path) -> None:
    paths = write_files(tmp_path, [2, 2, 2])
    ds = ParquetIterDataset(paths)
    ds.set_slice(slice(1, None, 2))
    assert xs(ds) == [100, 101]
    ds.set_slice(slice(3, None, 4))
    assert xs(ds) == []


def test_a_slice_of_one_file_keeps_a_part_of_its_row_groups(path: Path) -> None:
    shares = []
    for worker in range(4):
        ds = ParquetIterDataset(path)
        ds.set_slice(slice(worker, None, 4))
        shares.append(xs(ds))
        check_iter_dataset(ds)
    assert shares == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9], []]
    ds = ParquetIterDataset(path)
    ds.set_slice(slice(0, 1))
    assert xs(ds) == list(range(10))


@pytest.mark.parametrize("num_workers", [1, 2, 3])
def test_workers_share_files_and_row_groups(tmp_path: Path, num_workers: int) -> None:
    options = wg.MultiprocessingOptions(num_workers=num_workers)
    paths = write_files(tmp_path, [9, 5])
    for ds in (ParquetIterDataset(paths), ParquetIterDataset(paths[0])):
        assert sorted(xs(ds.mp_prefetch(options))) == sorted(xs(ds))


def test_the_type_of_a_column_does_not_depend_on_the_row_group(tmp_path: Path) -> None:
    data = table({"x": [1, 2, 3, 4, 5, None], "b": [True] * 5 + [None], "i": list(range(6))})
    rows = list(ParquetIterDataset(write_parquet(tmp_path / "a", data, 2)))
    assert {type(row["x"]) for row in rows} == {np.float64}
    assert [type(row["b"]) for row in rows] == [bool] * 5 + [type(None)]
    assert {type(row["i"]) for row in rows} == {np.int64}


def test_row_groups_larger_than_a_block_are_read_right(tmp_path: Path) -> None:
    path = write_parquet(tmp_path / "a", numbers(0, 5000), 3000)
    ds = ParquetIterDataset(path)
    assert xs(ds) == list(range(5000))
    it = iter(ds)
    it.set_state({"row_group": 0, "index_within_row_group": 2047})
    assert [next(it)["x"] for _ in range(1000)] == list(range(2047, 3047))
    assert it.get_state() == {"row_group": 1, "index_within_row_group": 47}
    assert xs(ds.batch(7).map(lambda batch: {"x": len(batch["x"])})) == [7] * 714 + [2]


@pytest.fixture(name="reads_ahead")
def _reads_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let row groups be read in the background however small they are."""
    from wholegrain.sources import _parquet_sequential

    monkeypatch.setattr(_parquet_sequential, "_LEAST_BYTES_AHEAD", 0)


@pytest.mark.usefixtures("reads_ahead")
def test_row_groups_that_are_read_ahead_come_in_order(path: Path) -> None:
    ds = ParquetIterDataset(path)
    assert xs(ds) == list(range(10))
    check_iter_dataset(ds)
    check_iter_dataset(ds.map(lambda row: row["x"]).batch(3))
    it = iter(ds)
    next(it)
    it.set_state({"row_group": 2, "index_within_row_group": 0})
    assert xs(it) == [8, 9]


@pytest.mark.usefixtures("reads_ahead")
def test_an_error_in_a_row_group_that_is_read_ahead_comes_in_its_turn(tmp_path: Path) -> None:
    path = write_parquet(tmp_path / "damaged", numbers(0, 10))
    content = bytearray(path.read_bytes())
    start = pq.read_metadata(path).row_group(1).column(0).data_page_offset
    content[start : start + 8] = b"\xff" * 8
    path.write_bytes(content)
    it = iter(ParquetIterDataset(path))
    assert [next(it)["x"] for _ in range(4)] == [0, 1, 2, 3]
    with pytest.raises((ValueError, OSError), match=r"damaged', row group 1"):
        next(it)
    assert it.get_state() == {"row_group": 0, "index_within_row_group": 4}


@pytest.mark.usefixtures("reads_ahead")
def test_no_thread_is_left_behind(path: Path) -> None:
    before = set(threading.enumerate())
    it = iter(ParquetIterDataset(path))
    next(it)
    mine = set(threading.enumerate()) - before
    assert mine
    it.close()
    for thread in mine:
        thread.join(30)
        assert not thread.is_alive()


@pytest.mark.parametrize("batch_size", [1, 3, 7])
def test_batches_out_of_columns_are_those_of_rows(tmp_path: Path, batch_size: int) -> None:
    columns: dict[str, list[Any]] = {
        "z": list(range(23)),
        "small": [i % 5 for i in range(23)],
        "score": [i / 7 for i in range(23)],
        "flag": [i % 2 == 0 for i in range(23)],
        "text": [f"row {i}" for i in range(23)],
        "data": [bytes(i) for i in range(23)],
        "some": [None if i == 20 else i for i in range(23)],
        "pair": [[i, i + 1] for i in range(23)],
        "day": [dt.date(2024, 1, 1 + i) for i in range(23)],
    }
    data = table(columns, small=pa.uint8(), score=pa.float32())
    ds: Any = ParquetIterDataset(write_parquet(tmp_path / "a", data, 9))
    batches = list(ds.batch(batch_size))
    for found, expected in zip(batches, ds.map(dict).batch(batch_size), strict=True):
        assert difference(expected, found, key_order=True) is None
    batches[0]["z"][:] = -1  # They belong to whoever got them.
    assert xs(ds.map(lambda row: {"x": row["z"]})) == list(range(23))
    check_iter_dataset(ds.batch(batch_size))
    it: Any = iter(ds.batch(2))
    next(it)
    next(it)
    assert it.get_state() == {"row_group": 0, "index_within_row_group": 4}


def test_lists_that_do_not_fit_together_are_shown(tmp_path: Path) -> None:
    data = table({"x": [[1], [2], [3], [4, 5], [6]]})
    it: Any = iter(ParquetIterDataset(write_parquet(tmp_path / "a", data, 5)).batch(2))
    assert next(it)["x"].tolist() == [[1], [2]]
    with pytest.raises(ValueError, match="Cannot batch 2 elements"):
        next(it)


def test_a_map_that_fails_sees_the_row_unchanged_the_next_time(path: Path) -> None:
    failures = iter([5])

    def fail_once(row: dict[str, Any]) -> int:
        x = int(row.pop("x"))
        if x == 5 and next(failures, None):
            raise RuntimeError("once")
        return x

    it = iter(ParquetIterDataset(path).map(fail_once))
    assert [next(it) for _ in range(5)] == [0, 1, 2, 3, 4]
    with pytest.raises(RuntimeError, match="once"):
        next(it)
    assert [next(it) for _ in range(4)] == [6, 7, 8, 9]


def test_the_file_is_opened_for_the_first_row(tmp_path: Path) -> None:
    path = write_parquet(tmp_path / "a", numbers(0, 5))
    content = path.read_bytes()
    path.write_bytes(b"not yet")
    it = iter(ParquetIterDataset(path))
    assert it.get_state() == {"row_group": 0, "index_within_row_group": 0}
    path.write_bytes(content)
    assert next(it)["x"] == 0


def test_the_dataset_is_pickled_by_its_paths(path: Path) -> None:
    ds = pickle.loads(pickle.dumps(ParquetIterDataset(path, memory_map=True)))
    assert xs(ds) == list(range(10))


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="missing"):
        iter(ParquetIterDataset(str(tmp_path / "missing")))
    with pytest.raises(FileNotFoundError, match="missing"):
        list(ParquetIterDataset([str(tmp_path / "missing"), str(tmp_path / "too")]))


def test_unknown_arguments_are_refused(path: Path) -> None:
    with pytest.raises(TypeError, match="columns"):
        iter(ParquetIterDataset(path, columns=["x"]))
    with pytest.raises(TypeError, match="no_such"):
        list(ParquetIterDataset(path, no_such=1))


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "damaged"
    for content in (b"", b"x" * 1000):
        path.write_bytes(content)
        with pytest.raises((ValueError, OSError), match="damaged"):
            list(ParquetIterDataset(path))


def test_texts_and_binary_values_are_those_of_arrow(tmp_path: Path) -> None:
    texts = [["", "Grüße", "漢字 🌾", "x" * 1000][i % 4] for i in range(40)]
    stored = [text.encode() for text in texts]
    some = [None if i % 7 == 3 else text for i, text in enumerate(texts)]
    columns: dict[str, list[Any]] = {
        "t": texts,
        "large": texts,
        "b": stored,
        "large_b": stored,
        "some": some,
    }
    columns |= {"empty": [""] * 40, "category": texts}
    category = pa.dictionary(pa.int32(), pa.string())
    data = table(columns, large=pa.large_string(), large_b=pa.large_binary(), category=category)
    ds: Any = ParquetIterDataset(write_parquet(tmp_path / "a", data, 9))
    expected = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    assert list(ds) == expected
    assert type(next(iter(ds))["b"]) is bytes
    check_iter_dataset(ds)
    it = iter(ds)
    it.set_state({"row_group": 2, "index_within_row_group": 4})
    assert list(it) == expected[22:]


def test_rows_and_batches_may_take_turns(tmp_path: Path) -> None:
    it: Any = ParquetIterDataset(write_parquet(tmp_path / "a", numbers(0, 30), 20)).open()
    assert next(it) == {"x": 0, "t": "text 0"}
    assert it.take_stacked(2)["t"].tolist() == ["text 1", "text 2"]
    assert next(it) == {"x": 3, "t": "text 3"}
    it.put_back(1)
    assert it.take_stacked(1)["t"].tolist() == ["text 3"]
    assert it.get_state() == {"row_group": 0, "index_within_row_group": 4}


@pytest.mark.parametrize("group", [0, 1])
def test_text_that_is_no_text_is_an_error_that_names_the_file(tmp_path: Path, group: int) -> None:
    values = [b"good"] * 8
    values[4 * group + 2] = b"bad \xff"
    column = pa.array(values, pa.binary()).cast(pa.string(), safe=False)
    path = tmp_path / "damaged"
    pq.write_table(pa.table({"t": column}), path, row_group_size=4)
    it = iter(ParquetIterDataset(path))
    for _ in range(4 * group):
        next(it)
    with pytest.raises((ValueError, pa.ArrowException), match=rf"damaged', row group {group}.*bad"):
        next(it)


@pytest.mark.usefixtures("reads_ahead")
def test_an_error_in_the_first_row_group_names_the_file(tmp_path: Path) -> None:
    path = write_parquet(tmp_path / "damaged", numbers(0, 10))
    content = bytearray(path.read_bytes())
    content[4:12] = b"\xff" * 8
    path.write_bytes(content)
    it = iter(ParquetIterDataset(path))
    for _ in range(2):
        with pytest.raises((ValueError, OSError), match=r"damaged', row group 0"):
            next(it)
        assert it.get_state() == {"row_group": 0, "index_within_row_group": 0}


def test_a_report_knows_all_rows(tmp_path: Path) -> None:
    count = 3000
    ds = ParquetIterDataset(write_parquet(tmp_path / "a", numbers(0, count), 2000))
    it = iter(ds)
    for given in range(1, count + 1):
        assert next(it)["x"] == given - 1
        assert it.get_state()["index_within_row_group"] == (given - 1) % 2000 + 1
        if given in (10, 2000, 2500, count):
            (stage,) = it.report().stages
            assert stage.elements == pytest.approx(given, rel=0.02)  # It is an estimate.
    assert list(it) == []
    report = it.report()
    (stage,) = report.stages
    assert stage.elements == pytest.approx(count, rel=0.02)
    assert stage.seconds == pytest.approx(report.wait_seconds, rel=0.3)
    assert report.wait_seconds > 0
    assert report.loop_seconds >= 0
    assert it.report().loop_seconds == report.loop_seconds  # It is over.


def test_a_report_of_rows_in_workers_knows_them_too(tmp_path: Path) -> None:
    path = write_parquet(tmp_path / "a", numbers(0, 300), 50)
    it = iter(ParquetIterDataset(path).mp_prefetch(wg.MultiprocessingOptions(num_workers=2)))
    assert len(list(it)) == 300
    assert it.report().stage("parquet").elements == 300


def test_a_closed_iterator_keeps_its_state(path: Path) -> None:
    it = iter(ParquetIterDataset(path))
    next(it)
    it.close()
    assert it.get_state() == {"row_group": 0, "index_within_row_group": 1}
    with pytest.raises(ValueError, match="closed"):
        next(it)


# The same in Grain.


@pytest.fixture(name="grain")
def _grain() -> Any:
    pytest.importorskip("grain")
    return pytest.importorskip("grain.experimental")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("sizes", [[10], [9, 2], [1] * 20, [5, 0, 7, 3]])
def test_elements_states_and_restores_are_those_of_grain(
    tmp_path: Path, grain: Any, sizes: list[int]
) -> None:
    paths = write_files(tmp_path, sizes)
    path: Any = paths[0] if len(paths) == 1 else paths
    theirs, ours = iter(grain.ParquetIterDataset(path)), iter(ParquetIterDataset(path))
    states = []
    while True:
        # Asking Grain's interleaved iterator for a state opens files: ask both at the same time.
        states.append(theirs.get_state())
        assert json.dumps(ours.get_state()) == json.dumps(states[-1])
        row = next(theirs, None)
        found = next(ours, None)
        assert found == row
        if row is None:
            break
        assert found is not None
        assert [type(value) for value in found.values()] == [type(v) for v in row.values()]
    # After the end, Grain's position in the cycle goes on; the rest is the same.
    everything = xs(grain.ParquetIterDataset(path))
    for step, state in enumerate(states):
        theirs, ours = iter(grain.ParquetIterDataset(path)), iter(ParquetIterDataset(path))
        theirs.set_state(state)
        ours.set_state(json.loads(json.dumps(state)))
        assert xs(ours) == xs(theirs) == everything[step:]
