"""Tar files with WebDataset's conventions as a source."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from wholegrain._core.types import Indices
from wholegrain.sources import _paths
from wholegrain.sources._content import Content, Scan
from wholegrain.sources._decode import Decode, apply_decoders, decoders
from wholegrain.sources._errors import CorruptFileError, check_memory
from wholegrain.sources._index import Arrays, Index
from wholegrain.sources._line_source import IndexedDataSource
from wholegrain.sources._row_parsers import checked_fields
from wholegrain.sources._tar_scan import members, samples

KEY, URL = "__key__", "__url__"


class TarDataSource(IndexedDataSource[dict[str, Any]]):
    """The samples of tar files with WebDataset's conventions, in any order.

    Consecutive members whose paths are equal up to the first dot of the file name are one sample:
    a dict with their contents under their extensions in lower case, the key under `"__key__"`, and
    the tar file under `"__url__"`. So `a/cat.jpg` and `a/cat.seg.png` are `{"__key__": "a/cat",
    "jpg": ..., "seg.png": ...}`. Folders and files without an extension are skipped.

    The members are found once and saved in a small file next to the data, `.<name>.tar.wgindex`,
    or in the cache folder. Tar files may be compressed, as those of `JsonlDataSource`.

    Args:
        paths: A file, or a sequence of files; each a path, a glob pattern, a sharded name such
            as `"train@16.tar"`, or the address of objects in a store, `"s3://..."`.
        fields: The extensions to read; by default all. A sample that lacks one is an error.
        decode: For some extensions, a function of the bytes, or the name of one: "bytes",
            "text", "int", "float", "json" or "npy". Others stay bytes.

    Example:
        >>> source = TarDataSource("train-*.tar", decode={"cls": "int", "jpg": decode_jpeg})
        >>> ds = wg.MapDataset.source(source).shuffle(seed=1)
    """

    _kind = "tar"

    def __init__(
        self,
        paths: _paths.Paths,
        fields: Sequence[str] | None = None,
        *,
        decode: Decode | None = None,
    ) -> None:
        self._settings: dict[str, Any] = {}
        self._fields = checked_fields(fields, type(self).__name__)
        self._decode = decoders(decode, type(self).__name__)
        super().__init__(paths)

    def _build(self, scan: Scan, path: str) -> tuple[dict[str, Any], Arrays]:
        names: dict[str, int] = {}
        keys: list[bytes] = []
        bounds, found = [0], []
        for key, fields in samples(path, members(path, scan.read, content_size=scan.content_size)):
            keys.append(key.encode("utf-8", "surrogateescape"))
            for name, member in fields.items():
                number = names.setdefault(name, len(names))
                found.append((member.start, member.size, number))
            bounds.append(len(found))
        arrays: Arrays = {
            "members": np.array(found, np.int64).ravel(),
            "bounds": np.array(bounds, np.int64),
            "keys": np.frombuffer(b"".join(keys), np.uint8),
            "key_ends": np.cumsum([len(key) for key in keys], dtype=np.int64),
        }
        return {"names": list(names)}, arrays

    def _count(self, index: Index) -> int:
        return len(index.arrays["bounds"]) - 1

    def _opened(self, path: str, content: Content, index: Index) -> "_OpenTar":
        return _OpenTar(path, content, index)

    def _read_one(self, file: int, position: int) -> dict[str, Any]:
        return self._read_many(file, np.array([position]))[0]

    def _read_many(self, file: int, positions: Indices) -> Sequence[dict[str, Any]]:
        opened: _OpenTar = self._handles.get(file)
        found = opened.read(positions, self._fields)
        for sample in found if self._decode else ():
            apply_decoders(sample, self._decode, sample_text)
        return found


def sample_text(sample: Mapping[str, Any]) -> str:
    """Return a text that names a sample and its file."""
    return f"{sample[URL]!r}, sample {sample[KEY]!r}"


class _OpenTar:
    """An open tar file."""

    def __init__(self, path: str, content: Content, index: Index) -> None:
        self._path = path
        self._content = content
        self._names: list[str] = index.facts["names"]
        self._members = index.arrays["members"].reshape(-1, 3)
        self._bounds = index.arrays["bounds"]
        self._keys = index.arrays["keys"]
        self._key_ends = index.arrays["key_ends"]

    def _key(self, row: int) -> str:
        start = int(self._key_ends[row - 1]) if row else 0
        key = self._keys[start : int(self._key_ends[row])].tobytes()
        return key.decode("utf-8", "surrogateescape")

    def read(self, positions: Indices, fields: Sequence[str] | None) -> list[dict[str, Any]]:
        """Return samples with the contents of their members."""
        result: list[dict[str, Any]] = []
        wanted: list[tuple[dict[str, Any], str, int, int]] = []
        for row in positions.tolist():
            sample: dict[str, Any] = {KEY: self._key(row), URL: self._path}
            result.append(sample)
            begin, end = self._bounds[row], self._bounds[row + 1]
            parts = {
                self._names[name]: (start, size)
                for start, size, name in self._members[begin:end].tolist()
            }
            for name in parts if fields is None else fields:
                if name not in parts:
                    raise missing_field(sample, name, parts)
                wanted.append((sample, name, *parts[name]))
        if wanted:
            check_memory(max(size for *_, size in wanted), self._path, ", the largest member")
        starts, sizes = [each[2] for each in wanted], [each[3] for each in wanted]
        contents = self._content.read_ranges(starts, sizes)
        for (sample, name, _, _), content in zip(wanted, contents, strict=True):
            sample[name] = content
        return result


def missing_field(sample: dict[str, Any], name: str, there: Mapping[str, Any]) -> CorruptFileError:
    """Return the error for a sample that lacks a field that the user selected."""
    return CorruptFileError(
        f"{sample_text(sample)}: it has no field {name!r}, only {', '.join(there)}."
    )
