"""Reads damaged files of one format: a program of its own, so that a crash or a hang is seen.

    python -m tests.stress.fuzz FORMAT COUNT SEED FOLDER

It says how far it is, and ends with 0 if each file was read, or refused by an error that names it.
"""

import faulthandler
import gzip
import random
import resource
import struct
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import wholegrain as wg
from tests.sources import files
from wholegrain import experimental, sources
from wholegrain.sources import DataFileError

_LONGEST_S = 30  # for one file
_MOST_BYTES = 6 << 30  # of addresses, most of which libraries only reserve

_RECORDS = [b"%d " % number * (number % 9 * 8 + 1) for number in range(60)]


def _npy() -> Iterator[bytes]:
    import io

    for array in (
        np.arange(600.0).reshape(60, 10),
        np.array([("a", 1, [1, 2])] * 40, [("name", "U5"), ("n", "i8"), ("l", "f4", (2,))]),
        np.asfortranarray(np.arange(60, dtype=np.uint8).reshape(20, 3)),
        np.zeros(9, [("é", "i4")]),
    ):
        file = io.BytesIO()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            np.save(file, array)
        yield file.getvalue()


def _npz() -> Iterator[bytes]:
    import io

    for save in (np.savez, np.savez_compressed):
        file = io.BytesIO()
        save(file, x=np.arange(300.0).reshape(60, 5), y=np.arange(60), z=np.array(["text"] * 60))
        yield file.getvalue()


def _table() -> Any:
    numbers = range(60)
    return files.table(
        {
            "number": [None if n % 7 == 0 else n for n in numbers],
            "real": [n / 7 for n in numbers],
            "text": [f"text {n % 5}" * (n % 4) for n in numbers],
            "bytes": _RECORDS,
            "flag": [None if n == 3 else n % 2 == 0 for n in numbers],
            "list": [list(range(n % 5)) for n in numbers],
            "nested": [{"a": n, "b": [str(n)] * (n % 3)} for n in numbers],
        }
    )


def _arrow(path: Path, *, stream: bool) -> Iterator[bytes]:
    yield files.write_arrow(path, _table(), batch_rows=20, stream=stream).read_bytes()
    table = _table()
    table = table.set_column(2, "text", table.column("text").dictionary_encode())
    yield files.write_arrow(path, table, batch_rows=20, stream=stream).read_bytes()


def _parquet(path: Path) -> Iterator[bytes]:
    for options in ({}, {"compression": "zstd", "use_dictionary": False}, {"version": "1.0"}):
        yield files.write_parquet(path, _table(), 20, **options).read_bytes()


def _samples(kind: str, path: Path) -> list[bytes]:
    """Return good files of a format."""
    match kind:
        case "npy":
            return list(_npy())
        case "npz":
            return list(_npz())
        case "arrow" | "arrow_stream":
            return list(_arrow(path, stream=kind == "arrow_stream"))
        case "parquet" | "parquet_iter":
            return list(_parquet(path))
        case "tfrecord" | "tfrecord_iter":
            return [files.tfrecord_bytes(_RECORDS)]
        case "tfrecord_gzip":
            return [gzip.compress(files.tfrecord_bytes(_RECORDS))]
        case "array_record":
            options = ("group_size:1", "group_size:8", "group_size:1,uncompressed")
            return [files.write_array_record(path, _RECORDS, o).read_bytes() for o in options]
        case "bagz":
            return [files.write_bagz(path, _RECORDS).read_bytes()]
        case "jsonl" | "jsonl_iter":
            return [_JSONL, _JSONL.replace(b"\n", b"\r\n\n"), b"\xef\xbb\xbf" + _JSONL.rstrip()]
        case "jsonl_gzip" | "jsonl_gzip_iter":
            parts = [_JSONL[start : start + 300] for start in range(0, len(_JSONL), 300)]
            return [gzip.compress(_JSONL), b"".join(map(gzip.compress, parts))]
        case "jsonl_zstd":
            zstandard = files._library("zstandard")
            parts = [_JSONL[start : start + 300] for start in range(0, len(_JSONL), 300)]
            return [zstandard.compress(_JSONL), b"".join(map(zstandard.compress, parts))]
        case "csv" | "csv_iter":
            return [_CSV, _CSV.replace(b"\n", b"\r\n")]
        case "tar" | "tar_iter":
            return list(_tars())
        case "mds_shard":
            return [(_MDS / "shard.00000.mds").read_bytes()]
        case "mds_index":
            return [(_MDS / "index.json").read_bytes()]
        case "index":
            return [_index_of(path)]
    raise ValueError(kind)


_JSONL = b"".join(b'{"n": %d, "text": "%s"}\n' % (n, b"x\xc3\xa9" * (n % 9)) for n in range(60))
_CSV = b"n,text\n" + b"".join(b'%d,"a ""q""\n%d"\n' % (n, n) for n in range(60))
_MDS = Path(__file__).parent.parent / "sources" / "data" / "mds"


def _tars() -> Iterator[bytes]:
    import io
    import tarfile

    for form in (tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT):
        out = io.BytesIO()
        with tarfile.open(fileobj=out, mode="w", format=form) as archive:
            for number, record in enumerate(_RECORDS[:12]):
                long_name = "x" * 90 + "/" + "y" * 90 if number % 5 == 0 else "name"
                info = tarfile.TarInfo(f"{long_name}{number // 2}.{'ab'[number % 2]}")
                info.size = len(record)
                archive.addfile(info, io.BytesIO(record))
        yield out.getvalue()


def _index_of(path: Path) -> bytes:
    data = path.with_name("data.jsonl")
    data.write_bytes(_JSONL)
    sources.JsonlDataSource(data)
    return data.with_name(".data.jsonl.jsonl.wgindex").read_bytes()


def _read_with_index(path: str) -> Any:
    """Read a good file with a damaged index: its rows are always right."""
    data = Path(path).with_name("data.jsonl")
    data.with_name(".data.jsonl.jsonl.wgindex").write_bytes(Path(path).read_bytes())
    source = sources.JsonlDataSource(data, parse=False)
    assert [row.encode() for row in source] == _JSONL.splitlines()
    return source


def _mds(path: str, name: str) -> Any:
    """Return a dataset of which one file is damaged."""
    folder = Path(path).with_name("mds")
    folder.mkdir(exist_ok=True)
    for file in _MDS.iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    content = Path(path).read_bytes()
    if name == "shard.00000.mds":
        # With the right length, so that it is read at all.
        content = content.ljust(folder.joinpath(name).stat().st_size, b"x")
        content = content[: folder.joinpath(name).stat().st_size]
    (folder / name).write_bytes(content)
    return sources.MdsDataSource(folder)


_READERS: dict[str, Callable[[str], Any]] = {
    "npy": sources.NpyDataSource,
    "npz": sources.NpyDataSource,
    "arrow": sources.ArrowDataSource,
    "arrow_stream": sources.ArrowDataSource,
    "parquet": sources.ParquetDataSource,
    "parquet_iter": experimental.ParquetIterDataset,
    "tfrecord": sources.TFRecordDataSource,
    "tfrecord_iter": experimental.TFRecordIterDataset,
    "tfrecord_gzip": experimental.TFRecordIterDataset,
    "array_record": sources.ArrayRecordDataSource,
    "bagz": sources.BagzDataSource,
    "jsonl": sources.JsonlDataSource,
    "jsonl_iter": experimental.JsonlIterDataset,
    "jsonl_gzip": sources.JsonlDataSource,
    "jsonl_gzip_iter": experimental.JsonlIterDataset,
    "jsonl_zstd": sources.JsonlDataSource,
    "csv": sources.CsvDataSource,
    "csv_iter": experimental.CsvIterDataset,
    "tar": sources.TarDataSource,
    "tar_iter": experimental.TarIterDataset,
    "mds_shard": lambda path: _mds(path, "shard.00000.mds"),
    "mds_index": lambda path: _mds(path, "index.json"),
    "index": _read_with_index,
}
FORMATS = list(_READERS)
INDEXED = FORMATS[FORMATS.index("jsonl") :]

_NUMBERS = [0, 1, 0x7F, 0x80, 0xFF, 0x7FFF, 0xFFFF, 2**31 - 1, 2**31, 2**32 - 1, 2**40, 2**63 - 1]
_NUMBERS += [2**63, 2**64 - 1, 2**62 + 8, 2**64 - 1000]


def mutated(content: bytes, rng: random.Random) -> bytes:
    """Return a damaged copy: bits flipped, bytes changed, cut, inserted, moved, numbers huge."""
    data = bytearray(content)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        if not data:
            break
        # The beginning and the end say what is in between.
        size = len(data)
        at = rng.choice((rng.randrange(size), rng.randrange(min(size, 300)), -1))
        if at < 0:
            at = size - 1 - rng.randrange(min(size, 400))
        match rng.randrange(8):
            case 0:
                data[at] ^= 1 << rng.randrange(8)
            case 1:
                data[at] = rng.randrange(256)
            case 2:
                del data[at:]
            case 3:
                data[at:at] = rng.randbytes(rng.choice((1, 4, 100)))
            case 4:  # a splice of the file itself
                start = rng.randrange(size)
                part = data[start : start + rng.randrange(1, 200)]
                data[at : at + rng.choice((0, len(part)))] = part
            case 5:
                del data[at : at + rng.choice((1, 4, 8, 100))]
            case 6:
                width, code = rng.choice(((2, "<H"), (4, "<I"), (8, "<Q")))
                number = rng.choice(_NUMBERS) & (1 << 8 * width) - 1
                data[at : at + width] = struct.pack(code, number)
            case 7:
                data[at : at + rng.choice((8, 64, 500))] = bytes(rng.choice((8, 64, 500)))
    return bytes(data)


def _read(kind: str, path: str) -> None:
    source = _READERS[kind](path)
    if isinstance(source, wg.IterDataset):
        for _ in source:
            pass
        return
    count = len(source)
    if count:
        source[count - 1]
        for start in range(0, min(count, 2000), 50):
            source.__getitems__(range(start, min(start + 50, count)))


def _problem(kind: str, path: Path) -> str:
    """Read a file; return what is wrong with how that went."""
    try:
        _read(kind, str(path))
    except DataFileError as error:
        is_named = str(path) in str(error) or str(path.with_name("mds")) in str(error)
        return "" if is_named else f"does not name the file: {error!r}"
    except BaseException as error:
        # Columns that are not what a source needs are told by a plain ValueError.
        fine = type(error) is ValueError and str(path) in str(error)
        return "" if fine else f"{type(error).__name__}: {error}"
    return ""


def main() -> int:
    kind, count, seed, folder = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4])
    samples = _samples(kind, folder / "sample")
    path = folder / "good"
    for sample in samples:
        path.write_bytes(sample)
        _read(kind, str(path))
    resource.setrlimit(resource.RLIMIT_AS, (_MOST_BYTES, _MOST_BYTES))
    problems: dict[str, int] = {}
    path = folder / "damaged"
    for number in range(count):
        content = mutated(samples[number % len(samples)], random.Random(f"{kind} {seed} {number}"))
        path.write_bytes(content)
        print(number, file=sys.stderr, flush=True)
        faulthandler.dump_traceback_later(_LONGEST_S, exit=True)
        problem = _problem(kind, path)
        faulthandler.cancel_dump_traceback_later()
        if problem:
            problems.setdefault(problem.replace(str(path), "FILE")[:300], number)
    for problem, number in problems.items():
        print(f"mutation {number}: {problem}")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    print(f"peak {peak} MB")
    return 1 if problems or peak > 2000 else 0


if __name__ == "__main__":
    sys.exit(main())
