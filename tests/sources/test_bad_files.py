"""What every source says about files that are no files, or that change while they are open."""

import gc
import os
import pickle
import resource
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.sources import files
from wholegrain import experimental, sources
from wholegrain.sources import DataFileError
from wholegrain.sources._remote import ObjectInfo, Store

pytest.importorskip("array_record")
pytest.importorskip("bagz")
pytest.importorskip("pyarrow")


def _write_npy(path: Path, records: list[bytes]) -> Path:
    with open(path, "wb") as file:
        np.save(file, np.arange(100 * len(records)).reshape(-1, 100))
    return path


def _write_npz(path: Path, records: list[bytes]) -> Path:
    with open(path, "wb") as file:
        np.savez(file, x=np.arange(100 * len(records)).reshape(-1, 100))
    return path


def _table(records: list[bytes]) -> Any:
    numbers = [[len(record)] * 5 for record in records]
    return files.table({"record": records, "numbers": numbers, "n": list(range(len(records)))})


def _write_arrow(path: Path, records: list[bytes]) -> Path:
    return files.write_arrow(path, _table(records), batch_rows=20)


def _write_parquet(path: Path, records: list[bytes]) -> Path:
    return files.write_parquet(path, _table(records), row_group_size=20)


def _iterate(dataset: Any) -> Callable[[Path], list[Any]]:
    return lambda path: list(dataset(str(path)))


_WRITERS: dict[str, Callable[[Path, list[bytes]], Path]] = {
    "NpyDataSource": _write_npy,
    "npz": _write_npz,
    "ArrowDataSource": _write_arrow,
    "ParquetDataSource": _write_parquet,
    "TFRecordDataSource": files.write_tfrecord,
    "ArrayRecordDataSource": files.write_array_record,
    "BagzDataSource": files.write_bagz,
}
_SOURCES = {
    "npz": sources.NpyDataSource,
    **{name: getattr(sources, name) for name in _WRITERS if name != "npz"},
}
_READERS: dict[str, Callable[[Path], Any]] = {
    **_SOURCES,
    "TFRecordIterDataset": _iterate(experimental.TFRecordIterDataset),
    "ParquetIterDataset": _iterate(experimental.ParquetIterDataset),
}


@pytest.fixture(params=_READERS)
def read(request: pytest.FixtureRequest) -> Callable[[Path], Any]:
    return _READERS[request.param]


@pytest.fixture(params=_WRITERS)
def format_name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def _records(count: int = 200) -> list[bytes]:
    return [b"%d" % number + os.urandom(200) for number in range(count)]


def test_a_missing_file_is_named(read: Callable[[Path], Any], tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="is_missing") as caught:
        read(tmp_path / "is_missing")
    assert isinstance(caught.value, DataFileError)


def test_a_folder_is_named(read: Callable[[Path], Any], tmp_path: Path) -> None:
    folder = tmp_path / "a_folder"
    folder.mkdir()
    expected = DataFileError if read is sources.NpyDataSource else IsADirectoryError
    with pytest.raises(expected, match="a_folder"):
        read(folder)


def test_a_pipe_is_named_and_not_waited_for(read: Callable[[Path], Any], tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a_pipe")
    with pytest.raises(OSError, match=r"It is a pipe.*a_pipe") as caught:
        read(tmp_path / "a_pipe")
    assert isinstance(caught.value, DataFileError)


def test_a_device_is_named(read: Callable[[Path], Any]) -> None:
    with pytest.raises(OSError, match=r"device.*/dev/zero"):
        read(Path("/dev/zero"))


def test_an_empty_file_is_named_or_has_no_records(
    read: Callable[[Path], Any], tmp_path: Path
) -> None:
    (tmp_path / "is_empty").touch()
    found, error = _try(lambda: len(read(tmp_path / "is_empty")))
    assert found == 0 if error is None else "is_empty" in str(error)


def _try(function: Callable[[], Any]) -> tuple[Any, DataFileError | None]:
    try:
        return function(), None
    except DataFileError as error:
        return None, error


def test_a_file_of_something_else_is_named(read: Callable[[Path], Any], tmp_path: Path) -> None:
    (tmp_path / "poem.txt").write_text("Two roads diverged in a yellow wood\n" * 100)
    with pytest.raises(ValueError, match=r"poem\.txt") as caught:
        read(tmp_path / "poem.txt")
    assert isinstance(caught.value, DataFileError)


def test_what_the_system_forbids_is_a_permission_error(
    read: Callable[[Path], Any], tmp_path: Path
) -> None:
    # Tests may run as root, who may read everything: so they go on as nobody.
    program = """
        import os, sys
        from tests.sources.test_bad_files import _READERS
        from wholegrain.sources import DataFileError
        path, name = sys.argv[1:]
        try:
            _READERS[name](__file__)
        except DataFileError:
            pass  # now all is imported
        if os.getuid() == 0:
            os.setgid(65534)
            os.setuid(65534)
        try:
            _READERS[name](path)
        except PermissionError as error:
            assert isinstance(error, DataFileError) and "is_forbidden" in str(error), error
            print("as expected")
    """
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(program))
    path = tmp_path / "is_forbidden"
    path.write_bytes(b"1" * 100)
    path.chmod(0)
    for folder in (tmp_path, tmp_path.parent, tmp_path.parent.parent):
        folder.chmod(0o755)
    name = next(name for name, reader in _READERS.items() if reader is read)
    done = subprocess.run(
        [sys.executable, script, path, name],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.stdout == "as expected\n", done.stderr


@pytest.mark.parametrize("share", [0.0, 0.02, 0.5, 0.9])
def test_a_file_that_is_cut_off_while_it_is_open_is_an_error(
    format_name: str, share: float, tmp_path: Path
) -> None:
    path = _WRITERS[format_name](tmp_path / "is_cut", _records(2000))
    source = _SOURCES[format_name](path)
    before = list(source.__getitems__(range(2000)))
    held = source[1999]
    source[0]
    os.truncate(path, int(path.stat().st_size * share))
    for key in (1999, 1000, 0):
        for look in (lambda key=key: [source[key]], lambda key=key: source.__getitems__([key] * 9)):
            records, error = _try(look)
            if error is not None:
                assert "is_cut" in str(error)
            else:  # It was in memory, or still is in the file.
                assert str(records[0]) == str(before[key])
    assert str(held) == str(before[1999])  # What was handed out does not point to the file.
    if format_name not in ("ParquetDataSource", "ArrayRecordDataSource") or share == 0:
        with pytest.raises(DataFileError, match="is_cut"):
            pickle.loads(pickle.dumps(source))[1999]


@pytest.mark.parametrize("name", ["ArrowDataSource", "ParquetDataSource", "BagzDataSource"])
def test_a_file_that_is_replaced_by_another_is_not_read_by_what_was_known(
    name: str, tmp_path: Path
) -> None:
    path = _WRITERS[name](tmp_path / "is_replaced", _records(100))
    pickled = pickle.dumps(_SOURCES[name](path))
    _WRITERS[name](tmp_path / "new", _records(90))
    os.rename(tmp_path / "new", path)
    with pytest.raises(ValueError, match=r"is_replaced' has changed since"):
        pickle.loads(pickled)[0]


def test_a_file_that_is_removed_while_it_is_open_is_still_read(
    format_name: str, tmp_path: Path
) -> None:
    path = _WRITERS[format_name](tmp_path / "is_removed", _records(100))
    source = _SOURCES[format_name](path)
    first = str(source[99])
    path.unlink()
    if format_name != "ParquetDataSource":  # It may be opened once more for the next piece.
        assert str(source[99]) == first
        assert len(source.__getitems__(range(100))) == 100
    with pytest.raises(FileNotFoundError, match="is_removed"):
        pickle.loads(pickle.dumps(source))[0]


def test_running_out_of_descriptors_is_told_and_does_not_last(
    format_name: str, tmp_path: Path
) -> None:
    path = _WRITERS[format_name](tmp_path / "one_too_many", _records(50))
    _SOURCES[format_name](path)[0]  # what is imported is not missing then
    gc.collect()  # Files of other tests would be closed later, and their descriptors free.
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 256), hard))
    taken = []
    try:
        try:
            while True:
                taken.append(os.open(os.devnull, os.O_RDONLY))
        except OSError:
            pass
        with pytest.raises(OSError, match=r"Too many open files.*one_too_many") as caught:
            _SOURCES[format_name](path)[0]
        assert isinstance(caught.value, DataFileError)
    finally:
        for descriptor in taken:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert len(list(_SOURCES[format_name](path))) == 50


class _FailingStore(Store):
    """A store that has lost an object, or does not answer any more."""

    def __init__(self, content: bytes) -> None:
        self.content = content
        self.error: Exception | None = None

    def info(self, key: str) -> ObjectInfo:
        self._fail()
        return ObjectInfo(len(self.content), "a tag")

    def read(self, key: str, start: int, stop: int, tag: str) -> bytes:
        self._fail()
        return self.content[start:stop]

    def list(self, prefix: str) -> list[str]:
        self._fail()
        return ["an_object"]

    def _fail(self) -> None:
        if self.error is not None:
            raise self.error


@pytest.fixture(name="store")
def _store(monkeypatch: pytest.MonkeyPatch) -> Iterator[_FailingStore]:
    store = _FailingStore(files.tfrecord_bytes(_records(9)))
    monkeypatch.setattr("wholegrain.sources._remote.locate", lambda url: (store, "an_object"))
    options = sources.RemoteOptions(timeout_s=1.0, deadline_s=0.2, max_pause_s=0.05)
    sources.set_remote_options(options, under="far://")
    yield store
    sources.set_remote_options(None, under="far://")


class _StoreError(Exception):
    pass


@pytest.mark.parametrize("error", [_StoreError("503"), ConnectionError("reset"), OSError("5")])
def test_what_a_store_raises_names_the_object(error: Exception, store: _FailingStore) -> None:
    source = sources.TFRecordDataSource("far://away/an_object")
    assert len(source[8]) > 100
    store.error = error
    readers: list[Callable[[str], Any]] = [
        lambda _: source[0],
        lambda _: source.__getitems__(range(9)),
        sources.TFRecordDataSource,
        sources.ArrowDataSource,
        sources.ParquetDataSource,
        lambda url: list(experimental.TFRecordIterDataset(url)),
    ]
    for read in readers:
        with pytest.raises(OSError, match="far://away/an_object") as caught:
            read("far://away/an_object")
        assert isinstance(caught.value, DataFileError)


def test_an_object_that_has_become_shorter_is_an_error(store: _FailingStore) -> None:
    source = sources.TFRecordDataSource("far://away/an_object", check_payload=False)
    assert len(source[8]) > 100
    store.content = store.content[:-100]
    with pytest.raises(OSError, match=r"sent \d+ of \d+ bytes.*far://away/an_object") as caught:
        source[8]
    assert isinstance(caught.value, DataFileError)
