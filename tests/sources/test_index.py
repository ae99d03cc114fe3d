"""Side-car indexes: right data whatever happened to them or to the data."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from wholegrain.sources import DataFileError, JsonlDataSource

pytest.importorskip("fcntl")


def write(path: Path, rows: range, width: int = 4) -> Path:
    path.write_text("".join(f"{number:0{width}d}\n".replace("0", "1", 1) for number in rows))
    return path


def read(path: Path) -> list[str]:
    return list(JsonlDataSource(path, parse=False))


def lines(path: Path) -> list[str]:
    return path.read_text().splitlines()


def index_of(path: Path) -> Path:
    return path.with_name(f".{path.name}.jsonl.wgindex")


def test_the_index_is_built_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "data", range(1000))
    assert read(path) == lines(path)
    assert index_of(path).exists()
    monkeypatch.setattr("wholegrain.sources.jsonl.scan_lines", None)
    assert read(path) == lines(path)


def test_a_deleted_index_is_built_again(tmp_path: Path) -> None:
    path = write(tmp_path / "data", range(100))
    source = JsonlDataSource(path, parse=False)
    index_of(path).unlink()
    assert list(source) == lines(path)
    assert index_of(path).exists()


def test_a_damaged_index_is_built_again(tmp_path: Path) -> None:
    path = write(tmp_path / "data", range(20))
    read(path)
    good = index_of(path).read_bytes()
    damages = [good[:size] for size in range(0, len(good), 17)] + [b"", good + b"x"]
    damages += [
        good[:at] + bytes([good[at] ^ 0x40]) + good[at + 1 :] for at in range(0, len(good), 5)
    ]
    for damage in damages:
        index_of(path).write_bytes(damage)
        assert read(path) == lines(path)
    assert index_of(path).read_bytes() == good


def test_an_index_of_another_file_is_not_used(tmp_path: Path) -> None:
    path, other = write(tmp_path / "a", range(100)), write(tmp_path / "b", range(500), 7)
    read(path), read(other)
    shutil.copy2(index_of(other), index_of(path))
    assert read(path) == lines(path)


@pytest.mark.parametrize("large", [False, True])
def test_a_stale_index_is_not_used(large: bool, tmp_path: Path) -> None:
    count = 200_000 if large else 100
    path = tmp_path / "data"
    path.write_text("12345\n1\n" * count)
    read(path)
    found = path.stat()
    # Another length.
    path.write_text("12345\n1\n" * count + "7\n")
    os.utime(path, ns=(found.st_atime_ns, found.st_mtime_ns))
    assert len(read(path)) == 2 * count + 1
    # The same length, but another time. Only the middle is different.
    half = "12345\n1\n" * (count // 2)
    path.write_text(half[:-8] + "1\n12345\n" + half + "7\n")
    assert path.stat().st_size == 8 * count + 2
    assert read(path) == lines(path)
    # The same length and time.
    found = path.stat()
    path.write_text("1\n12345\n" * count + "7\n")
    os.utime(path, ns=(found.st_atime_ns, found.st_mtime_ns))
    assert read(path) == lines(path)


def test_an_index_that_proves_stale_is_removed(tmp_path: Path) -> None:
    path = tmp_path / "data"
    path.write_text("12345\n1\n" * 500_000)
    read(path)
    found = path.stat()
    with path.open("r+") as file:
        file.seek(8 * 400_009)
        file.write("1\n12345\n")  # in a part that the checksum does not cover
    os.utime(path, ns=(found.st_atime_ns, found.st_mtime_ns))
    source = JsonlDataSource(path, parse=False)
    for number in (800_018, 800_019):
        with pytest.raises(DataFileError, match=r"data' has changed"):
            source[number]
    assert read(path)[800_016:800_021] == ["12345", "1", "1", "12345", "12345"]


def test_a_copy_with_its_index_needs_no_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path / "data", range(100))
    read(path)
    copy = tmp_path / "copy"
    copy.mkdir()
    for file in (path, index_of(path)):
        shutil.copy2(file, copy)
    monkeypatch.setattr("wholegrain.sources.jsonl.scan_lines", None)
    assert read(copy / "data") == lines(path)


def test_a_file_that_changes_under_a_source_is_an_error(tmp_path: Path) -> None:
    path = write(tmp_path / "data", range(100))
    source = JsonlDataSource(path, parse=False)
    path.write_text("1\n22\n333\n" * 55 + "666666\n")
    with pytest.raises(DataFileError, match=r"data' has changed since the source was created"):
        source[0]
    # While it is open.
    write(path, range(100))
    source = JsonlDataSource(path, parse=False)
    assert source[1]
    with path.open("r+") as file:
        file.write("1\n22\n333\n" * 20)
    with pytest.raises(DataFileError, match=r"data"):
        [source[number] for number in range(100)]
    os.truncate(path, 10)
    with pytest.raises(DataFileError, match=r"data' was truncated"):
        source[99]


def _program(code: str, *arguments: object) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )


_BUILD_SLOWLY = """
import os, sys, time
from wholegrain.sources import JsonlDataSource, jsonl
scan = jsonl.scan_lines
def slow(*args, **kwargs):
    with open(sys.argv[2], "a") as file:
        file.write("built\\n")
    time.sleep(float(sys.argv[3]))
    return scan(*args, **kwargs)
jsonl.scan_lines = slow
print(len(JsonlDataSource(sys.argv[1])), flush=True)
"""


def test_one_of_several_processes_builds_and_the_others_wait(tmp_path: Path) -> None:
    path, log = write(tmp_path / "data", range(1000)), tmp_path / "log"
    programs = [_program(_BUILD_SLOWLY, path, log, 0.5) for _ in range(4)]
    for program in programs:
        output, errors = program.communicate(timeout=60)
        assert output == "1000\n", errors
    assert log.read_text() == "built\n"
    assert not any((tmp_path / "cache" / "locks").iterdir())
    assert sorted(file.name for file in tmp_path.iterdir()) == [
        ".data.jsonl.wgindex",
        "cache",
        "data",
        "log",
    ]


def test_another_process_continues_if_the_builder_is_killed(tmp_path: Path) -> None:
    path, log = write(tmp_path / "data", range(1000)), tmp_path / "log"
    program = _program(_BUILD_SLOWLY, path, log, 60)
    try:
        deadline = time.monotonic() + 60
        while not log.exists() and time.monotonic() < deadline:
            time.sleep(0.02)
        waiting = _program(_BUILD_SLOWLY, path, log, 0)
        time.sleep(0.5)
        assert waiting.poll() is None
        program.send_signal(signal.SIGKILL)
        assert waiting.communicate(timeout=60)[0] == "1000\n"
    finally:
        program.kill()
        program.communicate()
    assert read(path) == lines(path)


_READ = """
import logging, os, sys
logging.basicConfig(format="%(message)s")
from wholegrain.sources import JsonlDataSource
import cloudpickle
list(JsonlDataSource(sys.argv[2], parse=False))  # imports everything
if os.getuid() == 0:  # whom permissions do not restrict
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
source = JsonlDataSource(sys.argv[1], parse=False)
again = cloudpickle.loads(cloudpickle.dumps(source))
print(list(source) == list(again) == open(sys.argv[1]).read().splitlines())
"""


@pytest.mark.parametrize("has_cache", [True, False])
def test_a_folder_that_cannot_be_written(
    has_cache: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tempfile.mkdtemp()  # Another user cannot read the folders of pytest.
    try:
        folder, cache = Path(root, "data"), Path(root, "cache")
        folder.mkdir()
        path = write(folder / "data", range(1000))
        cache.mkdir(mode=0o777 if has_cache else 0o500)
        cache.chmod(0o777 if has_cache else 0o500)
        folder.chmod(0o555)
        Path(root).chmod(0o755)
        monkeypatch.setenv("WHOLEGRAIN_CACHE", str(cache))
        output, errors = _program(_READ, path, write(tmp_path / "other", range(9))).communicate()
        assert output == "True\n", errors
        assert not index_of(path).exists()
        if has_cache:
            assert len(list((cache / "index").iterdir())) == 1
            assert errors == ""
        else:
            assert "cannot be saved" in errors
            assert "WHOLEGRAIN_CACHE" in errors
    finally:
        folder.chmod(0o755)
        cache.chmod(0o755)
        shutil.rmtree(root)


def test_progress_is_logged_if_it_takes_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    path = write(tmp_path / "data", range(1000))
    read(path)
    assert not caplog.records
    monkeypatch.setattr("wholegrain.sources._progress._LONG_S", 0.0)
    monkeypatch.setattr("wholegrain.sources._content._BLOCK_BYTES", 1000)
    index_of(path).unlink()
    read(path)
    assert "Indexing" in caplog.text
    assert str(path) in caplog.text


def test_the_index_is_small(tmp_path: Path) -> None:
    path = tmp_path / "data"
    path.write_text("".join(json.dumps({"text": "x" * 400}) + "\n" for _ in range(5000)))
    read(path)
    assert index_of(path).stat().st_size < path.stat().st_size / 40


_BUILD_FOREVER = """
import os, sys
from wholegrain.sources import JsonlDataSource
while True:
    JsonlDataSource(sys.argv[1])
    print("built", flush=True)
    os.unlink(sys.argv[2])
"""


def test_killed_builders_leave_nothing_that_is_wrong(tmp_path: Path) -> None:
    path = write(tmp_path / "data", range(20_000))
    rng = random.Random(0)
    for _ in range(int(os.environ.get("WHOLEGRAIN_TEST_KILLS", "6"))):
        program = _program(_BUILD_FOREVER, path, index_of(path))
        assert program.stdout is not None
        program.stdout.readline()
        time.sleep(rng.random() * 0.05)
        program.kill()
        program.communicate()
        assert read(path) == lines(path)
    index_of(path).unlink(missing_ok=True)
    assert read(path) == lines(path)
    assert sorted(file.name for file in tmp_path.iterdir()) == [
        ".data.jsonl.wgindex",
        "cache",
        "data",
    ]


_READ_MANY = """
import resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
from wholegrain.sources import JsonlDataSource, _index
_index._MAPPED_BYTES = 0
source = JsonlDataSource(sys.argv[1] + "/*.jsonl")
order = [n * 7919 % len(source) for n in range(len(source))]
print(sorted(source.__getitems__(order)) == sorted(source[n] for n in order) == list(range(400)))
"""


def test_a_source_of_many_files_keeps_few_open(tmp_path: Path) -> None:
    for number in range(200):
        (tmp_path / f"{number}.jsonl").write_text(f"{2 * number}\n{2 * number + 1}\n")
    output, errors = _program(_READ_MANY, tmp_path).communicate(timeout=100)
    assert output == "True\n", errors
