"""TarIterDataset: the samples of tar files, in order."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from wholegrain._state.spec import CheckpointSpec
from wholegrain.sources import _paths
from wholegrain.sources._decode import Decode, apply_decoders, decoders
from wholegrain.sources._errors import DataFileError
from wholegrain.sources._row_parsers import checked_fields
from wholegrain.sources._stream import ContentStream
from wholegrain.sources._stream_iter import START, FilesIterDataset, Position, RecordReader
from wholegrain.sources._tar_scan import Member, members, padded, samples
from wholegrain.sources.tar import KEY, URL, missing_field, sample_text

# How much is read ahead.
_SAMPLES_AHEAD = 32
_BYTES_AHEAD = 1 << 22
_MISSING = ""  # the name under which a sample holds the error for a field that it lacks


class TarIterDataset(FilesIterDataset[dict[str, Any]]):
    """The samples of tar files with WebDataset's conventions, in order.

    Unlike `wholegrain.sources.TarDataSource` it needs no index, and no copy of a compressed file;
    but restoring a state decompresses a file from its begin. Workers share the files.

    Args:
        paths: As for `TarDataSource`.
        fields: As for `TarDataSource`.
        decode: As for `TarDataSource`.

    Example:
        >>> ds = TarIterDataset("train-*.tar", decode={"cls": "int", "jpg": decode_jpeg})
    """

    checkpoint = CheckpointSpec(fixed=("paths",), free=("fields", "decode"))

    def __init__(
        self,
        paths: _paths.Paths,
        fields: Sequence[str] | None = None,
        *,
        decode: Decode | None = None,
    ) -> None:
        super().__init__(paths)
        self._fields = checked_fields(fields, type(self).__name__)
        self._decode = decoders(decode, type(self).__name__)

    def open_reader(self, path: str) -> RecordReader:
        return TarReader(path, self._fields, self._decode)


class TarReader(RecordReader):
    """Reads the samples of a tar file."""

    def __init__(
        self,
        path: str,
        fields: Sequence[str] | None,
        decode: Mapping[str, Callable[[Any], Any]],
    ) -> None:
        self._stream = ContentStream(path)
        self._fields = fields
        self._decode = decode
        self.seek(START)

    def seek(self, position: Position) -> None:
        self._position = position
        self._samples = self._read_samples(position)
        self._error = None

    def tell(self) -> Position:
        return self._position

    def _read_samples(self, position: Position) -> Iterator[tuple[dict[str, Any], Position]]:
        """Yield samples with the positions after them."""
        path, read, fields = self._stream.path, self._stream.read, self._fields
        contents: dict[int, bytes] = {}
        latest: Member | None = None

        def visit(member: Member, field: str) -> None:
            nonlocal latest
            latest = member
            # The content of a compressed file cannot be read later.
            if fields is None or field in fields:
                contents[member.start] = read(member.start, member.size)

        count = position.line
        found_members = members(path, read, position.offset, self._stream.content_size)
        for key, found in samples(path, found_members, visit):
            assert latest is not None
            end = latest.header
            if next(reversed(found.values())) is latest:  # It is the last sample.
                end = latest.start + padded(latest.size)
            sample: dict[str, Any] = {KEY: key, URL: path}
            for name in found if fields is None else fields:
                sample[name] = contents.pop(found[name].start) if name in found else None
            missing = [name for name in fields or () if sample[name] is None]
            if missing:
                sample = {KEY: key, URL: path, _MISSING: missing_field(sample, missing[0], found)}
            count += 1
            yield sample, Position(end, count)

    def _take(self, records: list[Any], positions: list[Position]) -> None:
        size = 0
        while len(records) < _SAMPLES_AHEAD and size <= _BYTES_AHEAD:
            try:
                sample, end = next(self._samples)
            except StopIteration:
                return
            except DataFileError:
                # The exception has ended the generator.
                self._samples = self._read_samples(self._position)
                raise
            self._position = end
            if _MISSING in sample:
                raise sample[_MISSING]
            size += sum(map(len, sample.values()))
            if self._decode:
                apply_decoders(sample, self._decode, sample_text)
            records.append(sample)
            positions.append(end)

    def close(self) -> None:
        self._stream.close()
