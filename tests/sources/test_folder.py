import pickle
from pathlib import Path

import pytest

from wholegrain.sources import FolderDataSource
from wholegrain.testing import check_source


@pytest.fixture(name="root")
def _root(tmp_path: Path) -> Path:
    for name in ("b/2.png", "a/10.png", "a/9.png", "a/note.txt", "top.png"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(name.encode())
    return tmp_path


def test_reads_the_files_in_the_order_of_their_names(root: Path) -> None:
    source = FolderDataSource(root, "**/*.png")
    assert source.names == ["a/10.png", "a/9.png", "b/2.png", "top.png"]
    assert [source[index].decode() for index in range(len(source))] == source.names
    assert source.__getitems__([3, 0]) == [b"top.png", b"a/10.png"]
    check_source(source)


def test_the_pattern_is_relative_to_the_root(root: Path) -> None:
    assert FolderDataSource(root, "*/*.txt").names == ["a/note.txt"]
    assert FolderDataSource(str(root)).names == ["top.png"]


def test_the_listing_is_taken_once(root: Path) -> None:
    source = FolderDataSource(root, "*/*.png")
    (root / "a" / "0.png").write_bytes(b"later")
    assert len(source) == len(pickle.loads(pickle.dumps(source))) == 3
    assert repr(source) != repr(FolderDataSource(root, "*/*.png"))
    assert repr(source) == repr(pickle.loads(pickle.dumps(source)))


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="nowhere"):
        FolderDataSource(tmp_path / "nowhere")


def test_a_pattern_without_files_is_named(root: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"\*\.jpeg"):
        FolderDataSource(root, "*.jpeg")


def test_a_file_that_was_removed_is_named(root: Path) -> None:
    source = FolderDataSource(root, "*.png")
    (root / "top.png").unlink()
    with pytest.raises(FileNotFoundError, match=r"top\.png"):
        source[0]


def test_keys_outside_are_refused(root: Path) -> None:
    source = FolderDataSource(root, "*/*.png")
    for key in (-1, 3):
        with pytest.raises(IndexError, match="records 0 to 2"):
            source[key]
        with pytest.raises(IndexError, match="records 0 to 2"):
            source.__getitems__([0, key])
