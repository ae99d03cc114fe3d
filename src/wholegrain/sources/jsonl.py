"""JSON Lines files as a source."""

from collections.abc import Sequence
from typing import Any

from wholegrain.sources import _paths
from wholegrain.sources._content import Scan
from wholegrain.sources._index import Arrays
from wholegrain.sources._line_scan import scan_lines
from wholegrain.sources._line_source import LineDataSource
from wholegrain.sources._row_parsers import JsonRow, TextRow, checked_fields


class JsonlDataSource(LineDataSource[Any]):
    """The rows of JSON Lines files, in any order.

    The offsets of the lines are found once and saved in a small file next to the data,
    `.<name>.jsonl.wgindex`, or in the cache folder. Lines of white space are skipped. Files are
    UTF-8, may start with a byte order mark, and may have Windows line breaks.

    Files may be compressed with gzip or zstd. Files of many small frames, as `bgzip` and `pzstd`
    write them, are decompressed a frame at a time. Others are decompressed once into the cache
    folder.

    Args:
        paths: A file, or a sequence of files; each a path, a glob pattern, a sharded name such
            as `"train@16.jsonl"`, or the address of objects in a store, `"s3://..."`.
        fields: The members of the JSON objects to return; by default all. Missing ones are None.
        parse: Whether to return parsed values instead of the text of a line.

    Example:
        >>> source = JsonlDataSource("data/*.jsonl.gz", fields=["text"])
        >>> ds = wg.MapDataset.source(source).shuffle(seed=1).map(tokenize)
    """

    _kind = "jsonl"

    def __init__(
        self, paths: _paths.Paths, fields: Sequence[str] | None = None, parse: bool = True
    ) -> None:
        self._parser = json_parser(fields, parse, type(self).__name__)
        self._settings: dict[str, Any] = {}
        super().__init__(paths)

    def _build(self, scan: Scan, path: str) -> tuple[dict[str, Any], Arrays]:
        return {}, scan_lines(path, scan, skip_blank=True)._asdict()


def json_parser(fields: Sequence[str] | None, parse: bool, of: str) -> JsonRow | TextRow:
    """Return what parses the lines of JSON Lines files."""
    names = checked_fields(fields, of)
    if not parse and names is not None:
        raise ValueError(f"`{of}` needs `parse=True` to select `fields`.")
    return JsonRow(names) if parse else TextRow()
