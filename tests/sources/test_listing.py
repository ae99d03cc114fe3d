"""Listing the objects of a store, and what is said while that takes long."""

import subprocess
import sys
from typing import Any

import pytest

from tests.sources.faulty_proxy import FaultyProxy
from tests.sources.test_bad_network import _bucket as _bucket
from tests.sources.test_bad_network import _proxy as _proxy
from tests.sources.test_bad_network import upload, use
from tests.sources.test_jsonl import CONTENT, ROWS
from wholegrain.sources import JsonlDataSource
from wholegrain.sources._paths import expand

_LIST = """
import sys
from wholegrain.sources import RemoteOptions, set_remote_options
from wholegrain.sources._paths import expand
from wholegrain.sources._remote import locate
set_remote_options(RemoteOptions(endpoint=sys.argv[1], hedge_after_s=None))
locate("s3://data/")  # It imports the library.
print("ready", flush=True)
sys.stdin.readline()
print(*expand("s3://data/together/*"), flush=True)
"""


def test_processes_that_list_together_ask_the_store_once(bucket: Any, proxy: FaultyProxy) -> None:
    urls = [upload(bucket, f"together/{number}", b"x") for number in range(3)]
    proxy.latency_s = 3.0  # so that all of them ask before the first has an answer
    programs = [
        subprocess.Popen(
            [sys.executable, "-c", _LIST, proxy.address],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(3)
    ]
    try:
        for program in programs:
            assert program.stdout is not None
            assert program.stdout.readline() == "ready\n"
        for program in programs:
            assert program.stdin is not None
            program.stdin.write("go\n")
            program.stdin.flush()
        found = [program.communicate(timeout=50)[0].split() for program in programs]
    finally:
        for program in programs:
            program.kill()
    assert found == [urls] * 3
    assert proxy.counts["list"] == 1
    proxy.latency_s = 0.0
    use(proxy)
    urls.append(upload(bucket, "together/3", b"x"))
    assert expand("s3://data/together/*") == urls  # An earlier list is not used.


def test_a_long_listing_and_opening_many_files_are_reported(
    bucket: Any,
    proxy: FaultyProxy,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    for number in range(3):
        upload(bucket, f"reported/{number}.jsonl", CONTENT)
    use(proxy)
    monkeypatch.setattr("wholegrain.sources._progress._LONG_S", 60.0)
    assert len(JsonlDataSource("s3://data/reported/*.jsonl")) == 3 * len(ROWS)
    assert "Listing" not in caplog.text
    assert "Opening" not in caplog.text
    monkeypatch.setattr("wholegrain.sources._progress._LONG_S", 0.0)
    JsonlDataSource("s3://data/reported/*.jsonl")
    assert "Listing s3://data/reported: 3 objects so far" in caplog.text
    assert "Opening files: 1 of 3" in caplog.text
