import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from wholegrain.sources import NpyDataSource
from wholegrain.testing import check_source

IMAGES = np.arange(10 * 3 * 2, dtype=np.float32).reshape(10, 3, 2)
LABELS = np.arange(10, dtype=np.int16)


def _expect_pairs(source: NpyDataSource) -> None:
    assert len(source) == 10
    for index in range(10):
        assert list(source[index]) == ["image", "label"]
        np.testing.assert_array_equal(source[index]["image"], IMAGES[index])
        assert source[index]["label"] == index
        assert source[index]["label"].dtype == np.int16
    check_source(source)


def test_reads_one_array(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", IMAGES)
    source = NpyDataSource(tmp_path / "a.npy")
    for element, expected in zip(source.__getitems__([9, 0, 0]), IMAGES[[9, 0, 0]], strict=True):
        np.testing.assert_array_equal(element, expected)
        assert element.dtype == np.float32
    check_source(source)


def test_elements_can_be_changed_without_changing_the_file(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", IMAGES)
    source = NpyDataSource(tmp_path / "a.npy")
    source[0][:] = -1
    source.__getitems__([0, 1])[0][:] = -1
    np.testing.assert_array_equal(source[0], IMAGES[0])


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_reads_archives(tmp_path: Path, save: Any) -> None:
    save(tmp_path / "a.npz", image=IMAGES, label=LABELS)
    _expect_pairs(NpyDataSource(tmp_path / "a.npz"))


def test_maps_archives_that_are_not_compressed(tmp_path: Path) -> None:
    order_f = np.asfortranarray(IMAGES)
    np.savez(tmp_path / "a.npz", image=order_f, label=LABELS, empty=np.zeros((10, 0)))
    source = NpyDataSource(tmp_path / "a.npz", names=["image", "label"])
    _expect_pairs(source)
    assert len(pickle.dumps(source)) < 300
    assert NpyDataSource(tmp_path / "a.npz", ["empty"])[3]["empty"].shape == (0,)


def test_reads_folders(tmp_path: Path) -> None:
    np.save(tmp_path / "label.npy", LABELS)
    np.save(tmp_path / "image.npy", IMAGES)
    (tmp_path / "notes.txt").write_text("not an array")
    _expect_pairs(NpyDataSource(tmp_path))
    assert list(NpyDataSource(tmp_path, ["label"])[0]) == ["label"]
    assert repr(NpyDataSource(tmp_path)) == f"NpyDataSource({str(tmp_path)!r}, len=10)"


def test_arrays_of_different_lengths_are_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", a=np.zeros(3), b=np.zeros(4))
    with pytest.raises(ValueError, match=r"same length.*'a': 3, 'b': 4"):
        NpyDataSource(tmp_path / "a.npz")


def test_unknown_names_are_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", a=np.zeros(3))
    with pytest.raises(ValueError, match=r"no array 'b'; its arrays are \['a'\]"):
        NpyDataSource(tmp_path / "a.npz", ["b"])


def test_single_numbers_and_objects_are_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "number.npy", np.float32(1))
    with pytest.raises(ValueError, match="single number"):
        NpyDataSource(tmp_path / "number.npy")
    np.save(tmp_path / "objects.npy", np.array([{}], dtype=object))
    with pytest.raises(ValueError, match=r"objects\.npy' cannot be read"):
        NpyDataSource(tmp_path / "objects.npy")
    np.savez(tmp_path / "objects.npz", a=np.array([{}], dtype=object))
    with pytest.raises(ValueError, match="Python objects"):
        NpyDataSource(tmp_path / "objects.npz")


def test_missing_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="missing"):
        NpyDataSource(tmp_path / "missing.npy")
    with pytest.raises(FileNotFoundError, match=r"no \.npy arrays"):
        NpyDataSource(tmp_path)


@pytest.mark.parametrize("name", ["a.npy", "a.npz"])
def test_files_cut_off_anywhere_are_named(tmp_path: Path, name: str) -> None:
    whole = tmp_path / name
    if name == "a.npy":
        np.save(whole, IMAGES)
    else:
        np.savez(whole, image=IMAGES)
    content = whole.read_bytes()
    for size in range(0, len(content), 23):
        whole.write_bytes(content[:size])
        with pytest.raises(ValueError, match=f"{name}' cannot be read"):
            NpyDataSource(whole)


def test_keys_outside_are_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", LABELS)
    source = NpyDataSource(tmp_path / "a.npy")
    for key in (-1, 10):
        with pytest.raises(IndexError, match="records 0 to 9"):
            source[key]
        with pytest.raises(IndexError, match="records 0 to 9"):
            source.__getitems__([0, key])
