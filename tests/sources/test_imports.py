"""Formats cost nothing until they are used, and say what they need when it is missing."""

import subprocess
import sys
from pathlib import Path

import pytest

import wholegrain.sources
from wholegrain._core.install import install_command


def run(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_importing_the_sources_imports_no_format() -> None:
    loaded = run(
        "import sys, wholegrain.sources as s, wholegrain.experimental\n"
        "[getattr(s, name) for name in dir(s)]\n"
        "print(*sorted({name.partition('.')[0] for name in sys.modules}))"
    ).split()
    optional = {"pyarrow", "array_record", "bagz", "google_crc32c", "obstore", "fsspec", "datasets"}
    optional |= {"zstandard", "xxhash"}
    assert not optional & set(loaded)


def test_every_public_name_is_there() -> None:
    assert dir(wholegrain.sources) == [
        "ArrayRecordDataSource",
        "ArrowDataSource",
        "BagzDataSource",
        "Cache",
        "CsvDataSource",
        "DataFileError",
        "FolderDataSource",
        "JsonlDataSource",
        "MdsDataSource",
        "NpyDataSource",
        "ParquetDataSource",
        "RandomAccessDataSource",
        "RangeDataSource",
        "RemoteOptions",
        "SharedMemoryDataSource",
        "SupportsBatchedReadRandomAccessDataSource",
        "TFRecordDataSource",
        "TarDataSource",
        "TextLineDataSource",
        "set_remote_options",
    ]
    for name in dir(wholegrain.sources):
        assert getattr(wholegrain.sources, name).__name__ == name
    with pytest.raises(AttributeError, match="no attribute 'NoSuchSource'"):
        wholegrain.sources.NoSuchSource  # noqa: B018


@pytest.mark.parametrize(
    ("package", "extra", "code"),
    [
        ("array_record", "array-record", "ArrayRecordDataSource('x')"),
        ("pyarrow", "parquet", "ParquetDataSource('x')"),
        ("pyarrow", "arrow", "ArrowDataSource('x')"),
        ("bagz", "bagz", "BagzDataSource('x')"),
        ("google_crc32c", "tfrecord", "TFRecordDataSource(path, check_payload=True)"),
    ],
)
def test_a_missing_library_is_named_with_the_extra_that_installs_it(
    tmp_path: Path, package: str, extra: str, code: str
) -> None:
    path = tmp_path / "empty"
    path.touch()
    output = run(
        "import os; os.environ['WHOLEGRAIN_PURE'] = '1'\n"
        f"import sys; sys.modules[{package!r}] = None; path = {str(path)!r}\n"
        "from wholegrain.sources import *\n"
        f"try: {code}\n"
        "except ImportError as error: print(error)"
    )
    assert f"needs the package `{package}`" in output
    assert install_command(extra) in output


def test_tfrecords_are_read_without_any_library(tmp_path: Path) -> None:
    from tests.sources.files import records, write_tfrecord

    path = write_tfrecord(tmp_path / "a", records(5))
    output = run(
        "import sys; sys.modules['google_crc32c'] = None\n"
        "from wholegrain.sources import TFRecordDataSource\n"
        "from wholegrain.experimental import TFRecordIterDataset\n"
        f"path = {str(path)!r}\n"
        "print(list(TFRecordDataSource(path)) == list(TFRecordIterDataset(path)))"
    )
    assert output == "True\n"


def test_a_store_that_nothing_can_read_is_named() -> None:
    output = run(
        "import sys; sys.modules['obstore'] = sys.modules['fsspec'] = None\n"
        "from wholegrain.sources import FolderDataSource\n"
        "try: FolderDataSource('s3://bucket/folder')\n"
        "except ImportError as error: print(error)"
    )
    assert "s3://bucket" in output
    assert install_command("remote") in output
