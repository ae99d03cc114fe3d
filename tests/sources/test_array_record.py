import contextlib
import hashlib
import os
import pickle
import random
from pathlib import Path, PurePosixPath
from types import SimpleNamespace
from typing import Any

import pytest

from tests.sources.files import damaged, records, survives, write_array_record
from wholegrain.sources import ArrayRecordDataSource
from wholegrain.testing import check_source

pytest.importorskip("array_record")

WRITER_OPTIONS = [
    "group_size:1",
    "group_size:1,uncompressed",
    "group_size:1,brotli:3",
    "group_size:8",
    "group_size:1000,transpose:true",
    "group_size:1,pad_to_block_boundary:true",
]


@pytest.fixture(name="shards")
def _shards(tmp_path: Path) -> list[str]:
    """Three files of 0 to 49, 50 to 60 and 61 to 99."""
    everything = records(100)
    bounds = [(0, 50), (50, 61), (61, 100)]
    return [
        str(write_array_record(tmp_path / f"train-{i:05d}-of-00003", everything[a:b]))
        for i, (a, b) in enumerate(bounds)
    ]


@pytest.mark.parametrize("options", WRITER_OPTIONS)
def test_reads_what_was_written(tmp_path: Path, options: str) -> None:
    written = [*records(200), bytes(200_000), random.Random(0).randbytes(100_000)]
    source = ArrayRecordDataSource(write_array_record(tmp_path / "a", written, options))
    assert len(source) == len(written)
    assert list(source) == written
    assert [source[index] for index in range(len(source))] == written
    keys = random.Random(1).choices(range(len(written)), k=300)
    assert source.__getitems__(keys) == [written[key] for key in keys]
    check_source(source)


def test_files_follow_each_other(shards: list[str]) -> None:
    source = ArrayRecordDataSource(shards)
    assert list(source) == records(100)
    assert source.paths == shards
    keys = [99, 0, 50, 60, 61, 49, 50, 3]
    assert source.__getitems__(keys) == [records(100)[key] for key in keys]
    assert source._getitems(keys) == source.__getitems__(keys)
    check_source(source)


def test_runs_of_keys_come_back_in_the_order_asked(tmp_path: Path) -> None:
    path = write_array_record(tmp_path / "a", records(64), "group_size:8")
    source = ArrayRecordDataSource(str(path))
    keys = [*range(40, 60), *range(5), 7, 7, *range(30, 20, -1)]
    assert source.__getitems__(keys) == [records(64)[key] for key in keys]


def test_reads_globs_sharded_names_and_path_objects(shards: list[str]) -> None:
    base = shards[0].removesuffix("-00000-of-00003")
    for paths in (
        f"{base}-*",
        f"{base}@3",
        f"{base}@*",
        [Path(shard) for shard in shards],
        tuple(PurePosixPath(shard) for shard in shards),
        [f"{base}-0000[01]-of-00003", shards[2]],
    ):
        source = ArrayRecordDataSource(paths)
        assert source.paths == shards
        assert list(source) == records(100)


def test_a_file_that_exists_is_not_taken_for_a_pattern(tmp_path: Path) -> None:
    path = write_array_record(tmp_path / "odd*name@2", records(3))
    write_array_record(tmp_path / "odd_other_name@2", records(5))
    assert len(ArrayRecordDataSource(str(path))) == 3


def test_reads_parts_of_files(shards: list[str]) -> None:
    instruction = SimpleNamespace(filename=shards[1], skip=2, take=5, examples_in_shard=11)
    source = ArrayRecordDataSource([f"{shards[0]}[10:13]", instruction, shards[2]])
    everything = records(100)
    assert source.paths == shards
    assert list(source) == everything[10:13] + everything[52:57] + everything[61:]
    check_source(source)
    assert list(ArrayRecordDataSource(f"{shards[0]}[4:4]")) == []


def test_parts_are_counted_without_opening_the_file() -> None:
    source = ArrayRecordDataSource("nowhere.array_record[10:30]")
    assert len(source) == 20
    with pytest.raises(FileNotFoundError, match=r"nowhere\.array_record"):
        source[0]


def test_a_part_beyond_the_end_is_noticed_when_the_file_is_opened(shards: list[str]) -> None:
    source = ArrayRecordDataSource(f"{shards[1]}[5:20]")
    with pytest.raises(RuntimeError, match=r"Records 5 to 19 of .* has 11 records"):
        source[0]


def test_the_repr_is_the_hash_of_the_names(shards: list[str]) -> None:
    digest = hashlib.sha1("".join(shards).encode()).hexdigest()
    expected = f"ArrayRecordDataSource(hash_of_paths={digest})"
    assert repr(ArrayRecordDataSource(shards)) == expected
    assert repr(ArrayRecordDataSource([f"{shard}[0:5]" for shard in shards])) == expected


@pytest.mark.parametrize("key", [-1, 100, 1000, -100])
def test_keys_outside_are_index_errors_and_value_errors(shards: list[str], key: int) -> None:
    source = ArrayRecordDataSource(shards)
    for error in (IndexError, ValueError):
        with pytest.raises(error, match=f"Record {key} .* records 0 to 99"):
            source[key]
        with pytest.raises(error, match=f"Record {key} .* records 0 to 99"):
            source.__getitems__([1, 2, 3, 4, 5, key])


def test_keys_are_whole_numbers(shards: list[str]) -> None:
    source = ArrayRecordDataSource(shards)
    with pytest.raises(TypeError):
        source[1.0]  # type: ignore[index]
    with pytest.raises(TypeError):
        source.__getitems__([1.0, 2, 3, 4, 5])  # type: ignore[list-item]


def test_no_keys_give_no_records(shards: list[str]) -> None:
    assert ArrayRecordDataSource(shards).__getitems__([]) == []


def test_closed_sources_open_again(shards: list[str]) -> None:
    with ArrayRecordDataSource(shards) as source:
        assert source[0] == records(1)[0]
    assert source[99] == records(100)[99]


def test_a_pickle_holds_names_and_counts_only(shards: list[str]) -> None:
    source = ArrayRecordDataSource(shards)
    source.__getitems__(range(100))
    pickled = pickle.dumps(source)
    assert len(pickled) < 1500
    assert list(pickle.loads(pickled)) == records(100)


def test_a_forked_child_reads_through_files_of_its_own(shards: list[str]) -> None:
    source = ArrayRecordDataSource(shards)
    source.__getitems__(range(100))  # the parent's readers are open
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(writing, b"same" if list(source) == records(100) else b"other")
        finally:
            os._exit(0)
    os.close(writing)
    assert os.read(reading, 100) == b"same"
    os.close(reading)
    os.waitpid(child, 0)
    assert list(source) == records(100)


def test_more_files_than_may_be_open_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = [write_array_record(tmp_path / f"{i}", [f"{i}".encode()]) for i in range(12)]
    source = ArrayRecordDataSource(paths)
    monkeypatch.setattr("wholegrain.sources._handles.most_open_files", lambda: 5)
    assert list(source) == [f"{i}".encode() for i in range(12)]
    assert len(source._readers._handles) <= 5
    check_source(source)


# Bad input.


@pytest.mark.parametrize("paths", [None, 5, b"bytes", [None], [b"bytes"], {"a"}])
def test_what_is_not_a_path_is_refused(paths: Any) -> None:
    with pytest.raises(ValueError, match="ArrayRecordDataSource"):
        ArrayRecordDataSource(paths)


def test_no_paths_are_refused() -> None:
    with pytest.raises(ValueError, match="at least one path"):
        ArrayRecordDataSource([])


@pytest.mark.parametrize("error", [FileNotFoundError, RuntimeError])
def test_a_missing_file_is_named(tmp_path: Path, error: type[Exception]) -> None:
    with pytest.raises(error, match="missing_file"):
        ArrayRecordDataSource(tmp_path / "missing_file")
    with pytest.raises(error, match="missing_pattern"):
        ArrayRecordDataSource(str(tmp_path / "missing_pattern-*"))


@pytest.mark.parametrize("content", [b"", b"abc", bytes(100_000), os.urandom(200_000)])
def test_a_file_of_another_format_is_named(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "other"
    path.write_bytes(content)
    with pytest.raises(RuntimeError, match="other' cannot be read as an ArrayRecord"):
        ArrayRecordDataSource(path)


def test_a_file_cut_off_anywhere_is_named_or_read_right(tmp_path: Path) -> None:
    whole = write_array_record(tmp_path / "whole", records(100)).read_bytes()
    cut = tmp_path / "cut"
    for size in range(0, len(whole), len(whole) // 7):
        cut.write_bytes(whole[:size])
        with pytest.raises(RuntimeError, match="cut' cannot be read"):
            ArrayRecordDataSource(cut)


def test_a_damaged_record_is_named_and_the_others_are_read(tmp_path: Path) -> None:
    path = write_array_record(tmp_path / "damaged", [bytes([i]) * 1000 for i in range(50)])
    content = bytearray(path.read_bytes())
    start = content.find(bytes([20])) if bytes([20]) * 1000 in content else 2000
    content[start : start + 40] = b"\xff" * 40
    path.write_bytes(content)
    source = ArrayRecordDataSource(path)
    failed = {}
    for key in range(len(source)):
        try:
            assert source[key] == bytes([key]) * 1000
        except RuntimeError as error:
            failed[key] = str(error)
    assert 0 < len(failed) < 10
    assert all(f"Record {key} of" in message for key, message in failed.items())
    bad = list(failed)
    with pytest.raises(RuntimeError, match=f"Record {bad[0]} of .*damaged"):
        source.__getitems__(range(50))


def test_damage_never_ends_the_process(tmp_path: Path) -> None:
    whole = write_array_record(tmp_path / "a", records(100)).read_bytes()
    rng = random.Random(0)
    path = tmp_path / "damaged"

    def read_damaged() -> None:
        for _ in range(50):
            path.write_bytes(damaged(whole, rng))
            with contextlib.suppress(RuntimeError):
                list(ArrayRecordDataSource(path))

    assert survives(read_damaged)


def test_options_of_the_reader_are_passed_on(shards: list[str]) -> None:
    for options in ({"max_parallelism": "0"}, {"index_storage_option": "offloaded"}):
        assert list(ArrayRecordDataSource(shards, options)) == records(100)
    with pytest.raises(ValueError, match="unknown_option"):
        ArrayRecordDataSource(shards, {"unknown_option": "1"})
    with pytest.raises(AttributeError):
        ArrayRecordDataSource(shards, "max_parallelism:0")  # type: ignore[arg-type]
