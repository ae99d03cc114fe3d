import contextlib
import datetime as dt
import decimal
import os
import pickle
import random
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from tests.sources.files import damaged, survives, table, write_parquet
from wholegrain._core.difference import difference
from wholegrain.sources import ParquetDataSource
from wholegrain.sources._files import LocalFile
from wholegrain.sources._parquet_footer import read_footer, statistics_of
from wholegrain.testing import check_source

pa: Any = pytest.importorskip("pyarrow")


def example(count: int, start: int = 0) -> Any:
    indices = range(start, start + count)
    return table(
        {
            "number": list(indices),
            "text": [None if i % 5 == 4 else f"text {i}" for i in indices],
            "tokens": [list(range(i % 4)) for i in indices],
            "good": [i % 2 == 0 for i in indices],
        }
    )


@pytest.fixture(name="path")
def _path(tmp_path: Path) -> Path:
    return write_parquet(tmp_path / "a.parquet", example(30))


def test_reads_rows_as_dicts_in_any_order(path: Path) -> None:
    source = ParquetDataSource(path)
    assert len(source) == 30
    row = source[7]
    assert list(row) == ["number", "text", "tokens", "good"]
    assert (row["number"], row["text"], row["good"]) == (7, "text 7", False)
    assert [type(value) for value in row.values()] == [np.int64, str, np.ndarray, np.bool_]
    np.testing.assert_array_equal(row["tokens"], [0, 1, 2])
    assert source[4]["text"] is None
    keys = random.Random(0).choices(range(30), k=100)
    assert [row["number"] for row in source.__getitems__(keys)] == keys
    check_source(source)


def test_files_follow_each_other(path: Path, tmp_path: Path) -> None:
    write_parquet(tmp_path / "b.parquet", example(4).slice(0, 0))
    write_parquet(tmp_path / "c.parquet", example(13, start=30), row_group_size=100)
    source = ParquetDataSource(str(tmp_path / "*.parquet"))
    assert [row["number"] for row in source] == list(range(43))
    assert source.__getitems__([42, 29, 30, 0, 42])[0]["text"] == "text 42"
    check_source(source)


def test_reads_only_the_columns_asked_for_in_that_order(path: Path) -> None:
    source = ParquetDataSource(path, columns=["text", "number"])
    assert source[3] == {"text": "text 3", "number": 3}
    assert list(source[3]) == ["text", "number"]
    check_source(source)


COLUMNS: dict[str, tuple[Any, list[Any]]] = {
    "int": (pa.int32(), [1, 2, 3]),
    "unsigned": (pa.uint64(), [1, 2, 3]),
    "large": (pa.int64(), [2**60 + 1, 2, 3]),
    "float": (pa.float32(), [1.5, 2.5, 3.5]),
    "bool": (pa.bool_(), [True, False, True]),
    "string": (pa.string(), ["a", "", "long text " * 10]),
    "large_string": (pa.large_string(), ["a", "", "ü"]),
    "binary": (pa.binary(), [b"a", b"", b"\0"]),
    "fixed_binary": (pa.binary(2), [b"aa", b"bb", b"cc"]),
    "date": (pa.date32(), [dt.date(2020, 1, day) for day in (1, 2, 3)]),
    "timestamp": (pa.timestamp("us"), [dt.datetime(2020, 1, day) for day in (1, 2, 3)]),
    "time": (pa.time64("us"), [dt.time(hour) for hour in (1, 2, 3)]),
    "decimal": (pa.decimal128(5, 2), [decimal.Decimal("1.5")] * 3),
    "dictionary": (pa.dictionary(pa.int32(), pa.string()), ["a", "b", "a"]),
    "ints": (pa.list_(pa.int16()), [[1, 2], [], [3]]),
    "floats": (pa.large_list(pa.float64()), [[1.5], [], [2.5, 3.5]]),
    "bools": (pa.list_(pa.bool_()), [[True], [], [False, True]]),
    "strings": (pa.list_(pa.string()), [["a"], [], ["b", "c"]]),
    "pairs": (pa.list_(pa.int32(), 2), [[1, 2], [3, 4], [5, 6]]),
    "lists": (pa.list_(pa.list_(pa.int64())), [[[1]], [], [[2], [3, 4]]]),
    "struct": (pa.struct([("a", pa.int64())]), [{"a": 1}, {"a": 2}, {"a": None}]),
    "map": (pa.map_(pa.string(), pa.int64()), [[("a", 1)], [], [("b", 2)]]),
    "null": (pa.null(), [None, None, None]),
}


COLUMNS_TABLE = table(
    {name: [*values, None] for name, (_, values) in COLUMNS.items()},
    **{name: kind for name, (kind, _) in COLUMNS.items()},
)


@pytest.mark.parametrize("name", COLUMNS)
def test_values_are_those_of_to_numpy(tmp_path: Path, name: str) -> None:
    kind, values = COLUMNS[name]
    path = write_parquet(tmp_path / "a", table({name: values}, **{name: kind}), 2)
    parquet: Any = pytest.importorskip("pyarrow.parquet")
    file = parquet.ParquetFile(path)
    expected = [value for g in range(2) for value in file.read_row_group(g)[name].to_numpy()]
    source = ParquetDataSource(path)
    for rows in ([source[i] for i in range(3)], source.__getitems__([0, 1, 2, 0])[:3]):
        assert difference([row[name] for row in rows], expected) is None
        assert [type(row[name]) for row in rows] == [type(value) for value in expected]
    check_source(source)


@pytest.mark.parametrize("name", sorted(set(COLUMNS) - {"null"}))
def test_the_type_of_a_column_does_not_depend_on_the_row_group(tmp_path: Path, name: str) -> None:
    kind, values = COLUMNS[name]
    filled = values * 2
    missing = [*filled, None, values[0]]  # the last of four row groups
    path = write_parquet(tmp_path / "a", table({name: missing}, **{name: kind}), 2)
    rows = list(ParquetDataSource(path))
    kinds = {
        value.dtype if isinstance(value, np.ndarray) else type(value)
        for value in (row[name] for row in rows)
        if value is not None
    }
    assert len(kinds) == 1
    if name == "large":
        assert rows[0][name] == 2**60 + 1  # exactly
        assert rows[6][name] is None
    if name == "int":
        assert kinds == {np.float64}
        assert np.isnan(rows[6][name])


def test_lists_are_converted_row_group_by_row_group(tmp_path: Path) -> None:
    data = table({"x": [[1, 2], [], [3, None], [4], None, [5]]})
    rows = list(ParquetDataSource(write_parquet(tmp_path / "a", data, 2)))
    kinds = [None if row["x"] is None else row["x"].dtype for row in rows]
    assert kinds == [np.int64, np.int64, np.float64, np.float64, None, np.int64]


def test_opening_a_file_reads_no_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from wholegrain.sources._parquet_reader import ParquetFileReader

    path = write_parquet(tmp_path / "a", COLUMNS_TABLE, 2)
    monkeypatch.setattr(ParquetFileReader, "_read", None)
    assert len(ParquetDataSource(path)) == 4


def test_missing_values_are_seen_without_statistics(tmp_path: Path) -> None:
    data = table({"x": [1, 2, None, 4], "y": [2**60, 1, 2, None], "z": [1, 2, 3, 4]})
    path = write_parquet(tmp_path / "a", data, 2, write_statistics=False)
    rows = list(ParquetDataSource(path))
    assert {type(row["x"]) for row in rows} == {np.float64}
    assert [row["y"] for row in rows] == [2**60, 1, 2, None]
    assert {type(row["z"]) for row in rows} == {np.int64}


@pytest.mark.parametrize("width", [1, 300])
def test_statistics_are_those_that_arrow_finds(tmp_path: Path, width: int) -> None:
    parquet: Any = pytest.importorskip("pyarrow.parquet")
    data = COLUMNS_TABLE if width == 1 else table({f"{i}": [i, None, -i] for i in range(width)})
    path = write_parquet(tmp_path / "a", data, 2)
    metadata = parquet.ParquetFile(path).metadata
    footer = read_footer(LocalFile(str(path)))
    assert footer is not None
    found = statistics_of(footer)
    assert found is not None
    assert [len(columns) for columns in found] == [metadata.num_columns] * metadata.num_row_groups
    for group, columns in enumerate(found):
        for number, column in enumerate(columns):
            expected = metadata.row_group(group).column(number)
            if expected.statistics is None:
                assert column.null_count is None
                continue
            assert column.null_count == expected.statistics.null_count
            if expected.physical_type in ("INT32", "INT64") and expected.statistics.has_min_max:
                assert column.bounds is not None
                kind = np.dtype(expected.physical_type.lower()).newbyteorder("<")
                lowest, highest = np.frombuffer(b"".join(column.bounds), kind)
                assert (lowest, highest) == (
                    expected.statistics.min_raw,
                    expected.statistics.max_raw,
                )
                assert column.integers(signed=True) == (lowest, highest)


@given(st.binary(max_size=100))
def test_any_bytes_are_a_footer_or_not_one(data: bytes) -> None:
    statistics_of(data)
    # A list of a row group, with a list of a column, and what is known about it.
    for begin in (b"\x49\x1c", b"\x49\x1c\x19\x1c", b"\x49\x1c\x19\x1c\x3c\xcc"):
        statistics_of(begin + data)


def test_fields_of_another_type_are_skipped_and_a_part_is_no_footer() -> None:
    good = b"\x49\x1c\x19\x1c\x3c\xcc\x36\x0a\x00\x00\x00\x00\x00"
    found = statistics_of(good)
    assert found is not None
    assert found[0][0].null_count == 5
    as_int32 = statistics_of(good.replace(b"\x36", b"\x35"))
    assert as_int32 is not None
    assert as_int32[0][0].null_count is None
    for size in range(len(good)):
        assert statistics_of(good[:size]) is None


def test_missing_values_of_one_file_are_seen_in_all(tmp_path: Path) -> None:
    write_parquet(tmp_path / "a", table({"x": [1, 2]}))
    write_parquet(tmp_path / "b", table({"x": [3, None]}))
    source = ParquetDataSource([tmp_path / "a", tmp_path / "b"])
    assert {type(row["x"]) for row in source} == {np.float64}


@given(
    rows=st.lists(
        st.fixed_dictionaries(
            {
                "number": st.none() | st.integers(-(2**63), 2**63 - 1),
                "text": st.none() | st.text(),
                "tokens": st.none() | st.lists(st.integers(0, 9), max_size=3),
                "good": st.none() | st.booleans(),
            }
        ),
        max_size=12,
    ),
    row_group_size=st.integers(1, 5),
)
def test_what_is_written_comes_back(
    tmp_path_factory: pytest.TempPathFactory, rows: list[dict[str, Any]], row_group_size: int
) -> None:
    kinds = {"number": pa.int64(), "text": pa.string(), "good": pa.bool_()}
    kinds["tokens"] = pa.list_(pa.int64())
    columns = {name: [row[name] for row in rows] for name in kinds}
    path = tmp_path_factory.mktemp("rows") / "a"
    source = ParquetDataSource(write_parquet(path, table(columns, **kinds), row_group_size))
    found = source.__getitems__(range(len(rows)))
    for row, expected in zip(found, rows, strict=True):
        for name, value in expected.items():
            if name == "tokens" and value is not None:
                assert row[name].tolist() == value
            elif name == "number" and value is None:
                assert row[name] is None or np.isnan(row[name])
            else:
                assert row[name] == value
    check_source(source)


def test_changing_a_row_does_not_change_the_next_read(tmp_path: Path) -> None:
    data = table({"s": [{"a": 1}] * 9, "l": [["x"]] * 9, "b": [[True, False]] * 9, "n": [[1]] * 9})
    source = ParquetDataSource(write_parquet(tmp_path / "a", data, 100))
    for row in (source[0], *source.__getitems__(range(9))):
        row["s"]["a"] = 99
        row["l"][0] = "changed"
        row["b"][0] = False
        row["new"] = 1
        with pytest.raises(ValueError, match="read-only"):
            row["n"][0] = 5
    row = source[0]
    assert row["s"] == {"a": 1}
    assert row["l"].tolist() == ["x"]
    assert row["b"].tolist() == [True, False]
    assert list(row) == ["s", "l", "b", "n"]


def test_row_groups_are_kept_up_to_the_number_of_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from wholegrain.sources._parquet_reader import ParquetFileReader

    decoded = []
    columns = ParquetFileReader.columns

    def counting(self: ParquetFileReader, piece: int, forms: Any) -> Any:
        decoded.append(piece)
        return columns(self, piece, forms)

    monkeypatch.setattr(ParquetFileReader, "columns", counting)
    path = write_parquet(tmp_path / "a", table({"x": list(range(4000))}), 1000)
    source = ParquetDataSource(path, cache_bytes=2 * 8000)
    for key in (0, 1000, 1, 1001, 2000, 2, 1002, 2001):
        source[key]
    assert decoded == [0, 1, 2, 0, 1, 2]
    decoded.clear()
    source = ParquetDataSource(path, cache_bytes=0)
    for key in (0, 1, 2, 1000, 0):
        source[key]
    assert decoded == [0, 1, 0]


def test_threads_decode_a_row_group_once(path: Path) -> None:
    source = ParquetDataSource(path)
    with ThreadPoolExecutor(8) as pool:
        rows = list(pool.map(source.__getitem__, [i % 30 for i in range(600)]))
    assert [row["number"] for row in rows] == [i % 30 for i in range(600)]


def test_a_forked_child_reads_too(path: Path) -> None:
    source = ParquetDataSource(path)
    source.__getitems__(range(30))
    pickled = pickle.dumps(source)
    child = os.fork()
    if child == 0:
        same = [row["number"] for row in source] == list(range(30))
        fresh = [row["number"] for row in pickle.loads(pickled)] == list(range(30))
        os._exit(0 if same and fresh else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_the_repr_names_files_and_columns(path: Path) -> None:
    source = ParquetDataSource(path, columns=["text"])
    assert repr(source) == f"ParquetDataSource({str(path)!r}, columns=['text'], len=30)"
    assert len(pickle.dumps(source)) < 1000


def test_arguments_of_pyarrow_are_passed_on(path: Path) -> None:
    assert ParquetDataSource(path, memory_map=True)[3]["number"] == 3
    with pytest.raises(TypeError, match="no_such_option"):
        ParquetDataSource(path, no_such_option=1)


# Bad input.


def test_no_paths_are_refused() -> None:
    with pytest.raises(ValueError, match="at least one path"):
        ParquetDataSource([])


@pytest.mark.parametrize("key", [-1, 30])
def test_keys_outside_are_refused(path: Path, key: int) -> None:
    source = ParquetDataSource(path)
    for keys in ([key], [0, 1, 2, 3, key]):
        with pytest.raises(IndexError, match="records 0 to 29"):
            source.__getitems__(keys)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="missing"):
        ParquetDataSource(tmp_path / "missing")


def test_a_missing_column_is_named(path: Path) -> None:
    with pytest.raises(ValueError, match=r"a\.parquet' has no column 'txt'; its columns are"):
        ParquetDataSource(path, columns=["txt"])
    with pytest.raises(TypeError, match="sequence of names"):
        ParquetDataSource(path, columns="text")


def test_files_with_different_columns_are_refused(path: Path, tmp_path: Path) -> None:
    other = write_parquet(tmp_path / "other", table({"number": ["1"], "text": ["a"]}))
    with pytest.raises(ValueError, match=r"a\.parquet' has number: int64.*other' has number: str"):
        ParquetDataSource([path, other])
    assert len(ParquetDataSource([path, other], columns=["text"])) == 31


def test_a_file_cut_off_or_of_another_format_is_named(path: Path, tmp_path: Path) -> None:
    whole = path.read_bytes()
    other = tmp_path / "other"
    for content in (b"", b"abc", b"x" * 1000, whole[: len(whole) // 2], whole[:-1]):
        other.write_bytes(content)
        with pytest.raises((ValueError, OSError), match="other"):
            ParquetDataSource(other)


def test_a_damaged_row_group_is_named(tmp_path: Path) -> None:
    data = table({"x": [f"{i:064d}" for i in range(100)]})
    path = write_parquet(tmp_path / "damaged", data, 50, use_dictionary=False)
    content = bytearray(path.read_bytes())
    content[10:200] = b"\xff" * 190
    path.write_bytes(content)
    source = ParquetDataSource(path)
    with pytest.raises((ValueError, OSError), match="damaged', row group 0"):
        source[0]
    assert source[50]["x"] == f"{50:064d}"


def test_damaged_data_never_ends_the_process(tmp_path: Path) -> None:
    whole = write_parquet(tmp_path / "a", COLUMNS_TABLE, 2).read_bytes()
    data_size = len(whole) - 8 - int.from_bytes(whole[-8:-4], "little")
    rng = random.Random(0)
    path = tmp_path / "damaged"

    def read_damaged() -> None:
        for _ in range(150):
            path.write_bytes(damaged(whole, rng, data_size))
            with contextlib.suppress(ValueError, OSError, MemoryError, NotImplementedError):
                list(ParquetDataSource(path))

    assert survives(read_damaged)


def test_a_damaged_footer_never_ends_the_process_and_names_the_file(tmp_path: Path) -> None:
    columns: dict[str, Any] = {
        "n": [1, 2, None, 4],
        "t": ["a", None, "b", "c"],
        "d": [b"xy", None] * 2,
    }
    small = table(columns, d=pa.binary(2))
    path = tmp_path / "damaged"

    def read_damaged() -> None:
        # Most of the footer may be a copy of Arrow's schema, which hides the rest from damage.
        for data, store_schema in ((small, True), (small, False), (COLUMNS_TABLE, False)):
            whole = write_parquet(tmp_path / "a", data, 2, store_schema=store_schema).read_bytes()
            footer_size = int.from_bytes(whole[-8:-4], "little")
            start = len(whole) - 8 - footer_size
            rng = random.Random(0)
            for _ in range(250):
                path.write_bytes(whole[:start] + damaged(whole[start:], rng))
                try:
                    list(ParquetDataSource(path))
                except (ValueError, OSError, MemoryError, NotImplementedError) as error:
                    assert "damaged" in str(error), repr(error)  # noqa: PT017

    assert survives(read_damaged)
