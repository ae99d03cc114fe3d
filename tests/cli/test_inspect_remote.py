"""`wholegrain inspect` of files in a store: a real S3 server on this machine."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.tools import complaint, succeed
from tests.s3_server import s3_bucket
from tests.sources.files import records, table, write_parquet, write_tfrecord

# The server and the clients are other people's code, with warnings of their own.
pytestmark = pytest.mark.filterwarnings("ignore")

pytest.importorskip("obstore")
pytest.importorskip("pyarrow")


@pytest.fixture(name="bucket", scope="module")
def _bucket() -> Iterator[Any]:
    with s3_bucket("inspected") as client:
        yield client


def test_objects_of_a_store(
    bucket: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for path in (
        write_tfrecord(tmp_path / "x.tfrecord", records(5)),
        write_parquet(tmp_path / "x.parquet", table({"a": [1, 2, 3]})),
    ):
        bucket.upload_file(str(path), "inspected", path.name)
    succeed("inspect", "s3://inspected/x.tfrecord", "--json")
    found = json.loads(capsys.readouterr().out)
    assert (found["format"], found["records"], found["bytes"]) == ("tfrecord", 5, None)
    succeed("inspect", "s3://inspected/x.parquet")
    assert "int64" in capsys.readouterr().out
    complaint(capsys, "inspect", "s3://inspected/missing.parquet")
    complaint(capsys, "inspect", "s3://inspected/unknown")
    complaint(capsys, "convert", "s3://inspected/x.parquet", str(tmp_path / "out.arrow"))
