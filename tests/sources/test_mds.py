"""MosaicML's shards: what its library wrote, and damaged files."""

import decimal
import json
import pickle
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from wholegrain.sources import DataFileError, MdsDataSource
from wholegrain.testing import check_source

pytest.importorskip("zstandard")

# Written by `MDSWriter` of mosaicml-streaming 0.13.0, 20 samples in 3 shards each.
FIXTURES = Path(__file__).parent / "data"
NAMES = ["mds", "mds-zstd", "mds-gz"]


@pytest.fixture(name="folder", params=NAMES)
def _folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return Path(shutil.copytree(FIXTURES / request.param, tmp_path / "data"))


def expected(n: int) -> dict[str, Any]:
    return {
        "a": np.arange(n + 1, dtype=np.int32).reshape(1, -1),
        "a32": np.arange(3 * n + 3, dtype=np.float32).reshape(-1, 3),
        "afix": np.full((2, 3), n, np.int16),
        "b": bytes([n]) * (n % 5),
        "f32": np.float32(n / 3),
        "f64": np.float64(n / 3),
        "i": n - 5,
        "i16": np.int16(-n),
        "j": {"n": n, "l": [None, n]},
        "s": f"text é {n}",
        "sd": decimal.Decimal(n) / 8,
        "sf": n / 7,
        "si": 10**30 + n,
        "u8": np.uint8(n),
    }


def test_reads_what_the_library_wrote(folder: Path) -> None:
    source = MdsDataSource(folder)
    assert len(source) == 20
    for n, sample in enumerate(source):
        png, pickled = sample.pop("png"), sample.pop("pkl")
        assert png.startswith(b"\x89PNG")
        assert pickle.loads(pickled) == [n]
        assert sample.keys() == expected(n).keys()
        for name, value in expected(n).items():
            assert type(sample[name]) is type(value)
            np.testing.assert_array_equal(sample[name], value)
            if isinstance(value, np.ndarray):
                assert sample[name].dtype == value.dtype
    check_source(source)
    assert source.columns["a32"] == "ndarray:float32"
    assert repr(source) == f"MdsDataSource({str(folder)!r}, len=20)"


def test_columns_are_selected_and_decoded(folder: Path) -> None:
    source = MdsDataSource(folder, ["s", "i"], decode={"i": str, "s": len}, check_hashes=True)
    assert source[19] == {"s": 9, "i": "14"}
    assert list(source[0]) == ["s", "i"]
    with pytest.raises(ValueError, match=r"no column 'x'. The columns are a, a32"):
        MdsDataSource(folder, ["x"])
    with pytest.raises(DataFileError, match=r"shard.00001.mds', sample 2: the field 's'"):
        MdsDataSource(folder, decode={"s": int})[12]


def _shard_of(folder: Path, number: int) -> Path:
    (path,) = folder.glob(f"shard.{number:05d}.mds*")
    return path


def test_damaged_shards_are_named(folder: Path) -> None:
    path = _shard_of(folder, 1)
    good = path.read_bytes()
    path.write_bytes(good[:-1])
    source = MdsDataSource(folder)
    assert source[0]["i"] == -5
    with pytest.raises(DataFileError, match=r"shard.00001.mds.* bytes, but index.json lists"):
        source[10]
    path.write_bytes(good[:-9] + bytes([good[-9] ^ 1]) + good[-8:])
    with pytest.raises(DataFileError, match=r"shard.00001.mds.* is damaged: its sha1 is"):
        MdsDataSource(folder, check_hashes=True)[10]
    if path.suffix != ".mds":
        with pytest.raises(DataFileError, match=r"shard.00001.mds.* is damaged: its sha1 is"):
            MdsDataSource(folder)[10]
    path.unlink()
    with pytest.raises(FileNotFoundError, match=r"shard.00001.mds"):
        MdsDataSource(folder)[10]


def test_every_hash_of_the_format_is_checked(tmp_path: Path) -> None:
    pytest.importorskip("xxhash")
    folder = Path(shutil.copytree(FIXTURES / "mds", tmp_path / "data"))
    index = json.loads((folder / "index.json").read_text())
    for shard in index["shards"]:
        del shard["raw_data"]["hashes"]["sha1"]
    (folder / "index.json").write_text(json.dumps(index))
    assert len(list(MdsDataSource(folder, check_hashes=True))) == 20
    index["shards"][0]["raw_data"]["hashes"]["xxh64"] = "0" * 16
    (folder / "index.json").write_text(json.dumps(index))
    with pytest.raises(DataFileError, match=r"shard.00000.mds' is damaged: its xxh64 is"):
        MdsDataSource(folder, check_hashes=True)[0]
    index["shards"][0]["raw_data"]["hashes"] = {}
    (folder / "index.json").write_text(json.dumps(index))
    with pytest.raises(ValueError, match="cannot be checked: none in the index"):
        MdsDataSource(folder, check_hashes=True)[0]


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"version": 3}, "version 3"),
        ({"shards": 5}, "cannot be read"),
        ({"format": "json"}, "'json', not of MDS"),
        ({"samples": -1}, "not a count"),
        ({"raw_data": {"basename": "../x", "bytes": 1}}, "not a file of the dataset"),
        ({"column_names": ["a"]}, "different numbers"),
        ({"zip_data": {"basename": "x.br", "bytes": 1}, "compression": "br:3"}, "only zstd and gz"),
    ],
)
def test_a_bad_index_is_named(change: dict[str, Any], problem: str, tmp_path: Path) -> None:
    index = json.loads((FIXTURES / "mds" / "index.json").read_text())
    top = change.keys() & {"version", "shards"}
    (index if top else index["shards"][1]).update(change)
    (tmp_path / "index.json").write_text(json.dumps(index))
    with pytest.raises(DataFileError, match=f"index.json'.*{problem}"):
        MdsDataSource(tmp_path)


def test_there_has_to_be_an_index(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"index.json"):
        MdsDataSource(tmp_path)
    (tmp_path / "index.json").write_text("no JSON")
    with pytest.raises(DataFileError, match=r"index.json' cannot be read"):
        MdsDataSource(tmp_path)
    (tmp_path / "index.json").write_text('{"version": 2, "shards": []}')
    assert len(MdsDataSource(tmp_path)) == 0


def write_shard(folder: Path, columns: dict[str, tuple[str, int | None]], rows: Any) -> None:
    """Write a dataset of one shard, whose values are already encoded."""
    samples = []
    for row in rows:
        lengths = [len(row[name]) for name, (_, size) in columns.items() if size is None]
        samples.append(np.array(lengths, "<u4").tobytes() + b"".join(row[name] for name in columns))
    header = b"{}"
    ends = np.cumsum([0, *map(len, samples)]) + 4 * (len(samples) + 2) + len(header)
    content = np.array([len(samples), *ends], "<u4").tobytes() + header + b"".join(samples)
    (folder / "shard.mds").write_bytes(content)
    shard = {
        "column_encodings": [encoding for encoding, _ in columns.values()],
        "column_names": list(columns),
        "column_sizes": [size for _, size in columns.values()],
        "compression": None,
        "format": "mds",
        "raw_data": {"basename": "shard.mds", "bytes": len(content), "hashes": {}},
        "samples": len(samples),
        "zip_data": None,
    }
    (folder / "index.json").write_text(json.dumps({"version": 2, "shards": [shard]}))


def test_bad_values_are_named(tmp_path: Path) -> None:
    columns = {"a": ("ndarray", None), "s": ("str", None), "i": ("int", 8)}
    good = {"a": b"\x08\x04\x02xy", "s": b"s", "i": bytes(8)}
    bad: list[dict[str, bytes]] = [
        {"a": b""}, {"a": b"\x07\x04\x02xy"}, {"a": b"\x08\x04\x03xy"}, {"a": b"\x08\xff\x02xy"},
        {"s": b"\xff"}, {"i": bytes(7)},
    ]  # fmt: skip
    write_shard(tmp_path, columns, [good, *({**good, **each} for each in bad)])
    source = MdsDataSource(tmp_path)
    assert source[0]["a"].tolist() == [120, 121]
    for n in range(1, len(source)):
        with pytest.raises(DataFileError, match=rf"shard.mds', sample {n}: it cannot be decoded"):
            source[n]
    write_shard(tmp_path, {"x": ("strange", None)}, [])
    assert len(MdsDataSource(tmp_path)) == 0
    write_shard(tmp_path, {"x": ("strange", None)}, [{"x": b""}])
    with pytest.raises(DataFileError, match=r"shard.mds' .*encoding 'strange' .* not known"):
        MdsDataSource(tmp_path)[0]


def test_wrong_offsets_are_named(tmp_path: Path) -> None:
    write_shard(tmp_path, {"s": ("str", None)}, [{"s": b"abc"}] * 3)
    path = tmp_path / "shard.mds"
    good = path.read_bytes()
    for at, value in ((0, 2), (4, 3), (8, 2**32 - 1), (16, 2**31)):
        path.write_bytes(good[:at] + np.uint32(value).tobytes() + good[at + 4 :])
        with pytest.raises(DataFileError, match=r"shard.mds"):
            MdsDataSource(tmp_path)[0]
