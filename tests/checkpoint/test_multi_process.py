"""Jobs of several jax processes, which save and restore together, each its own share."""

import json
import os
import shutil
import socket
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

import wholegrain as wg
from tests.checkpoint.host import GLOBAL_BATCH, STEPS, dataset, packed

# Not imported here, but by the processes.
pytestmark = pytest.mark.skipif(
    not (find_spec("orbax") and find_spec("jax")), reason="needs Orbax and jax"
)

NAMES = ["dataset", "workers", "loader", "elastic"]


def run(tasks: str, folder: Path, processes: int) -> list[dict[str, Any]]:
    """Have so many processes do something together; return what each has found."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    hosts = []
    for process in range(processes):
        arguments = [tasks, str(folder), str(port), str(process), str(processes)]
        with open(folder / f"log_{process}", "ab") as log:
            hosts.append(
                subprocess.Popen(
                    [sys.executable, "-m", "tests.checkpoint.host", *arguments],
                    stdout=subprocess.PIPE,
                    stderr=log,
                    text=True,
                    env={**os.environ, "JAX_PLATFORMS": "cpu"},
                )
            )
    try:
        said = [host.communicate(timeout=110)[0] for host in hosts]
    finally:
        for host in hosts:
            host.kill()
            host.communicate()
    for process, host in enumerate(hosts):
        assert host.returncode == 0, (folder / f"log_{process}").read_text()
    return [json.loads(text.splitlines()[-1]) for text in said]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("job")


@pytest.fixture(scope="module")
def saved(folder: Path) -> list[dict[str, Any]]:
    """What two processes read before and after they saved their iterators."""
    found = [one["save"] for one in run("save", folder, 2)]
    item = folder / "legacy" / str(STEPS) / "dataset"
    shutil.copytree(item, folder / "incomplete")
    (folder / "incomplete" / "process_1-of-2.json").unlink()
    return found


@pytest.fixture(scope="module")
def restored(folder: Path, saved: Any) -> list[dict[str, Any]]:
    """What two new processes find."""
    return run("restore,restore_without_a_file", folder, 2)


def test_each_process_writes_its_own_files(folder: Path, saved: Any) -> None:
    for path in (folder / "legacy" / str(STEPS), folder / "v1"):
        for name in NAMES:
            files = sorted(file.name for file in (path / name).glob("*.json"))
            assert files == [
                "pipeline_0-of-2.json",
                "pipeline_1-of-2.json",
                "process_0-of-2.json",
                "process_1-of-2.json",
            ]


def test_processes_have_different_shares(saved: list[dict[str, Any]]) -> None:
    for name in ("workers", "loader"):
        shares = [
            saved[process]["before"][name] + saved[process]["after"][name] for process in (0, 1)
        ]
        assert sorted(shares[0] + shares[1]) == list(range(96))


@pytest.mark.parametrize("interface", ["legacy", "v1"])
@pytest.mark.parametrize("name", NAMES)
def test_new_processes_go_on_where_the_others_stopped(
    name: str, interface: str, saved: list[dict[str, Any]], restored: list[dict[str, Any]]
) -> None:
    for process in (0, 1):
        expected = saved[process]["after"][name]
        assert expected
        assert restored[process]["restore"][interface][name] == expected


def test_a_process_whose_file_is_missing_says_which_and_what_to_do(
    folder: Path, saved: list[dict[str, Any]], restored: list[dict[str, Any]]
) -> None:
    first, second = (one["restore_without_a_file"] for one in restored)
    assert first == {"next": saved[0]["after"]["dataset"][0]}
    for word in (
        str(folder / "incomplete" / "process_1-of-2.json"),
        "does not exist",
        "process_0-of-2.json",
        "process 1 of 2",
        "Restore",
    ):
        assert word in second["error"]
    # It has not moved.
    assert second["next"] == saved[1]["before"]["dataset"][0]


@pytest.mark.parametrize("processes", [1, 3])
def test_another_number_of_processes_continues_the_stream(
    processes: int, folder: Path, saved: list[dict[str, Any]]
) -> None:
    found = [one["restore_elastic"]["elastic"] for one in run("restore_elastic", folder, processes)]
    # In every step the processes have an element in turn.
    stream = [
        batches[step][place]
        for step in range(len(found[0]))
        for place in range(GLOBAL_BATCH // processes)
        for batches in found
    ]
    assert stream == list(dataset())[STEPS * GLOBAL_BATCH :]


def _global_steps(found: list[dict[str, Any]], remainder: str) -> list[Any]:
    """Return the rows and masks of each step, of all processes one after the other."""
    by_process = [one[remainder] for one in found]
    assert len({len(steps) for steps in by_process}) == 1  # All end after the same step.
    return [
        [[row for part in parts for row in part[place]] for place in (0, 1)]
        for parts in zip(*by_process, strict=True)
    ]


def _elements(steps: list[Any]) -> list[Any]:
    return sorted(
        tokens for rows, mask in steps for tokens, ok in zip(rows, mask, strict=True) if ok
    )


@pytest.fixture(scope="module")
def saved_lanes(folder: Path) -> list[dict[str, Any]]:
    """What two processes read of filtered, packed data, before and after they saved."""
    return [one["save_lanes"] for one in run("save_lanes", folder, 2)]


def test_an_epoch_of_unknown_length_ends_at_the_same_step_everywhere(
    saved_lanes: list[dict[str, Any]],
) -> None:
    whole = {}
    for remainder in ("drop", "pad"):
        steps = [
            step
            for when in ("before", "after")
            for step in _global_steps([one[when] for one in saved_lanes], remainder)
        ]
        whole[remainder] = steps
    ds = packed().mp_prefetch(wg.MultiprocessingOptions(num_workers=0, lanes=8))
    everything = sorted(batch["x"].tolist() for batch in ds)
    assert _elements(whole["pad"]) == everything
    dropped = _elements(whole["drop"])
    assert len(dropped) == 16 * len(whole["drop"]) <= len(everything)
    assert not all(all(mask) for _, mask in whole["pad"])


@pytest.mark.parametrize("processes", [1, 4])
def test_other_processes_go_on_with_the_same_global_batches(
    processes: int, folder: Path, saved_lanes: list[dict[str, Any]]
) -> None:
    found = [one["restore_lanes"] for one in run("restore_lanes", folder, processes)]
    for remainder in ("drop", "pad"):
        expected = _global_steps([one["after"] for one in saved_lanes], remainder)
        assert expected
        for interface in ("legacy", "v1"):
            assert _global_steps([one[interface] for one in found], remainder) == expected
