import gzip
import os
import pickle
import random
from pathlib import Path
from typing import Any

import pytest

from tests.sources.files import records, tfrecord_bytes, write_tfrecord
from wholegrain.sources import TFRecordDataSource
from wholegrain.sources._crc32c import checksum_of_length, crc32c_in_python
from wholegrain.testing import check_source


@pytest.fixture(name="shards")
def _shards(tmp_path: Path) -> list[str]:
    everything = records(60)
    bounds = [(0, 30), (30, 30), (30, 60)]
    return [
        str(write_tfrecord(tmp_path / f"train-{i:05d}-of-00003.tfrecord", everything[a:b]))
        for i, (a, b) in enumerate(bounds)
    ]


def test_reads_what_was_written(tmp_path: Path) -> None:
    written = [*records(50), bytes(5_000_000), b"after a large one"]
    source = TFRecordDataSource(write_tfrecord(tmp_path / "a", written))
    assert list(source) == written
    keys = random.Random(1).choices(range(50), k=100)
    assert source.__getitems__(keys) == [written[key] for key in keys]
    check_source(source)


def test_files_follow_each_other(shards: list[str], tmp_path: Path) -> None:
    for paths in (shards, str(tmp_path / "*.tfrecord"), str(tmp_path / "train@3.tfrecord")):
        source = TFRecordDataSource(paths)
        assert source.paths == shards
        assert list(source) == records(60)
        check_source(source)


def test_an_empty_file_has_no_records(tmp_path: Path) -> None:
    source = TFRecordDataSource(write_tfrecord(tmp_path / "empty", []))
    assert len(source) == 0
    with pytest.raises(IndexError, match="no records"):
        source[0]


def test_the_repr_is_short_and_stable(shards: list[str]) -> None:
    source = TFRecordDataSource(shards)
    assert repr(source) == repr(pickle.loads(pickle.dumps(source)))
    assert repr(source).startswith("TFRecordDataSource(3 files, hash_of_paths=")
    assert repr(TFRecordDataSource(shards[0])) == f"TFRecordDataSource({shards[0]!r}, len=30)"


def test_the_index_is_made_once(shards: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    pickled = pickle.dumps(TFRecordDataSource(shards))
    monkeypatch.setattr("wholegrain.sources.tfrecord._scan", None)
    assert list(pickle.loads(pickled)) == records(60)


def test_a_forked_child_reads_too(shards: list[str]) -> None:
    source = TFRecordDataSource(shards)
    source.__getitems__(range(60))
    child = os.fork()
    if child == 0:
        os._exit(0 if list(source) == records(60) else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_checksums_are_those_of_the_format() -> None:
    # Test vectors of RFC 3720, B.4.
    assert crc32c_in_python(bytes(32)) == 0x8A9136AA
    assert crc32c_in_python(b"\xff" * 32) == 0x62A8AB43
    assert crc32c_in_python(bytes(range(32))) == 0x46DD794E
    assert checksum_of_length(0) == int.from_bytes(tfrecord_bytes([b""])[8:12], "little")


# Bad input.


@pytest.mark.parametrize("paths", [None, 5, [None], {"a"}])
def test_what_is_not_a_path_is_refused(paths: Any) -> None:
    with pytest.raises(TypeError, match="path"):
        TFRecordDataSource(paths)


def test_no_paths_are_refused() -> None:
    with pytest.raises(ValueError, match="at least one path"):
        TFRecordDataSource([])


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="missing"):
        TFRecordDataSource(tmp_path / "missing")


def test_a_file_cut_off_anywhere_is_named(tmp_path: Path) -> None:
    whole = tfrecord_bytes([b"first", b"second"])
    path = tmp_path / "cut"
    for size in range(1, len(whole)):
        path.write_bytes(whole[:size])
        if size == 21:  # exactly the first record
            assert list(TFRecordDataSource(path)) == [b"first"]
            continue
        with pytest.raises(
            ValueError, match=rf"Not a valid TFRecord.*cut', at byte {21 if size > 21 else 0}"
        ):
            TFRecordDataSource(path)


def test_a_wrong_length_is_noticed(tmp_path: Path) -> None:
    content = bytearray(tfrecord_bytes([b"first", b"second"]))
    content[21] ^= 1
    path = tmp_path / "damaged"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"damaged', at byte 21: the checksum"):
        TFRecordDataSource(path)


def test_a_wrong_payload_is_noticed(tmp_path: Path) -> None:
    pytest.importorskip("google_crc32c")
    content = bytearray(tfrecord_bytes(records(20)))
    path = tmp_path / "damaged"
    path.write_bytes(content)
    assert list(TFRecordDataSource(path, check_payload=True)) == records(20)
    content[content.find(b"record 7")] ^= 1
    path.write_bytes(content)
    for source in (TFRecordDataSource(path, check_payload=True), TFRecordDataSource(path)):
        with pytest.raises(ValueError, match="the checksum of record 7 is wrong"):
            source[7]
        with pytest.raises(ValueError, match="the checksum of record 7 is wrong"):
            source.__getitems__(range(20))
        assert source.__getitems__([*range(7), *range(8, 20)]) == [
            record for number, record in enumerate(records(20)) if number != 7
        ]
    check_source(TFRecordDataSource(path, check_payload=False))


def test_payloads_are_checked_without_the_extension_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("google_crc32c")
    monkeypatch.setattr("wholegrain.sources.tfrecord.tfrecord_lib", None)
    content = bytearray(tfrecord_bytes(records(20)))
    content[content.find(b"record 7")] ^= 1
    path = tmp_path / "damaged"
    path.write_bytes(content)
    source = TFRecordDataSource(path)
    assert source.__getitems__(range(5)) == records(20)[:5]
    with pytest.raises(ValueError, match="the checksum of record 7 is wrong"):
        source.__getitems__(range(20))


def test_a_file_that_is_replaced_by_another_of_the_same_size_is_not_read_by_its_index(
    tmp_path: Path,
) -> None:
    path = write_tfrecord(tmp_path / "replaced", [b"A" * n for n in (10, 30, 20)])
    source = TFRecordDataSource(path, check_payload=False)
    pickled = pickle.dumps(source)
    write_tfrecord(tmp_path / "new", [b"B" * n for n in (30, 10, 20)])
    os.utime(tmp_path / "new", (1, 1))
    os.rename(tmp_path / "new", path)
    for opened_later in (source, pickle.loads(pickled)):
        with pytest.raises(ValueError, match=r"replaced' has changed since the source was created"):
            opened_later[0]


def test_a_copy_of_the_file_is_read_by_its_index(tmp_path: Path) -> None:
    path = write_tfrecord(tmp_path / "copied", records(20))
    pickled = pickle.dumps(TFRecordDataSource(path))
    content = path.read_bytes()
    path.unlink()
    path.write_bytes(content)
    os.utime(path, (1, 1))
    assert list(pickle.loads(pickled)) == records(20)


def test_a_compressed_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "compressed"
    path.write_bytes(gzip.compress(tfrecord_bytes(records(20))))
    with pytest.raises(ValueError, match="compressed with gzip"):
        TFRecordDataSource(path)


def test_a_file_that_shrinks_is_an_error_and_not_a_crash(tmp_path: Path) -> None:
    path = write_tfrecord(tmp_path / "shrinks", [bytes(5000)] * 10)
    source = TFRecordDataSource(path)
    pickled = pickle.dumps(source)
    assert len(source[9]) == 5000
    os.truncate(path, 10_000)
    for shrunk in (source, pickle.loads(pickled)):
        with pytest.raises(ValueError, match="truncated after it was opened"):
            shrunk[9]
