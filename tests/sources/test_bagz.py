import pickle
from pathlib import Path

import pytest

from tests.sources.files import records, write_bagz
from wholegrain.sources import BagzDataSource
from wholegrain.testing import check_source

pytest.importorskip("bagz")


@pytest.mark.parametrize("suffix", ["bagz", "bag"])
def test_reads_what_was_written(tmp_path: Path, suffix: str) -> None:
    source = BagzDataSource(write_bagz(tmp_path / f"a.{suffix}", records(50)))
    assert list(source) == records(50)
    keys = [49, 0, 3, 3, 17, 20]
    assert source.__getitems__(keys) == [records(50)[key] for key in keys]
    check_source(source)


def test_shards_follow_each_other(tmp_path: Path) -> None:
    for shard in range(3):
        path = tmp_path / f"s-{shard:05d}-of-00003.bagz"
        write_bagz(path, records(10, prefix=f"shard {shard}"))
    expected = [element for shard in range(3) for element in records(10, f"shard {shard}")]
    for paths in (str(tmp_path / "s@3.bagz"), str(tmp_path / "*.bagz")):
        source = BagzDataSource(paths)
        assert list(source) == expected
        assert list(pickle.loads(pickle.dumps(source))) == expected
        check_source(source)


def test_keys_outside_are_refused(tmp_path: Path) -> None:
    source = BagzDataSource(write_bagz(tmp_path / "a.bagz", records(5)))
    for key in (-1, 5):
        with pytest.raises(IndexError, match="records 0 to 4"):
            source[key]


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="missing"):
        BagzDataSource(tmp_path / "missing.bagz")


def test_a_file_of_another_format_is_named(tmp_path: Path) -> None:
    path = tmp_path / "other.bagz"
    path.write_bytes(b"x" * 100)
    with pytest.raises(ValueError, match=r"other\.bagz' cannot be read"):
        BagzDataSource(path)


def test_a_file_cut_off_is_named(tmp_path: Path) -> None:
    whole = write_bagz(tmp_path / "whole.bagz", records(50)).read_bytes()
    path = tmp_path / "cut.bagz"
    for size in range(1, len(whole), 37):
        path.write_bytes(whole[:size])
        with pytest.raises(ValueError, match=r"cut\.bagz"):
            BagzDataSource(path)[0]
