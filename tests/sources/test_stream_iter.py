"""Files in order, without an index: the same records, with exact states."""

import csv
import gzip
import io
import json
from pathlib import Path
from typing import Any

import pytest

import wholegrain as wg
from tests.sources.test_jsonl import CONTENT, FORMS, ROWS
from tests.sources.test_tar import expected, files_of, tar_bytes
from wholegrain.experimental import (
    CsvIterDataset,
    JsonlIterDataset,
    TarIterDataset,
    TextLineIterDataset,
)
from wholegrain.sources import CsvDataSource, DataFileError
from wholegrain.testing import check_iter_dataset


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("block", [50, 1 << 18])
def test_jsonl(form: str, block: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wholegrain.sources._stream._BLOCK_BYTES", block)
    path = tmp_path / "data"
    path.write_bytes(FORMS[form])
    ds = JsonlIterDataset(path)
    assert list(ds) == ROWS
    assert [json.loads(text) for text in JsonlIterDataset(path, parse=False)] == ROWS
    if block == 50:
        check_iter_dataset(ds, max_restores=5)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["data"]  # no index, no copy


def test_a_state_is_small_and_exact(tmp_path: Path) -> None:
    for number in range(3):
        (tmp_path / f"{number}.jsonl").write_bytes(CONTENT if number != 1 else b"\n\n")
    ds = JsonlIterDataset(str(tmp_path / "*.jsonl"), fields=["n"])
    everything = list(ds)
    assert everything == [{"n": row["n"]} for row in ROWS] * 2
    it = iter(ds)
    for steps in range(0, 401, 37):
        it = iter(ds)
        taken = [next(it) for _ in range(steps)]
        state = json.loads(json.dumps(it.get_state()))
        assert set(state) == {"file", "offset", "line"}
        other = iter(ds)
        other.set_state(state)
        assert taken + list(other) == everything
    check_iter_dataset(ds.batch(7), max_restores=5)
    with pytest.raises(ValueError, match="it is in file 9, but there are 3"):
        it.set_state({"file": 9, "offset": 0, "line": 0})
    with pytest.raises(ValueError, match="lacks 'offset'"):
        it.set_state({"file": 0})
    before = it.get_state()
    for offset in (3, 10**9):
        with pytest.raises(ValueError, match=rf"no record of .*0.jsonl' starts at byte {offset}"):
            it.set_state({"file": 0, "offset": offset, "line": 1})
        assert it.get_state() == before


def test_a_bad_line_is_named_and_the_next_follows(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"1\n\n2\n{bad\n3\n\xff\n")
    it = iter(JsonlIterDataset(path))
    assert [next(it), next(it)] == [1, 2]
    state = it.get_state()
    with pytest.raises(DataFileError, match=r"a.jsonl', line 4: It is not valid JSON"):
        next(it)
    assert next(it) == 3
    with pytest.raises(DataFileError, match=r"a.jsonl', line 6: .*UTF-8"):
        next(it)
    with pytest.raises(StopIteration):
        next(it)
    it.set_state(state)
    with pytest.raises(DataFileError, match="line 4"):
        next(it)
    assert next(it) == 3


@pytest.mark.parametrize("form", ["gzip", "zstd of many frames"])
def test_a_truncated_file_never_ends_quietly(form: str, tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl.gz"
    path.write_bytes(FORMS[form][:-20])
    it = iter(JsonlIterDataset(path))
    found: list[Any] = []
    with pytest.raises(DataFileError, match=r"a.jsonl.gz"):
        found.extend(it)
    assert found == ROWS[: len(found)]
    with pytest.raises(DataFileError, match=r"a.jsonl.gz"):
        next(it)


def test_text(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"\xef\xbb\xbfa\n\nb\r\nc")
    ds = TextLineIterDataset(path)
    assert list(ds) == ["a", "", "b", "c"]
    assert list(TextLineIterDataset(path, as_bytes=True)) == [b"a", b"", b"b", b"c"]
    check_iter_dataset(ds)


def test_csv(tmp_path: Path) -> None:
    fields = ["plain", 'a "quote"', "two\nlines", "win\r\ndows", "", ",", "é"]
    rows = [[fields[n % 7], fields[n * 3 % 7], str(n)] for n in range(80)]
    for number, columns in enumerate((["a", "b", "n"], ["n", "b", "a"])):
        out = io.StringIO(newline="")
        csv.writer(out).writerows([columns, *rows, []])
        (tmp_path / f"{number}.csv").write_bytes(b"\r\n" * number + out.getvalue().encode())
    ds = CsvIterDataset(tmp_path / "0.csv")
    assert list(ds) == list(CsvDataSource(tmp_path / "0.csv"))
    check_iter_dataset(ds, max_restores=6)
    both = CsvIterDataset(str(tmp_path / "*.csv"), ["n"])
    assert [row["n"] for row in both] == [row[2] for row in rows] + [row[0] for row in rows]
    check_iter_dataset(both, max_restores=6)
    path = tmp_path / "0.csv"
    path.write_bytes(b'1,"x\ny"\n2\n"3"x",4\n5,6\n')
    it = iter(CsvIterDataset(path, columns=["a", "b"]))
    assert next(it) == {"a": "1", "b": "x\ny"}
    with pytest.raises(DataFileError, match=r"0.csv', line 3: It has 1 fields"):
        next(it)
    with pytest.raises(ValueError, match="no column 'c'"):
        list(CsvIterDataset(path, ["c"], columns=["a", "b"]))


@pytest.mark.parametrize("zipped", [False, True])
def test_tar(zipped: bool, tmp_path: Path) -> None:
    files = [*files_of(40), ("README", b""), ("last.cls", b"7"), ("folder/x", b"x" * 2000)]
    path = tmp_path / "a.tar"
    content = tar_bytes(files)
    path.write_bytes(gzip.compress(content) if zipped else content)
    samples = expected([file for file in files if "." in file[0]], path)
    ds = TarIterDataset(path)
    assert list(ds) == samples
    check_iter_dataset(ds, max_restores=6)
    labels = TarIterDataset([path, path], ["cls"], decode={"cls": "int"})
    assert [sample["cls"] for sample in labels] == [int(s["cls"]) for s in samples] * 2
    check_iter_dataset(labels, max_restores=6)
    it = iter(TarIterDataset(path, ["meta.json"]))
    assert len([next(it) for _ in range(40)]) == 40
    with pytest.raises(
        DataFileError, match=r"sample 'last': it has no field 'meta.json', only cls"
    ):
        next(it)
    with pytest.raises(StopIteration):
        next(it)


def test_a_damaged_tar_file_never_ends_quietly(tmp_path: Path) -> None:
    path = tmp_path / "a.tar"
    content = tar_bytes(files_of(40))
    path.write_bytes(content[: len(content) // 2])
    it = iter(TarIterDataset(path))
    with pytest.raises(DataFileError, match=r"a.tar' is not a valid"):
        list(it)
    for _ in range(2):
        with pytest.raises(DataFileError, match=r"a.tar' is not a valid"):
            next(it)


class _Interrupts:
    """Decodes, but is interrupted once."""

    def __init__(self, error: BaseException) -> None:
        self.error = error
        self.count = 0

    def __call__(self, data: bytes) -> int:
        self.count += 1
        if self.count == 6:
            raise self.error
        return int(data)


def test_an_interruption_loses_no_record(tmp_path: Path) -> None:
    path = tmp_path / "a.tar"
    path.write_bytes(tar_bytes(files_of(40)))
    ds = TarIterDataset(path, ["cls"], decode={"cls": _Interrupts(KeyboardInterrupt())})
    for it in (iter(ds), ds.open()):
        ds._decode["cls"].count = 0  # type: ignore[attr-defined]
        found: list[int] = []
        interrupted = 0
        while len(found) < 40:
            try:
                found.append(next(it)["cls"])
            except KeyboardInterrupt:
                interrupted += 1
        assert interrupted == 1
        assert found == [n % 10 for n in range(40)]


def test_workers_share_the_files(tmp_path: Path) -> None:
    for number in range(3):
        (tmp_path / f"{number}.jsonl").write_bytes(CONTENT)
    options = wg.MultiprocessingOptions(num_workers=2)
    ds: Any = JsonlIterDataset(str(tmp_path / "*.jsonl"), fields=["n"])
    found = [row["n"] for row in ds.mp_prefetch(options)]
    assert sorted(found) == sorted([row["n"] for row in ROWS] * 3)
    one = JsonlIterDataset(tmp_path / "0.jsonl")
    with pytest.raises(ValueError, match=r"cannot be shared by 2 workers.*JsonlDataSource"):
        iter(one.mp_prefetch(options))
    four = ds.mp_prefetch(wg.MultiprocessingOptions(num_workers=4))
    assert len(list(four)) == 600


def test_missing_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="missing"):
        list(JsonlIterDataset(tmp_path / "missing"))
