"""CSV files: the rows are those of Python's csv module, whatever the quotes."""

import csv
import io
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wholegrain.experimental import CsvIterDataset
from wholegrain.sources import CsvDataSource, DataFileError
from wholegrain.sources._line_scan import scan_csv, scan_csv_exactly
from wholegrain.testing import check_source


def write(path: Path, rows: list[list[str]], **settings: str) -> Path:
    out = io.StringIO(newline="")
    csv.writer(out, **settings).writerows(rows)  # type: ignore[arg-type]
    path.write_bytes(out.getvalue().encode())
    return path


FIELDS = ["", "plain", 'a "quote"', '"', '""', "two\nlines", "win\r\ndows\n", ",", "é\u2028", "\t"]
ROWS = [[FIELDS[n % 10], FIELDS[n * 7 % 9], str(n)] for n in range(300)]


@pytest.mark.parametrize("ending", ["\n", "\r\n"])
def test_reads_what_was_written(ending: str, tmp_path: Path) -> None:
    columns = ["a", "b b", "n"]
    path = write(tmp_path / "a.csv", [columns, *ROWS], lineterminator=ending)
    source = CsvDataSource(path)
    assert [list(row.values()) for row in source] == ROWS
    assert list(source[0]) == columns
    check_source(source)
    assert list(CsvDataSource(path, fields=["n", "a"]))[7] == {"n": "7", "a": ROWS[7][0]}


def test_other_settings(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tsv", ROWS, delimiter="\t", quotechar="'")
    source = CsvDataSource(path, columns=["x", "y", "z"], delimiter="\t", quotechar="'")
    assert [list(row.values()) for row in source] == ROWS
    path.write_bytes(b'5" disk\t"\nx\ty\n')
    source = CsvDataSource(path, columns=["x", "y"], delimiter="\t", quotechar=None)
    assert list(source) == [{"x": '5" disk', "y": '"'}, {"x": "x", "y": "y"}]
    # With other settings, the index is another one.
    assert len(CsvDataSource(path, columns=["x", "y"], delimiter="\t")) == 1


_TEXT = st.text(st.sampled_from('a",\n\r é'), max_size=30)


def _stdlib(text: str) -> list[list[str]] | None:
    try:
        return [row for row in csv.reader(io.StringIO(text, newline="\n")) if row]
    except csv.Error:
        return None


@given(text=_TEXT, block=st.integers(1, 9))
def test_rows_are_those_of_the_standard_library(text: str, block: int) -> None:
    expected = _stdlib(text)
    content = text.encode()
    blocks = [content[start : start + block] for start in range(0, len(content), block)]
    if expected is None:
        return
    rows = scan_csv("a", lambda: blocks, ",", '"')
    exact = scan_csv_exactly("a", blocks, ",", '"')
    assert rows.starts.tolist() == exact.starts.tolist()
    count = len(rows.starts) - 1
    assert [rows.line(row) for row in range(count)] == [exact.line(row) for row in range(count)]
    width = len(expected[0]) if expected else 0
    if any(len(row) != width for row in expected) or not expected:
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "a.csv")
        path.write_bytes(content)
        source = CsvDataSource(path, columns=[str(number) for number in range(width)])
        assert [list(row.values()) for row in source] == expected


def test_errors_name_file_and_line(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(b'\na,b\n\n"1\n2",3\n4\n5,6\n7,\xff\n8,"9"x"\n')
    source = CsvDataSource(path)
    assert source[0] == {"a": "1\n2", "b": "3"}
    with pytest.raises(DataFileError, match=r"a.csv', line 6: It has 1 fields.* 2 columns: a, b"):
        source[1]
    assert source[2] == {"a": "5", "b": "6"}
    with pytest.raises(DataFileError, match=r"a.csv', line 8: .*UTF-8"):
        source[3]
    path.write_bytes(b"a,b\n1,2\n3\r4,5\n")
    with pytest.raises(DataFileError, match=r"a.csv', line 3: .*not valid CSV"):
        CsvDataSource(path)[1]
    with pytest.raises(ValueError, match=r"no column 'c'. The columns are a, b"):
        CsvDataSource(path, fields=["c"])
    path.write_bytes(b"\na,\xff\n1,2\n")
    for reader in (CsvDataSource, CsvIterDataset):
        with pytest.raises(DataFileError, match=r"a.csv', line 2: .*UTF-8"):
            list(reader(path))
    path.write_bytes(b"a,a\n1,2\n")
    with pytest.raises(ValueError, match="different names"):
        CsvDataSource(path)
    for settings in ({"delimiter": ""}, {"delimiter": "é"}, {"quotechar": ",,"}):
        with pytest.raises(ValueError, match="one ASCII character"):
            CsvDataSource(path, **settings)


def test_files_need_the_same_columns(tmp_path: Path) -> None:
    first, second = tmp_path / "1.csv", tmp_path / "2.csv"
    first.write_bytes(b"a,b\n1,2\n")
    second.write_bytes(b"\xef\xbb\xbfa,b\n3,4\n")
    assert [row["a"] for row in CsvDataSource([first, second])] == ["1", "3"]
    second.write_bytes(b"b,a\n3,4\n")
    with pytest.raises(DataFileError, match=r"2.csv' has the columns b, a, but .*1.csv' has a, b"):
        CsvDataSource([first, second])
    second.write_bytes(b"")
    assert len(CsvDataSource([first, second])) == 1


def test_long_fields_are_read(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(b"a\n" + b"x" * 1_000_000 + b"\n")
    assert len(CsvDataSource(path)[0]["a"]) == 1_000_000


def test_long_quoted_fields_are_read_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = csv.field_size_limit(1 << 17)  # Python's default
    try:
        rows = [["1", "\n".join(["x" * 1000] * 200)], ["y" * 200_000 + "\nz", "2"], ["3", "4"]]
        path = write(tmp_path / "a.csv", [["a", "b"], *rows])
        assert [list(row.values()) for row in CsvIterDataset(path)] == rows
    finally:
        csv.field_size_limit(before)
    monkeypatch.setattr("wholegrain.sources.line_iter.LONGEST_ROW", 10_000)
    with pytest.raises(DataFileError, match=r"a.csv', the row at byte 5: .*quote not closed"):
        next(iter(CsvIterDataset(path)))
