"""Metrics, scraped from a real server as Prometheus would."""

import json
import os
import socket
import subprocess
import sys
import textwrap
from typing import Any

import pytest

pytest.importorskip("prometheus_client")

_SCRAPE = """
import json, os, sys, urllib.request
import wholegrain as wg
from prometheus_client.parser import text_string_to_metric_families

def scrape():
    url = f"http://127.0.0.1:{os.environ['PYGRAIN_PROMETHEUS_PORT']}/metrics"
    text = urllib.request.urlopen(url, timeout=20).read().decode()
    return {
        sample.name + "".join(f"[{value}]" for value in sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }

class Words:
    def __len__(self):
        return 12
    def __getitem__(self, index):
        return "four"

"""


def _free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
    return port


def _run(program: str, **environ: str) -> subprocess.CompletedProcess[str]:
    variables = {
        **{k: v for k, v in os.environ.items() if "PROMETHEUS" not in k},
        "ENABLE_PYGRAIN_PROMETHEUS_TELEMETRY": "True",
        "PYGRAIN_PROMETHEUS_PORT": str(_free_port()),
        **environ,
    }
    return subprocess.run(
        [sys.executable, "-c", _SCRAPE + textwrap.dedent(program)],
        env=variables,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def _metrics(program: str, **environ: str) -> dict[str, Any]:
    done = _run(textwrap.dedent(program) + "\nprint(json.dumps(scrape()))", **environ)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("imported_first", [False, True])
def test_the_main_process_is_counted(imported_first: bool) -> None:
    # However the program orders its imports.
    before = "import prometheus_client\n" if imported_first else ""
    found = _metrics(before + "list(wg.MapDataset.source(Words()).to_iter_dataset().batch(4))")
    assert found["grain_python_dataset_next_duration_ns_count"] == 3
    assert found["grain_python_dataset_next_duration_ns_sum"] > 0
    assert found["grain_python_dataset_next_duration_ns_bucket[+Inf]"] == 3
    assert found["grain_python_dataset_prefetch_buffer_ready_count_count"] >= 3
    assert found["grain_python_data_sources_bytes_read_total[Words]"] == 48
    assert found["grain_python_dataset_source_read_time_ns_count[Words]"] == 12


def test_workers_are_counted() -> None:
    found = _metrics(
        """
        ds = wg.MapDataset.source(Words()).to_iter_dataset()
        list(ds.mp_prefetch(wg.MultiprocessingOptions(num_workers=2)))
        """
    )
    assert found["grain_python_dataset_next_duration_ns_count"] == 12
    assert found["grain_python_data_sources_bytes_read_total[Words]"] == 48
    assert found["grain_python_dataset_source_read_time_ns_count[Words]"] == 12


def test_loaders_are_counted() -> None:
    found = _metrics("list(wg.load(Words(), num_epochs=1))")
    assert found["grain_python_data_sources_bytes_read_total[Words]"] == 48
    assert found["grain_python_data_loader_iterator_get_next_count"] == 12


def test_the_folder_is_removed_at_the_end() -> None:
    done = _run("print(os.environ['PROMETHEUS_MULTIPROC_DIR'])")
    assert done.returncode == 0, done.stderr
    assert not os.path.exists(done.stdout.strip())


def test_without_a_port_nothing_is_served() -> None:
    done = _run("import threading; print(threading.active_count())", PYGRAIN_PROMETHEUS_PORT="0")
    assert done.stdout.strip() == "1", done.stderr


def test_a_port_in_use_is_that_of_another_process() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        done = _run("print(list(wg.MapDataset.range(3)))", PYGRAIN_PROMETHEUS_PORT=port)
    assert done.stdout.strip() == "[0, 1, 2]", done.stderr
    assert not done.stderr


def test_without_the_variable_nothing_is_counted_nor_served() -> None:
    program = """
        import tempfile
        it = iter(wg.MapDataset.range(3).to_iter_dataset())
        print(type(it._parent).__name__, "PROMETHEUS_MULTIPROC_DIR" in os.environ)
        print("wholegrain._graph.tracked_output" in sys.modules)
    """
    done = _run(program, ENABLE_PYGRAIN_PROMETHEUS_TELEMETRY="false")
    assert done.stdout.split() == ["PrefetchDatasetIterator", "False", "False"], done.stderr


_LISTENING = """
import socket
def answers(address):
    with socket.socket() as sock:
        sock.settimeout(20)
        return sock.connect_ex((address, int(os.environ["PYGRAIN_PROMETHEUS_PORT"]))) == 0
print(answers("127.0.0.1"), answers("127.0.0.2"))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has all of 127.0.0.0/8")
def test_metrics_are_served_on_the_loopback_address_unless_another_is_named() -> None:
    assert _run(_LISTENING).stdout.split() == ["True", "False"]
    assert _run(_LISTENING, WHOLEGRAIN_PROMETHEUS_ADDRESS="").stdout.split() == ["True", "False"]
    done = _run(_LISTENING, WHOLEGRAIN_PROMETHEUS_ADDRESS="0.0.0.0")
    assert done.stdout.split() == ["True", "True"], done.stderr
    done = _run(_LISTENING, WHOLEGRAIN_PROMETHEUS_ADDRESS="127.0.0.2")
    assert done.stdout.split() == ["False", "True"], done.stderr


def test_an_address_that_is_not_ones_own_is_a_warning() -> None:
    done = _run("print(list(wg.MapDataset.range(3)))", WHOLEGRAIN_PROMETHEUS_ADDRESS="192.0.2.1")
    assert done.stdout.strip() == "[0, 1, 2]", done.stderr
    assert "Metrics cannot be served" in done.stderr
    assert "192.0.2.1" in done.stderr


def test_what_autotune_adjusts_is_a_gauge() -> None:
    program = """
        from wholegrain import experimental as ex
        threads = ex.AutotuneParameter("my threads", 3, 1, 3)
        ds = wg.MapDataset.range(500).to_iter_dataset(wg.ReadOptions(threads))
        list(ex.autotune(ds, ex.AutotuneModelConfig(optimization_frequency=50)))
        found = {name: value for name, value in scrape().items() if "autotune" in name}
        print(json.dumps(found))
    """
    done = _run(program)
    found = json.loads(done.stdout)
    assert found.pop("grain_autotune_parameters[my threads]") == 3, done.stderr
    ((name, rate),) = found.items()
    assert name == "grain_autotune_node_throughput[to_iter_dataset]"
    assert rate > 0
