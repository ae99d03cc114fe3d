"""Where records come from: files of many formats, arrays, and shared memory.

The library of a format is imported when a source of that format is created.
"""

from typing import TYPE_CHECKING

from wholegrain._core import lazy
from wholegrain.sources.protocol import RandomAccessDataSource as RandomAccessDataSource
from wholegrain.sources.protocol import (
    SupportsBatchedReadRandomAccessDataSource as SupportsBatchedReadRandomAccessDataSource,
)

if TYPE_CHECKING:
    from wholegrain.sources._errors import DataFileError as DataFileError
    from wholegrain.sources.array_record import ArrayRecordDataSource as ArrayRecordDataSource
    from wholegrain.sources.arrow import ArrowDataSource as ArrowDataSource
    from wholegrain.sources.bagz import BagzDataSource as BagzDataSource
    from wholegrain.sources.cache import Cache as Cache
    from wholegrain.sources.csv_rows import CsvDataSource as CsvDataSource
    from wholegrain.sources.folder import FolderDataSource as FolderDataSource
    from wholegrain.sources.jsonl import JsonlDataSource as JsonlDataSource
    from wholegrain.sources.mds import MdsDataSource as MdsDataSource
    from wholegrain.sources.memory import RangeDataSource as RangeDataSource
    from wholegrain.sources.memory import SharedMemoryDataSource as SharedMemoryDataSource
    from wholegrain.sources.npy import NpyDataSource as NpyDataSource
    from wholegrain.sources.parquet import ParquetDataSource as ParquetDataSource
    from wholegrain.sources.remote_options import RemoteOptions as RemoteOptions
    from wholegrain.sources.remote_options import set_remote_options as set_remote_options
    from wholegrain.sources.tar import TarDataSource as TarDataSource
    from wholegrain.sources.text_lines import TextLineDataSource as TextLineDataSource
    from wholegrain.sources.tfrecord import TFRecordDataSource as TFRecordDataSource

_MODULES = {
    "ArrayRecordDataSource": "array_record",
    "ArrowDataSource": "arrow",
    "BagzDataSource": "bagz",
    "Cache": "cache",
    "CsvDataSource": "csv_rows",
    "DataFileError": "_errors",
    "FolderDataSource": "folder",
    "JsonlDataSource": "jsonl",
    "MdsDataSource": "mds",
    "NpyDataSource": "npy",
    "ParquetDataSource": "parquet",
    "RangeDataSource": "memory",
    "RemoteOptions": "remote_options",
    "SharedMemoryDataSource": "memory",
    "TFRecordDataSource": "tfrecord",
    "set_remote_options": "remote_options",
    "TarDataSource": "tar",
    "TextLineDataSource": "text_lines",
}

__all__ = [
    *_MODULES,
    "RandomAccessDataSource",
    "SupportsBatchedReadRandomAccessDataSource",
]


__getattr__ = lazy.importer(
    __name__, {name: f"{__name__}.{home}" for name, home in _MODULES.items()}
)


def __dir__() -> list[str]:
    return sorted(__all__)
