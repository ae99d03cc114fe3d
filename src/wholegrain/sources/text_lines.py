"""The lines of text files as a source."""

from typing import Any

from wholegrain.sources import _paths
from wholegrain.sources._content import Scan
from wholegrain.sources._index import Arrays
from wholegrain.sources._line_scan import scan_lines
from wholegrain.sources._line_source import LineDataSource
from wholegrain.sources._row_parsers import TextRow


class TextLineDataSource(LineDataSource[Any]):
    r"""The lines of text files without their line breaks, in any order.

    A line ends with `\n` or `\r\n`. Blank lines are records. Index, compression and encoding are
    those of `JsonlDataSource`.

    Args:
        paths: As for `JsonlDataSource`.
        as_bytes: Whether to return bytes instead of text.

    Example:
        >>> source = TextLineDataSource("corpus-*.txt")
    """

    _kind = "lines"

    def __init__(self, paths: _paths.Paths, *, as_bytes: bool = False) -> None:
        self._parser = TextRow(as_bytes)
        self._settings: dict[str, Any] = {}
        super().__init__(paths)

    def _build(self, scan: Scan, path: str) -> tuple[dict[str, Any], Arrays]:
        return {}, scan_lines(path, scan, skip_blank=False)._asdict()
