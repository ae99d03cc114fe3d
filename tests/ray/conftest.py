"""One Ray cluster of three nodes for all tests of this folder."""

import contextlib
import importlib.util
import os
import shutil
import tempfile
from collections.abc import Iterator
from typing import Any

import pytest

from tests.ray.cluster_state import Before

# `test_installed.py` says so in the list of skipped tests.
_TESTS = ("backend", "faults", "materialize", "serve", "streams", "streams_of_consumers")
collect_ignore = [f"test_{name}.py" for name in _TESTS if importlib.util.find_spec("ray") is None]

_STORE_BYTES = 120_000_000


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "tests/ray/" in item.path.as_posix():
            # Ray leaves sockets and log files to the garbage collector.
            item.add_marker(pytest.mark.filterwarnings("ignore::ResourceWarning"))
            item.add_marker(
                pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
            )
            item.add_marker(pytest.mark.xdist_group("ray"))


@pytest.fixture(scope="session")
def cluster() -> Iterator[Any]:
    """Three raylets on this machine, and this process connected to them."""
    import ray
    from ray.cluster_utils import Cluster

    # The path of a Unix socket may have 107 characters, which those of pytest's folders exceed.
    folder = tempfile.mkdtemp(prefix="wgray-", dir="/tmp")
    os.environ["RAY_TMPDIR"] = folder
    os.environ["RAY_DEDUP_LOGS"] = "0"
    nodes = Cluster()
    try:
        for number in range(3):
            settings: dict[str, Any] = {
                "num_cpus": 2,
                "object_store_memory": _STORE_BYTES,
                "resources": {f"node{number}": 100},
            }
            if number == 0:
                settings["include_dashboard"] = False
                # Ray's own settings take half a minute to notice that a node is gone.
                settings["_system_config"] = {
                    "health_check_initial_delay_ms": 3000,
                    "health_check_period_ms": 1000,
                    "health_check_timeout_ms": 3000,
                    "health_check_failure_threshold": 3,
                }
            nodes.add_node(**settings)
        nodes.wait_for_nodes()
        ray.init(address=nodes.address, log_to_driver=False, logging_level="error")
        yield nodes
    finally:
        with contextlib.suppress(Exception):
            ray.shutdown()
        nodes.shutdown()
        os.environ.pop("RAY_TMPDIR", None)
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(autouse=True)
def _before(request: pytest.FixtureRequest) -> None:
    if "cluster" in request.fixturenames:
        request.getfixturevalue("cluster")
        Before.note()
