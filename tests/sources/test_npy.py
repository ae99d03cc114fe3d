import io
import pickle
import warnings
import zipfile
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
    assert len(pickle.dumps(source)) < 500
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
    with pytest.raises(ValueError, match="is a scalar"):
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
    with pytest.raises(FileNotFoundError, match=r"no \.npy files"):
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


def test_reads_version_3_of_the_format(tmp_path: Path) -> None:
    array = np.zeros(3, [("é汉\\x41", "i4"), ("b", "f8", (2,))])
    array["é汉\\x41"] = [1, 2, 3]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        np.save(tmp_path / "a.npy", array)
        np.savez(tmp_path / "a.npz", x=array)
    assert (tmp_path / "a.npy").read_bytes()[6:8] == b"\3\0"
    source = NpyDataSource(tmp_path / "a.npy")
    assert source[1] == array[1]
    assert source[1].dtype == array.dtype
    assert NpyDataSource(tmp_path / "a.npz")[2]["x"] == array[2]


def test_a_flipped_bit_in_an_archive_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "damaged.npz"
    np.savez(path, x=np.arange(30_000.0), y=np.arange(30_000.0))
    content = bytearray(path.read_bytes())
    content[100_000] ^= 0x40
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"damaged\.npz/x\.npy' cannot be read.*CRC-32"):
        NpyDataSource(path)
    assert NpyDataSource(path, ["y"])[29_999]["y"] == 29_999
    assert len(NpyDataSource(path, check_crc=False)) == 30_000


@pytest.mark.parametrize("compression", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
@pytest.mark.parametrize("length", [600, 2**31, 2**47, -1])
def test_a_header_that_lies_reads_no_other_member(
    length: int, compression: int, tmp_path: Path
) -> None:
    header, other = io.BytesIO(), io.BytesIO()
    lie = {"descr": "|u1", "fortran_order": False, "shape": (length,)}
    np.lib.format.write_array_header_1_0(header, lie)
    np.save(other, np.frombuffer(b"SECRET" * 100, "u1"))
    path = tmp_path / "lies.npz"
    with zipfile.ZipFile(path, "w", compression) as archive:
        archive.writestr("x.npy", header.getvalue() + b"A" * 100)
        archive.writestr("y.npy", other.getvalue())
    with pytest.raises(ValueError, match=r"lies\.npz/x\.npy' cannot be read"):
        NpyDataSource(path)


def test_arrays_that_have_changed_are_noticed_by_other_processes(tmp_path: Path) -> None:
    np.save(tmp_path / "changed.npy", np.zeros((5, 3)))
    pickled = pickle.dumps(NpyDataSource(tmp_path / "changed.npy"))
    np.save(tmp_path / "changed.npy", np.zeros((5, 4)))
    with pytest.raises(ValueError, match=r"changed\.npy' has changed since"):
        pickle.loads(pickled)


def test_a_compressed_array_larger_than_the_memory_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "bomb.npz"
    np.savez_compressed(path, x=np.zeros(100_000_000, np.uint8))
    monkeypatch.setattr("wholegrain.sources._errors.available_memory", lambda: 90_000_000)
    with pytest.raises(MemoryError, match=r"bomb\.npz/x\.npy' needs 100,000,128 bytes"):
        NpyDataSource(path)
