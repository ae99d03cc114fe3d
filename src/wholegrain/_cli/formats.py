"""Detection of the format of files, from their content and their names."""

import dataclasses
import enum
import json
import os
import re
import zipfile
from collections.abc import Sequence
from typing import Any

from wholegrain import sources
from wholegrain._cli.errors import BadInput
from wholegrain.sources import _paths
from wholegrain.sources._crc32c import checksum_of_length
from wholegrain.sources._errors import missing_file
from wholegrain.sources._files import read_all
from wholegrain.sources._tfrecord_reader import HEAD, compression_of


class Format(enum.StrEnum):
    """A file format."""

    ARRAY_RECORD = "array_record"
    TFRECORD = "tfrecord"
    PARQUET = "parquet"
    ARROW = "arrow"
    BAGZ = "bagz"
    NPY = "npy"
    JSONL = "jsonl"
    TEXT = "text"
    CSV = "csv"
    TAR = "tar"
    MDS = "mds"
    FOLDER = "folder"

    @property
    def has_columns(self) -> bool:
        """Whether records are rows of columns instead of bytes."""
        return self in (
            Format.PARQUET,
            Format.ARROW,
            Format.NPY,
            Format.CSV,
            Format.TAR,
            Format.MDS,
        )

    @property
    def has_rows(self) -> bool:
        """Whether a source returns rows of columns instead of bytes."""
        return self.has_columns or self is Format.JSONL

    @property
    def has_index(self) -> bool:
        """Whether a source needs an index, which is saved in a side-car file."""
        return self in (Format.JSONL, Format.TEXT, Format.CSV, Format.TAR)


_ENDINGS = {
    "array_record": Format.ARRAY_RECORD,
    "arrayrecord": Format.ARRAY_RECORD,
    "tfrecord": Format.TFRECORD,
    "tfrecords": Format.TFRECORD,
    "tfrec": Format.TFRECORD,
    "parquet": Format.PARQUET,
    "pq": Format.PARQUET,
    "arrow": Format.ARROW,
    "feather": Format.ARROW,
    "bagz": Format.BAGZ,
    "npy": Format.NPY,
    "npz": Format.NPY,
    "jsonl": Format.JSONL,
    "ndjson": Format.JSONL,
    "txt": Format.TEXT,
    "csv": Format.CSV,
    "tsv": Format.CSV,
    "tar": Format.TAR,
    "tgz": Format.TAR,
}
# Suffixes of compressed files of the formats with an index.
_COMPRESSED = re.compile(r"\.(gz|zst|zstd)(?=(-\d+-of-\d+|@(\d+|\*))?$)", re.IGNORECASE)
_TAR_MAGIC = 257, b"ustar"
# "train.array_record-00000-of-00004" is a name that TFDS gives, "train-00000-of-00004.bagz" one
# of Bagz; "train@4.parquet" and "train.parquet@4" expand to such files.
_NAME = re.compile(r".*\.(?P<ending>[a-z_]+)(?:-\d+-of-\d+|@(?:\d+|\*))?", re.IGNORECASE)
_RIEGELI = bytes.fromhex("83af70d10d884a3f")  # the container of ArrayRecord
# Files next to the shards of a dataset that are not shards.
_BESIDE = re.compile(r"[._].*|.*\.(json|md|txt|lock|csv|html)|LICEN[SC]E|README", re.IGNORECASE)
# Files about a dataset.
_ABOUT = re.compile(r"[._].*|.*\.(md|lock)|(LICEN[SC]E|README)(\.\w+)?", re.IGNORECASE)


@dataclasses.dataclass(frozen=True)
class Found:
    """The files at a path.

    Attributes:
        path: The path as the user gave it.
        format: The format of the files.
        files: The files, in the order of the records; for a folder of records, the folder.
        note: A description for people.
    """

    path: str
    format: Format
    files: list[str]
    note: str = ""

    @property
    def is_remote(self) -> bool:
        """Whether it is in an object store."""
        return _paths.is_remote(self.files[0])


_KNOWN = [str(each) for each in Format if each is not Format.FOLDER]


def find(path: str) -> Found:
    """Return the files at a path, or raise if there are none or their format is unknown."""
    name = _paths.to_text(path)
    if not name:
        raise BadInput("The path is empty.")
    if _paths.is_remote(name):
        files = _paths.expand(name)
        formats = [format_of_name(file) for file in files]
        # Only if it is a folder, because asking the store takes time.
        if name.endswith("/") and _is_remote_mds(name):
            return Found(path, Format.MDS, [name], "MosaicML's shards")
        return Found(path, _one_format(path, formats), files)
    if os.path.isdir(name):
        return _find_in_folder(path, name)
    files = _paths.expand(name)
    for file in files:
        if os.path.isdir(file):
            raise BadInput(f"{path!r} matches the folder {file!r}; pass files, or one folder.")
        if not os.path.exists(file):
            raise missing_file(file)
    return Found(path, _one_format(path, [_format_of_file(file) for file in files]), files)


def format_of_name(name: str) -> Format | None:
    """Return the format for the suffix of a name, or None."""
    base = os.path.basename(name.rstrip("/"))
    plain = _COMPRESSED.sub("", base)
    match = _NAME.fullmatch(plain)
    found = _ENDINGS.get(match["ending"].lower()) if match else None
    return found if plain == base or (found is not None and found.has_index) else None


def _one_format(path: str, formats: Sequence[Format | None]) -> Format:
    different = set(formats)
    if len(different) == 1 and (common := formats[0]) is not None:
        return common
    if different == {None}:
        raise BadInput(
            f"The format of {path!r} is unknown: neither its content nor its name is that of"
            f" {', '.join(_KNOWN)} or npz."
        )
    names = ", ".join(sorted(each or "unknown" for each in different))
    raise BadInput(f"The files of {path!r} have different formats: {names}.")


def _find_in_folder(path: str, folder: str) -> Found:
    entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    names = {entry.name for entry in entries}
    if "dataset_dict.json" in names:
        with open(os.path.join(folder, "dataset_dict.json")) as file:
            splits = json.load(file).get("splits", [])
        raise BadInput(
            f"{path!r} is a Hugging Face dataset with the splits {', '.join(splits)}. Pass one"
            f" of them: {os.path.join(path, splits[0] if splits else 'train')!r}."
        )
    if "state.json" in names and "dataset_info.json" in names:
        with open(os.path.join(folder, "state.json")) as file:
            shards = [shard["filename"] for shard in json.load(file)["_data_files"]]
        files = [os.path.join(folder, shard) for shard in shards]
        return Found(path, Format.ARROW, files, "a Hugging Face dataset")
    if "index.json" in names and _is_mds(os.path.join(folder, "index.json")):
        return Found(path, Format.MDS, [folder], "MosaicML's shards")
    data = [entry for entry in entries if not _BESIDE.fullmatch(entry.name)]
    tables = [entry for entry in entries if not _ABOUT.fullmatch(entry.name)]
    if not data and all(format_of_name(entry.name) is Format.CSV for entry in tables):
        data = tables  # They are not next to shards.
    formats = {format_of_name(entry.name) for entry in data}
    if len(formats) == 1 and not any(entry.is_dir() for entry in data):
        (common,) = formats
        if common is Format.NPY and all(entry.name.endswith(".npy") for entry in data):
            return Found(path, common, [folder], f"{len(data)} arrays in a folder")
        if common is not None and common is not Format.NPY:
            return Found(path, common, [entry.path for entry in data])
    return Found(path, Format.FOLDER, [folder])


def _is_mds(path: str) -> bool:
    try:
        with open(path, "rb") as file:
            return _lists_shards(file.read())
    except OSError:
        return False


def _is_remote_mds(url: str) -> bool:
    try:
        return _lists_shards(read_all(f"{url.rstrip('/')}/index.json"))
    except OSError:
        return False


def _lists_shards(index: bytes) -> bool:
    try:
        shards = json.loads(index)["shards"]
        return bool(shards) and all(shard["format"] == "mds" for shard in shards)
    except (ValueError, KeyError, TypeError):
        return False


def _format_of_file(path: str) -> Format | None:
    try:
        with open(path, "rb") as file:
            head = file.read(512)
    except IsADirectoryError:
        return None
    named = format_of_name(path)
    if head.startswith(b"PAR1"):
        return Format.PARQUET
    if head.startswith(b"ARROW1") or (head.startswith(b"\xff" * 4) and named is Format.ARROW):
        return Format.ARROW
    if head.startswith(b"\x93NUMPY"):
        return Format.NPY
    if head.startswith(b"PK\x03\x04") and _has_arrays(path):
        return Format.NPY
    if head.startswith(_RIEGELI):
        return Format.ARRAY_RECORD
    if len(head) >= HEAD.size:
        length, checksum = HEAD.unpack_from(head)
        if checksum == checksum_of_length(length):
            return Format.TFRECORD
    offset, magic = _TAR_MAGIC
    if head[offset : offset + len(magic)] == magic:
        return Format.TAR
    if compression_of(head) is not None and named is None:
        raise BadInput(f"{path!r} is compressed. Decompress it first.")
    return named


def _has_arrays(path: str) -> bool:
    try:
        with zipfile.ZipFile(path) as archive:
            return any(name.endswith(".npy") for name in archive.namelist())
    except (zipfile.BadZipFile, OSError):
        return False


def open_source(found: Found, check: bool | None = None) -> Any:
    """Return the source of the records that were found.

    Args:
        found: What was found.
        check: Whether to verify checksums; by default if that is cheap.
    """
    files: Any = found.files
    match found.format:
        case Format.ARRAY_RECORD:
            return sources.ArrayRecordDataSource(files)
        case Format.TFRECORD:
            return sources.TFRecordDataSource(files, check_payload=check)
        case Format.PARQUET:
            return sources.ParquetDataSource(files)
        case Format.ARROW:
            return sources.ArrowDataSource(files)
        case Format.BAGZ:
            return sources.BagzDataSource(files)
        case Format.FOLDER:
            return sources.FolderDataSource(files[0], "**/*")
        case Format.JSONL:
            return sources.JsonlDataSource(files)
        case Format.TEXT:
            return sources.TextLineDataSource(files, as_bytes=True)
        case Format.CSV:
            tabs = all(".tsv" in os.path.basename(file).lower() for file in files)
            return sources.CsvDataSource(files, delimiter="\t" if tabs else ",")
        case Format.TAR:
            return sources.TarDataSource(files)
        case Format.MDS:
            return sources.MdsDataSource(files[0], check_hashes=check)
        case Format.NPY:
            if len(files) > 1:
                raise BadInput(f"{found.path!r} expands to {len(files)} arrays; pass one of them.")
            return sources.NpyDataSource(files[0])
