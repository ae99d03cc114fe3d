import gzip
import io
import pickle
import random
import struct
import zlib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import wholegrain as wg
from tests.sources.files import masked_crc, records, tfrecord_bytes, write_tfrecord
from wholegrain.experimental import InterleaveIterDataset, TFRecordIterDataset
from wholegrain.sources._crc32c import checksum_of_length, tfrecord_lib
from wholegrain.sources._tfrecord_reader import TFRecordReader, split_records
from wholegrain.sources.tfrecord_iter import TFRecordDatasetIterator
from wholegrain.testing import check_iter_dataset


@pytest.fixture(name="path")
def _path(tmp_path: Path) -> str:
    return str(write_tfrecord(tmp_path / "a.tfrecord", records(20)))


def test_reads_the_records_in_order(path: str) -> None:
    ds = TFRecordIterDataset(path)
    assert list(ds) == records(20)
    check_iter_dataset(ds)
    check_iter_dataset(ds.map(len).filter(lambda n: n > 10).batch(3))
    check_iter_dataset(TFRecordIterDataset(Path(path)))


def test_the_state_is_the_offset_behind_the_last_record(path: str) -> None:
    it = iter(TFRecordIterDataset(path))
    offset = 0
    for record in records(20):
        assert it.get_state() == {"reader_offset": offset}
        assert next(it) == record
        offset += 16 + len(record)
    assert it.get_state() == {"reader_offset": offset}
    assert next(it, None) is None
    assert it.get_state() == {"reader_offset": offset}


def test_records_larger_than_a_block_are_read(tmp_path: Path) -> None:
    written = [b"small", bytes(1_000_000), b"", b"x" * 700_000, b"last"]
    ds = TFRecordIterDataset(str(write_tfrecord(tmp_path / "a", written)))
    assert list(ds) == written
    check_iter_dataset(ds)


@pytest.mark.parametrize("compress", [gzip.compress, zlib.compress], ids=["gzip", "zlib"])
def test_reads_compressed_files(tmp_path: Path, compress: Any) -> None:
    written = [*records(50), bytes(600_000), b"last"]
    path = tmp_path / "a"
    path.write_bytes(compress(tfrecord_bytes(written)))
    ds = TFRecordIterDataset(str(path))
    assert list(ds) == written
    check_iter_dataset(ds)
    for size in (5, len(path.read_bytes()) // 2, len(path.read_bytes()) - 1):
        cut = tmp_path / "cut"
        cut.write_bytes(path.read_bytes()[:size])
        with pytest.raises(ValueError, match=r"Not a valid TFRecord.*cut"):
            list(TFRecordIterDataset(str(cut)))


def test_a_length_that_looks_like_the_mark_of_gzip_is_a_length(tmp_path: Path) -> None:
    written = [bytes(0x8B1F), b"second"]
    path = write_tfrecord(tmp_path / "a", written)
    assert path.read_bytes()[:2] == b"\x1f\x8b"
    assert list(TFRecordIterDataset(str(path))) == written


def test_an_empty_file_has_no_records(tmp_path: Path) -> None:
    path = write_tfrecord(tmp_path / "empty", [])
    assert list(TFRecordIterDataset(str(path))) == []


def test_several_files_are_interleaved(tmp_path: Path) -> None:
    paths = [str(write_tfrecord(tmp_path / f"{i}", records(4, f"{i}"))) for i in range(3)]
    ds = wg.MapDataset.source(paths).map(TFRecordIterDataset)
    interleaved: Any = InterleaveIterDataset(ds, cycle_length=2)
    first, second = records(4, "0"), records(4, "1")
    assert list(interleaved)[:4] == [first[0], second[0], first[1], second[1]]
    check_iter_dataset(interleaved)


def test_one_file_is_not_shared_by_workers(path: str) -> None:
    ds = TFRecordIterDataset(path)
    with pytest.raises(ValueError, match="Cannot slice `IterDataset` source"):
        list(ds.mp_prefetch(wg.MultiprocessingOptions(num_workers=2)))


def test_the_dataset_is_pickled_by_its_path(path: str) -> None:
    assert list(pickle.loads(pickle.dumps(TFRecordIterDataset(path)))) == records(20)


def test_a_file_cut_off_anywhere_gives_what_is_whole_and_then_an_error(tmp_path: Path) -> None:
    whole = tfrecord_bytes([b"first", b"second"])
    path = tmp_path / "cut"
    for size in range(1, len(whole)):
        path.write_bytes(whole[:size])
        it = iter(TFRecordIterDataset(str(path)))
        if size >= 21:
            assert next(it) == b"first"
        if size == 21:
            assert next(it, None) is None
            continue
        for _ in range(2):  # again and again
            with pytest.raises(ValueError, match=r"Not a valid TFRecord.*cut', at byte"):
                next(it)


def test_a_wrong_length_is_noticed(tmp_path: Path) -> None:
    content = bytearray(tfrecord_bytes([b"first", b"second"]))
    content[21] ^= 1
    path = tmp_path / "damaged"
    path.write_bytes(content)
    ds = TFRecordIterDataset(str(path))
    it = iter(ds)
    assert next(it) == b"first"
    with pytest.raises(ValueError, match=r"damaged', at byte 21: the checksum"):
        next(it)
    # Also when many are read at once: first what is good, then the error.
    lengths = iter(ds.map(lambda record: len(record)))
    assert next(lengths) == 5
    with pytest.raises(ValueError, match="at byte 21"):
        next(lengths)


def test_a_wrong_payload_is_noticed(tmp_path: Path) -> None:
    pytest.importorskip("google_crc32c")
    content = bytearray(tfrecord_bytes([b"first", b"second"]))
    content[14] ^= 1
    path = tmp_path / "damaged"
    path.write_bytes(content)
    for check in (True, None):
        with pytest.raises(ValueError, match="the checksum of the record's payload"):
            TFRecordReader(str(path), check_payload=check).take(1)
    assert list(TFRecordIterDataset(str(path), check_payload=False))[1] == b"second"


def test_a_wrong_payload_is_passed_over(tmp_path: Path) -> None:
    pytest.importorskip("google_crc32c")
    content = bytearray(tfrecord_bytes(records(20)))
    content[content.find(b"record 7")] ^= 1
    path = tmp_path / "damaged"
    path.write_bytes(content)
    it = iter(TFRecordIterDataset(path))
    assert [next(it) for _ in range(7)] == records(20)[:7]
    with pytest.raises(ValueError, match=r"damaged', at byte .*the record's payload is wrong"):
        next(it)
    assert list(it) == records(20)[8:]


def test_compressed_files_that_were_joined_are_one_file(tmp_path: Path) -> None:
    content = tfrecord_bytes(records(20))
    path = tmp_path / "joined"
    path.write_bytes(gzip.compress(content[:100]) + gzip.compress(content[100:]) + bytes(7))
    ds = TFRecordIterDataset(path)
    assert list(ds) == records(20)
    check_iter_dataset(ds)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="missing"):
        iter(TFRecordIterDataset(str(tmp_path / "missing")))


def test_a_list_of_paths_is_refused(path: str) -> None:
    with pytest.raises(TypeError, match="path"):
        iter(TFRecordIterDataset([path]))  # type: ignore[arg-type]


def test_a_closed_iterator_keeps_its_state(path: str) -> None:
    it = iter(TFRecordIterDataset(path))
    next(it)
    state = it.get_state()
    it.close()
    it.close()
    assert it.get_state() == state
    with pytest.raises(ValueError, match="closed"):
        next(it)


class StreamReader(TFRecordReader):
    """Opens the file in its own way, as programs that read from other stores do."""

    def __init__(self, content: bytes) -> None:
        self._reader = io.BytesIO(content)


class StreamIterator(TFRecordDatasetIterator):
    def __init__(self, path: Any) -> None:
        wg.DatasetIterator.__init__(self)
        self._reader = StreamReader(Path(path).read_bytes())


class StreamDataset(TFRecordIterDataset):
    def __iter__(self) -> Any:
        return StreamIterator(self._path)


def test_subclasses_may_bring_a_stream_of_their_own(path: str) -> None:
    ds = StreamDataset(path)
    assert list(ds) == records(20)
    check_iter_dataset(ds)


@pytest.mark.filterwarnings("ignore")
def test_elements_states_and_restores_are_those_of_grain(path: str) -> None:
    pytest.importorskip("grain")
    grain: Any = pytest.importorskip("grain.experimental")
    theirs, ours = iter(grain.TFRecordIterDataset(path)), iter(TFRecordIterDataset(path))
    states = []
    for record in records(20):
        states.append(theirs.get_state())
        assert ours.get_state() == states[-1]
        assert next(ours) == next(theirs) == record
    for step, state in enumerate(states):
        theirs, ours = iter(grain.TFRecordIterDataset(path)), iter(TFRecordIterDataset(path))
        theirs.set_state(state)
        ours.set_state(state)
        assert list(ours) == list(theirs) == records(20)[step:]


def heads(length: int) -> bytes:
    return struct.pack("<QI", length, checksum_of_length(length))


@pytest.mark.skipif(tfrecord_lib is None, reason="The extension is not there to compare with.")
@given(
    lengths=st.lists(st.sampled_from([0, 1, 5, 2**33, 2**64 - 1]), max_size=6),
    cut=st.integers(0, 40),
    damage=st.none() | st.integers(0, 60),
    at=st.integers(0, 3),
    count=st.integers(1, 5),
)
def test_the_extension_finds_the_same_records(
    lengths: list[int], cut: int, damage: int | None, at: int, count: int
) -> None:
    content = bytearray(3)
    starts = []
    for length in lengths:
        starts.append(len(content))
        payload = bytes(length if length < 10 else 3)
        content += heads(length) + payload + masked_crc(payload)
    if damage is not None and damage < len(content):
        content[damage] ^= 1
    block = bytes(content[: max(0, len(content) - cut)])
    lib: Any = tfrecord_lib
    for start in [at, *starts]:
        for check in (False, True):
            arguments = (block, start, count, check)
            assert lib.split_records(*arguments) == split_records(*arguments)


@pytest.mark.skipif(tfrecord_lib is None, reason="The extension is not there to compare with.")
@given(size=st.integers(0, 10) | st.integers(3000, 10_000), seed=st.integers(0, 2**32))
def test_the_extension_computes_the_same_checksums(size: int, seed: int) -> None:
    data = random.Random(seed).randbytes(size)
    lib: Any = tfrecord_lib
    assert lib.tfrecord_checksum(data) == int.from_bytes(masked_crc(data), "little")
