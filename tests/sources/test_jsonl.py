"""JSON Lines and text files: plain, compressed, and not valid."""

import gzip
import json
import os
import pickle
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import wholegrain as wg
from wholegrain.experimental import JsonlIterDataset
from wholegrain.sources import DataFileError, JsonlDataSource, TextLineDataSource
from wholegrain.testing import check_source

zstandard: Any = pytest.importorskip("zstandard")

ROWS: list[dict[str, Any]] = [
    {"n": n, "text": "é\u2028 x" * (n % 9), "list": [n, None, 0.5]} for n in range(200)
]


def jsonl(rows: list[Any], end: str = "\n") -> bytes:
    return "".join(json.dumps(row, ensure_ascii=False) + end for row in rows).encode()


def parts(content: bytes, size: int = 1000) -> list[bytes]:
    return [content[start : start + size] for start in range(0, len(content), size)]


CONTENT = jsonl(ROWS)
FORMS = {
    "plain": CONTENT,
    "windows line breaks": jsonl(ROWS, "\r\n"),
    "no final line break": CONTENT.rstrip(),
    "a byte order mark": b"\xef\xbb\xbf" + CONTENT,
    "blank lines": b"\n  \n" + CONTENT.replace(b"\n", b"\n\n \t\r\n", 20) + b"\n\n",
    "spaces around": CONTENT.replace(b"\n", b" \n\t "),
    "gzip": gzip.compress(CONTENT),
    "gzip of many members": b"".join(map(gzip.compress, parts(CONTENT))) + bytes(50),
    "gzip with empty members": gzip.compress(b"") + gzip.compress(CONTENT) + gzip.compress(b""),
    "zstd": zstandard.compress(CONTENT),
    "zstd of many frames": b"".join(map(zstandard.compress, parts(CONTENT))),
    "zstd with a seek table": b"".join(map(zstandard.compress, parts(CONTENT)))
    + b"\x5e\x2a\x4d\x18\x05\0\0\0table",
    "zstd without sizes": b"".join(
        zstandard.ZstdCompressor(write_content_size=False).compress(part) for part in parts(CONTENT)
    ),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("large_frames", [False, True])
def test_reads_what_was_written(
    form: str, large_frames: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if large_frames:
        monkeypatch.setattr("wholegrain.sources._content._LARGEST_FRAME", 100)
    path = tmp_path / "data.jsonl"
    path.write_bytes(FORMS[form])
    source = JsonlDataSource(path)
    assert list(source) == ROWS
    assert source.__getitems__([199, 3, 3, 0, 77]) == [ROWS[i] for i in (199, 3, 3, 0, 77)]
    check_source(source)
    assert list(JsonlDataSource(path)) == ROWS  # with the index that was saved
    texts = list(JsonlDataSource(path, parse=False))
    assert [json.loads(text) for text in texts] == ROWS


@pytest.mark.parametrize("tool", ["gzip", "zstd", "pzstd", "bgzip", "pigz"])
def test_reads_what_the_tools_wrote(tool: str, tmp_path: Path) -> None:
    program = shutil.which(tool)
    if program is None:
        pytest.skip(f"{tool} is not installed")
    (tmp_path / "data.jsonl").write_bytes(CONTENT)
    with (tmp_path / "data.jsonl").open("rb") as given, (tmp_path / "data.z").open("wb") as file:
        subprocess.run([program, "-c"], stdin=given, stdout=file, check=True)
    assert list(JsonlDataSource(tmp_path / "data.z")) == ROWS
    assert list(JsonlIterDataset(tmp_path / "data.z")) == ROWS


def test_reads_what_hugging_face_wrote(tmp_path: Path) -> None:
    datasets: Any = pytest.importorskip("datasets")
    rows = [{"n": n, "text": f"zeile {n} äöü", "list": [n] * (n % 3)} for n in range(50)]
    datasets.Dataset.from_list(rows).to_json(str(tmp_path / "data.jsonl"))
    assert list(JsonlDataSource(tmp_path / "data.jsonl")) == rows


@pytest.mark.parametrize("block", [1, 2, 5, 64])
def test_rows_do_not_depend_on_how_the_file_is_read(
    block: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("wholegrain.sources._content._BLOCK_BYTES", block)
    path = tmp_path / "data.jsonl"
    path.write_bytes(b"\xef\xbb\xbf\r\n" + jsonl(ROWS[:9]) + b"  \n\n" + jsonl(ROWS[9:20]).rstrip())
    assert list(JsonlDataSource(path)) == ROWS[:20]


def test_several_files_follow_each_other(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    for number in range(3):
        content = jsonl(ROWS[number * 10 : number * 10 + 10]) if number != 1 else b""
        (folder / f"{number}.jsonl").write_bytes(content)
    source = JsonlDataSource(str(folder / "*.jsonl"))
    assert list(source) == ROWS[:10] + ROWS[20:30]
    assert repr(source) == repr(pickle.loads(pickle.dumps(source)))
    assert repr(source).startswith("JsonlDataSource(3 files, hash_of_paths=")
    shuffled = wg.MapDataset.source(source).shuffle(seed=1)
    assert sorted(row["n"] for row in shuffled) == [*range(10), *range(20, 30)]
    # Files next to the data are not taken for data.
    assert JsonlDataSource(str(folder / "*")).paths == source.paths


def test_an_empty_file_has_no_rows(tmp_path: Path) -> None:
    for content in (b"", b"\n\n", b"\xef\xbb\xbf", gzip.compress(b"")):
        path = tmp_path / "empty"
        path.write_bytes(content)
        assert len(JsonlDataSource(path)) == 0
        with pytest.raises(IndexError, match="no records"):
            JsonlDataSource(path)[0]


def test_fields_are_selected_and_missing_ones_are_none(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"a": 1, "b": 2}\n{"b": 3}\n')
    assert list(JsonlDataSource(path, fields=["a"])) == [{"a": 1}, {"a": None}]
    path.write_bytes(b"[1]\n")
    assert JsonlDataSource(path)[0] == [1]
    with pytest.raises(DataFileError, match=r"a.jsonl', line 1: It has a value of type list"):
        JsonlDataSource(path, fields=["a"])[0]
    with pytest.raises(TypeError, match="list of names"):
        JsonlDataSource(path, fields="a")
    with pytest.raises(ValueError, match="at least one"):
        JsonlDataSource(path, fields=[])
    with pytest.raises(ValueError, match="parse=True"):
        JsonlDataSource(path, fields=["a"], parse=False)


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (b'{"a": }', "not valid JSON: Expecting value at character 7"),
        (b'{"a": 1} 2', "not valid JSON: Extra data"),
        (b'{"a": "\xff"}', "not valid UTF-8"),
        (b"[" * 100_000, "nested too deeply"),
        (b"1" * 5000, "not valid JSON"),
        (b'{"a": 1', "not valid JSON"),
    ],
)
def test_a_bad_line_is_named_and_others_are_read(line: bytes, problem: str, tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"1\n\n\n2\n" + line + b"\n\n3\n")
    source = JsonlDataSource(path)
    with pytest.raises(DataFileError, match=rf"a.jsonl', line 5: .*{problem}"):
        source[2]
    with pytest.raises(ValueError, match="line 5"):
        source.__getitems__([0, 1, 2, 3])
    assert [source[0], source[1], source[3]] == [1, 2, 3]


def test_other_encodings_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes('{"a": 1}\n'.encode("utf-16"))
    with pytest.raises(DataFileError, match=r"a.jsonl' .*UTF-16.*iconv"):
        JsonlDataSource(path)


@pytest.mark.parametrize("form", ["gzip", "gzip of many members", "zstd", "zstd of many frames"])
def test_a_truncated_compressed_file_is_named(form: str, tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl.gz"
    for end in (-1, -60, len(FORMS[form]) // 2, 12):
        path.write_bytes(FORMS[form][:end])
        if form == "gzip of many members" and end == -1:
            continue  # It ends within the padding.
        with pytest.raises(DataFileError, match=r"a.jsonl.gz"):
            JsonlDataSource(path)


def test_missing_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="missing"):
        JsonlDataSource(tmp_path / "missing.jsonl")
    with pytest.raises(IsADirectoryError):
        JsonlDataSource(tmp_path)


def test_a_huge_line_is_read(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"1\n" + json.dumps("x" * 20_000_000).encode() + b"\n2\n")
    source = JsonlDataSource(path)
    assert [source[0], len(source[1]), source[2]] == [1, 20_000_000, 2]


def test_a_copy_that_cannot_be_written_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("wholegrain.sources._content._LARGEST_FRAME", 100)
    (tmp_path / "file").touch()
    monkeypatch.setenv("WHOLEGRAIN_CACHE", str(tmp_path / "file" / "cache"))
    path = tmp_path / "a.jsonl.gz"
    path.write_bytes(FORMS["gzip"])
    with pytest.raises(DataFileError, match=r"compressed as a whole.*WHOLEGRAIN_CACHE"):
        JsonlDataSource(path)


def test_the_library_is_named_that_zstd_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "zstandard", None)
    path = tmp_path / "a.jsonl.zst"
    path.write_bytes(FORMS["zstd"])
    with pytest.raises(ImportError, match=r"`zstandard`.*\[zstd\]"):
        JsonlDataSource(path)


def test_a_forked_child_reads_too(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl.gz"
    path.write_bytes(FORMS["gzip of many members"])
    source = JsonlDataSource(path)
    assert source[100] == ROWS[100]
    child = os.fork()
    if child == 0:
        os._exit(0 if list(source) == ROWS else 1)
    assert os.waitpid(child, 0)[1] == 0


# Lines of text.


def test_lines_are_text_without_line_breaks(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes("é\n\nb\r\n \u2028c\rd\x0b\n\r\nlast".encode())
    source = TextLineDataSource(path)
    assert list(source) == ["é", "", "b", " \u2028c\rd\x0b", "", "last"]
    check_source(source)
    as_bytes = TextLineDataSource(path, as_bytes=True)
    assert list(as_bytes) == [line.encode() for line in source]
    path.write_bytes(b"good\n\xff\n")
    with pytest.raises(DataFileError, match=r"a.txt', line 2: .*UTF-8"):
        TextLineDataSource(path)[1]
    assert TextLineDataSource(path, as_bytes=True)[1] == b"\xff"


def test_one_file_may_be_read_in_two_ways(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"1\n\n2\n")
    for _ in range(2):
        assert list(JsonlDataSource(path)) == [1, 2]
        assert list(TextLineDataSource(path)) == ["1", "", "2"]
