"""The output of pipelines as files, written by actors."""

import json
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import wholegrain as wg
from tests.ray.cluster_state import assert_nothing_left, wait_until
from wholegrain.ray import RayBackend, materialize

pytestmark = pytest.mark.usefixtures("cluster")


def _content(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir() if file.suffix != ".json"}


def _bytes(number: int) -> bytes:
    return f"record {number} ".encode() * (number % 7)


def _map_dataset() -> wg.MapDataset[Any]:
    return wg.MapDataset.range(103).shuffle(seed=1).filter(lambda n: n % 5 != 0).map(_bytes)


def _row(number: int) -> Any:
    return {"number": number, "text": str(number), "tokens": np.arange(number % 4)}


@pytest.mark.parametrize(
    ("ds", "form"),
    [
        (_map_dataset(), "array_record"),
        (_map_dataset().to_iter_dataset(), "array_record"),
        (wg.MapDataset.range(50).map(_bytes).to_iter_dataset(), "tfrecord"),
        (wg.MapDataset.range(50).shuffle(seed=1).map(_row), "parquet"),
    ],
    ids=["map", "iter", "iter-full-shards", "columns"],
)
def test_the_bytes_are_those_of_a_local_run(ds: Any, form: str, tmp_path: Path) -> None:
    files = materialize(
        ds,
        tmp_path / "ray",
        format=form,
        records_per_shard=25,
        num_workers=2,
        backend=RayBackend(num_cpus=0.5),
    )
    materialize(
        ds, tmp_path / "local", format=form, records_per_shard=25, num_workers=0, backend="fork"
    )
    assert files == sorted(str(file) for file in (tmp_path / "ray").glob(f"*.{form}"))
    assert _content(tmp_path / "ray") == _content(tmp_path / "local")
    if form == "array_record":
        # The shards of a MapDataset are ranges of indices, so missing elements make them smaller.
        read = [bytes(record) for record in wg.sources.ArrayRecordDataSource(files)]
        assert read == list(ds)
    assert not list(tmp_path.glob("*.unfinished"))


_DRIVER = """
import functools, sys, time
import ray
import wholegrain as wg
from wholegrain.ray import RayBackend, materialize

def slow(log, number):
    with open(log, "a") as file:
        file.write(f"{number}\\n")
    time.sleep(0.02)
    return b"%d" % number

ray.init(address=sys.argv[1], log_to_driver=False, logging_level="error")
ds = wg.MapDataset.range(100).map(functools.partial(slow, sys.argv[3]))
if sys.argv[4] == "iter":
    ds = ds.to_iter_dataset(wg.ReadOptions(num_threads=0, prefetch_buffer_size=0))
materialize(ds, sys.argv[2], records_per_shard=10, num_workers=2, backend=RayBackend(num_cpus=0.5))
"""


@pytest.mark.parametrize("kind", ["map", "iter"])
def test_a_killed_driver_continues(cluster: Any, kind: str, tmp_path: Path) -> None:
    log = tmp_path / "log"
    arguments = [cluster.address, str(tmp_path / "out"), str(log), kind]
    command = [sys.executable, "-c", textwrap.dedent(_DRIVER), *arguments]
    driver = subprocess.Popen(command)
    work = tmp_path / "out.unfinished"
    try:
        wait_until(lambda: len(list(work.glob("shard-*"))) >= 3, "no shard is finished", 60)
    finally:
        os.kill(driver.pid, signal.SIGKILL)
        driver.wait()
    assert_nothing_left()
    finished = {file.name: file.stat().st_mtime_ns for file in work.glob("shard-*")}
    assert len(finished) < 10
    subprocess.run(command, check=True, timeout=120)
    records = wg.sources.ArrayRecordDataSource(sorted(map(str, (tmp_path / "out").glob("data-*"))))
    assert [bytes(record) for record in records] == [b"%d" % number for number in range(100)]
    for name, written in finished.items():
        (file,) = (tmp_path / "out").glob(f"data-{name[-5:]}-of-00010.array_record")
        assert file.stat().st_mtime_ns == written, "a finished shard was written again"


def test_mistakes_are_explained(tmp_path: Path) -> None:
    numbers = wg.MapDataset.range(10)
    with pytest.raises(TypeError, match="bytes, but one is a int"):
        materialize(numbers, tmp_path / "out", backend="fork", num_workers=0)
    with pytest.raises(ValueError, match="records_per_shard changed"):
        materialize(numbers, tmp_path / "out", backend="fork", records_per_shard=3)
    with pytest.raises(ValueError, match="`format` has to be one of"):
        materialize(numbers, tmp_path / "out", format="csv")
    with pytest.raises(ValueError, match="no end"):
        materialize(numbers.repeat(), tmp_path / "out")
    with pytest.raises(FileExistsError, match="exists already"):
        materialize(numbers, tmp_path)
    assert json.loads((tmp_path / "out.unfinished" / "manifest.json").read_text())


def test_convert_writes_the_same_bytes_on_the_cluster(cluster: Any, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    for number in range(40):
        (source / f"{number:03d}.txt").write_bytes(_bytes(number))
    for name, more in (("local", ()), ("ray", ("--ray", "--verify"))):
        (tmp_path / name).mkdir()
        subprocess.run(
            [
                *(sys.executable, "-m", "wholegrain", "convert", str(source)),
                *(str(tmp_path / name / "out.array_record"), "--shards", "3", *more),
            ],
            check=True,
            timeout=120,
            env={**os.environ, "RAY_ADDRESS": cluster.address},
        )
    assert len(_content(tmp_path / "local")) == 3
    assert _content(tmp_path / "ray") == _content(tmp_path / "local")
