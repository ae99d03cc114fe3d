"""Tar files with WebDataset's conventions."""

import gzip
import io
import json
import pickle
import random
import shutil
import struct
import tarfile
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import wholegrain as wg
from wholegrain.experimental import TarIterDataset
from wholegrain.sources import DataFileError, TarDataSource
from wholegrain.testing import check_source

FIXTURE = Path(__file__).parent / "data" / "webdataset.tar"

Files = list[tuple[str, bytes]]


def tar_bytes(files: Files, format: int = tarfile.PAX_FORMAT) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=format) as archive:
        for name, content in files:
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return out.getvalue()


def write(path: Path, files: Files, format: int = tarfile.PAX_FORMAT) -> Path:
    path.write_bytes(tar_bytes(files, format))
    return path


def files_of(count: int) -> Files:
    files: Files = []
    for n in range(count):
        files.append((f"folder/{n:04d}.JPG", random.Random(n).randbytes(n * 37 % 3000)))
        files.append((f"folder/{n:04d}.cls", str(n % 10).encode()))
        files.append((f"folder/{n:04d}.meta.json", json.dumps({"n": n}).encode()))
    return files


def expected(files: Files, path: Path) -> list[dict[str, Any]]:
    """Return the samples of files whose names are simple."""
    samples: dict[str, dict[str, Any]] = {}
    for name, content in files:
        key, field = name.split(".", 1)
        sample = samples.setdefault(key, {"__key__": key, "__url__": str(path)})
        sample[field.lower()] = content
    return list(samples.values())


@pytest.mark.parametrize("format", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_reads_what_was_written(format: int, tmp_path: Path) -> None:
    files = files_of(50)
    path = write(tmp_path / "a.tar", files, format)
    source = TarDataSource(path)
    assert list(source) == expected(files, path)
    check_source(source)
    assert list(TarDataSource(path)) == expected(files, path)  # with the index that was saved
    assert (tmp_path / ".a.tar.tar.wgindex").exists()
    shuffled = wg.MapDataset.source(source).shuffle(seed=1).map(lambda sample: sample["__key__"])
    assert sorted(shuffled) == [sample["__key__"] for sample in source]


def test_reads_what_webdataset_wrote(tmp_path: Path) -> None:
    path = shutil.copy(FIXTURE, tmp_path)
    source = TarDataSource(path, decode={"cls": "int", "json": "json", "npy": "npy"})
    assert len(source) == 12
    for n, sample in enumerate(source):
        assert sample["__key__"] == f"sample{n:03d}"
        assert sample["cls"] == n
        assert sample["json"] == {"n": n}
        assert sample["txt"] == f"text é {n}".encode()
        np.testing.assert_array_equal(sample["npy"], np.arange(n * 2.0).reshape(n, 2))


@pytest.mark.parametrize("format", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_long_and_unusual_names(format: int, tmp_path: Path) -> None:
    files = [("é" * 80 + "/" + "x" * 120 + f"{n}.txt", b"%d" % n) for n in range(3)]
    files += [("short.txt", b""), ("a/b.c/d e.txt", b"in a folder with a dot")]
    path = write(tmp_path / "a.tar", files, format)
    keys = [sample["__key__"] for sample in TarDataSource(path)]
    assert keys == [name.removesuffix(".txt") for name, _ in files]


def test_large_numbers_in_headers_are_read(tmp_path: Path) -> None:
    content = bytearray(tar_bytes([("a.txt", b"12345")], tarfile.USTAR_FORMAT))
    content[124:136] = b"\x80" + struct.pack(">QHB", 0, 0, 5)
    content[148:156] = b" " * 8
    content[148:156] = b"%06o\0 " % sum(content[:512])
    path = tmp_path / "a.tar"
    path.write_bytes(content)
    assert TarDataSource(path)[0]["txt"] == b"12345"
    files = [("b.txt", b"67890")]
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as archive:
        info = tarfile.TarInfo("b.txt")
        info.size, info.pax_headers = 5, {"size": "5", "mtime": "1.5", "comment": "a\nb=c"}
        archive.addfile(info, io.BytesIO(files[0][1]))
    path.write_bytes(out.getvalue())
    assert TarDataSource(path)[0]["txt"] == b"67890"


def test_samples_are_those_of_webdataset(tmp_path: Path) -> None:
    files = [
        ("__meta__", b"skipped"),
        ("__a__/b.txt", b"skipped"),
        ("a.txt", b"1"),
        ("README", b"skipped: it has no extension"),
        ("a.b.txt", b"2"),
        ("b.txt", b"3"),
        ("a.txt", b"4"),  # the key again, later: another sample
        (".hidden", b"skipped"),
        ("c/.hidden", b"5"),
    ]
    source = TarDataSource(write(tmp_path / "a.tar", files))
    found = [{k: v for k, v in sample.items() if k != "__url__"} for sample in source]
    assert found == [
        {"__key__": "a", "txt": b"1", "b.txt": b"2"},
        {"__key__": "b", "txt": b"3"},
        {"__key__": "a", "txt": b"4"},
        {"__key__": "c/", "hidden": b"5"},
    ]
    twice = write(tmp_path / "b.tar", [("a.txt", b"1"), ("a.TXT", b"2")])
    with pytest.raises(DataFileError, match=r"b.tar'.*'a.TXT' is there twice"):
        TarDataSource(twice)


def test_fields_are_selected_and_decoded(tmp_path: Path) -> None:
    files = [*files_of(5), ("last.cls", b"x")]
    path = write(tmp_path / "a.tar", files)
    decode: Any = {"cls": "int", "meta.json": lambda data: json.loads(data)["n"]}
    source = TarDataSource(path, ["meta.json", "cls"], decode=decode)
    assert source[3] == {
        "__key__": "folder/0003",
        "__url__": str(path),
        "meta.json": 3,
        "cls": 3,
    }
    check_source(wg.MapDataset.source(source).slice(slice(0, 5)))
    with pytest.raises(DataFileError, match=r"a.tar', sample 'last': it has no field 'meta.json'"):
        source[5]
    with pytest.raises(DataFileError, match=r"sample 'last': the field 'cls' cannot be decoded"):
        TarDataSource(path, decode=decode)[5]
    with pytest.raises(ValueError, match=r"'jpeg'.*names bytes, text"):
        TarDataSource(path, decode={"jpg": "jpeg"})
    assert len(pickle.dumps(TarDataSource(path))) < 1000
    for reader in (TarDataSource, TarIterDataset):
        with pytest.raises(ValueError, match=r"different names in `fields`.*'cls', 'cls'"):
            reader(path, ["cls", "cls"])


def test_files_that_are_in_no_sample_take_no_memory(tmp_path: Path) -> None:
    size = 1 << 18
    files = [(f"{n}{end}", bytes(size * (not end))) for n in range(40) for end in ("", ".txt")]
    path = write(tmp_path / "a.tar", files)
    tracemalloc.start()
    try:
        held = [tracemalloc.get_traced_memory()[0] for _ in TarIterDataset(path)]
    finally:
        tracemalloc.stop()
    assert len(held) == 40
    assert max(held) < 10 * size


@pytest.mark.parametrize("large_frames", [False, True])
@pytest.mark.parametrize("members", [1, 20])
def test_compressed_files(
    members: int, large_frames: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if large_frames:
        monkeypatch.setattr("wholegrain.sources._content._LARGEST_FRAME", 100)
    files = files_of(30)
    content = tar_bytes(files)
    step = -(-len(content) // members)
    parts = [content[start : start + step] for start in range(0, len(content), step)]
    path = tmp_path / "a.tar.gz"
    path.write_bytes(b"".join(map(gzip.compress, parts)))
    source = TarDataSource(path)
    assert list(source) == expected(files, path)
    check_source(source)


def test_an_empty_archive_has_no_samples(tmp_path: Path) -> None:
    assert len(TarDataSource(write(tmp_path / "a.tar", []))) == 0
    (tmp_path / "b.tar").touch()
    assert len(TarDataSource(tmp_path / "b.tar")) == 0


def test_the_marks_of_the_end_may_be_missing(tmp_path: Path) -> None:
    files = [("a.txt", b"1" * 512)]
    path = tmp_path / "a.tar"
    path.write_bytes(tar_bytes(files, tarfile.USTAR_FORMAT)[:1024])
    assert list(TarDataSource(path)) == expected(files, path)


@pytest.mark.parametrize("size", [100, 512, 600, 1000, 1024 + 200, 1536 + 10])
def test_a_truncated_archive_is_named(size: int, tmp_path: Path) -> None:
    path = tmp_path / "a.tar"
    path.write_bytes(tar_bytes([("a.txt", b"x" * 500), ("b.txt", b"y" * 500)])[:size])
    with pytest.raises(DataFileError, match=r"a.tar' is not a valid tar file: at byte"):
        TarDataSource(path)


def test_concatenated_archives_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.tar"
    path.write_bytes(tar_bytes([("a.txt", b"")]) + tar_bytes([("b.txt", b"")]))
    with pytest.raises(DataFileError, match="concatenated"):
        TarDataSource(path)


@pytest.mark.parametrize(
    ("kind", "text"),
    [(tarfile.SYMTYPE, "symbolic"), (tarfile.LNKTYPE, "hard link"), (tarfile.FIFOTYPE, "pipe"),
     (tarfile.GNUTYPE_SPARSE, "sparse"), (b"Q", "unknown type")],
)  # fmt: skip
def test_what_is_not_a_file_is_refused(kind: bytes, text: str, tmp_path: Path) -> None:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        folder = tarfile.TarInfo("folder")
        folder.type = tarfile.DIRTYPE
        archive.addfile(folder)
        info = tarfile.TarInfo("a.txt")
        info.type, info.linkname = kind, "b"
        archive.addfile(info)
    path = tmp_path / "a.tar"
    path.write_bytes(out.getvalue())
    with pytest.raises(DataFileError, match=f"a.tar'.*'a.txt' is .*{text}"):
        TarDataSource(path)


def test_other_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.tar"
    for content in (b"text " * 500, b"x", gzip.compress(b"text " * 500)):
        path.write_bytes(content)
        with pytest.raises(DataFileError, match=r"a.tar"):
            TarDataSource(path)
