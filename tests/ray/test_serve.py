"""One pipeline on the cluster for several consumers."""

import importlib.util
import itertools
import json
import subprocess
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import wholegrain as wg
from tests.ray.cluster_state import assert_nothing_left, living_actors
from wholegrain.ray import RayBackend, connect, serve
from wholegrain.testing.checks import assert_equal

pytestmark = pytest.mark.usefixtures("cluster")


def _stream(count: int = 62) -> wg.IterDataset[Any]:
    return (
        wg.MapDataset.range(count).shuffle(seed=4).map(lambda n: {"n": np.full(3, n)})
    ).to_iter_dataset()


def _numbers(elements: Any) -> list[int]:
    return [int(element["n"][0]) for element in elements]


def _round_robin(iterators: list[Any]) -> list[list[int]]:
    """Take elements in turn until all iterators have ended."""
    came: list[list[int]] = [[] for _ in iterators]
    for numbers in itertools.zip_longest(*iterators):
        for mine, element in zip(came, numbers, strict=True):
            if element is not None:
                mine += _numbers([element])
    return came


def test_each_consumer_gets_every_nth_element() -> None:
    expected = _numbers(_stream())
    with serve(_stream(), "in turn", consumers=3, num_cpus=0.1):
        iterators = [connect("in turn", consumer=number) for number in range(3)]
        came = _round_robin(iterators)
        first = connect("in turn", consumer=0)
        element = next(first)
        element["n"][0] = -1  # The arrays are the caller's own.
        first.close()
        with pytest.raises(ValueError, match="closed"):
            next(first)
    assert came == [expected[number::3] for number in range(3)]
    assert_nothing_left()


def test_a_consumer_goes_on_at_any_of_its_states() -> None:
    expected = _numbers(_stream())
    with serve(_stream(), "states", consumers=2, num_cpus=0.1, buffer_size=2):
        iterators = [connect("states", consumer=number) for number in range(2)]
        states: list[list[Any]] = [[it.get_state()] for it in iterators]
        for _ in range(20):
            for it, saved in zip(iterators, states, strict=True):
                next(it)
                saved.append(json.loads(json.dumps(it.get_state())))
        # One consumer goes back; then all of them do; then one goes forward again.
        iterators[1].set_state(states[1][3])
        assert _numbers(itertools.islice(iterators[1], 10)) == expected[1::2][3:13]
        iterators[1].set_state(states[1][20])
        for step in (0, 7, 20, 1):
            for it, saved in zip(iterators, states, strict=True):
                it.set_state(saved[step])
            # Each in a thread, as trainers are processes: the stream waits for the slower one.
            with ThreadPoolExecutor(2) as pool:
                came = list(pool.map(lambda it: _numbers(itertools.islice(it, 5)), iterators))
            assert came == [expected[number::2][step : step + 5] for number in range(2)]


_CONSUMER = """
import json, sys
import ray
from wholegrain.ray import connect

address, number, folder, most = sys.argv[1], int(sys.argv[2]), sys.argv[3], int(sys.argv[4])
ray.init(address=address, log_to_driver=False, logging_level="error")
it = connect("killed", consumer=number)
path = f"{folder}/{number}.json"
try:
    saved = json.load(open(path))
    it.set_state(saved["state"])
except FileNotFoundError:
    saved = {"seen": []}
for element in it:
    seen = [*saved["seen"], int(element["n"][0])]
    saved = {"seen": seen, "state": it.get_state()}
    with open(path + ".new", "w") as file:
        json.dump(saved, file)
    import os
    os.rename(path + ".new", path)
    if len(seen) == most:
        os.kill(os.getpid(), 9)
"""


def _consumer(cluster: Any, number: int, folder: Path, most: int = -1) -> subprocess.Popen[bytes]:
    arguments = [cluster.address, str(number), str(folder), str(most)]
    return subprocess.Popen([sys.executable, "-c", textwrap.dedent(_CONSUMER), *arguments])


def test_a_consumer_that_is_killed_loses_and_repeats_nothing(cluster: Any, tmp_path: Path) -> None:
    expected = _numbers(_stream(300))
    with serve(_stream(300), "killed", consumers=3, num_cpus=0.1, buffer_size=4):
        processes = [
            _consumer(cluster, number, tmp_path, 20 if number == 1 else -1) for number in range(3)
        ]
        try:
            assert processes[1].wait(60) == -9
            processes[1] = _consumer(cluster, 1, tmp_path)
            assert [process.wait(60) for process in processes] == [0, 0, 0]
        finally:
            for process in processes:
                process.kill()
                process.wait()
    seen = [json.loads((tmp_path / f"{number}.json").read_text())["seen"] for number in range(3)]
    assert seen == [expected[number::3] for number in range(3)]
    assert sorted(itertools.chain(*seen)) == list(range(300))


def test_the_server_may_die_and_may_have_actors_of_its_own() -> None:
    options = wg.MultiprocessingOptions(2, backend=RayBackend(num_cpus=0.1))
    ds = _stream(80).mp_prefetch(options)
    expected = _numbers(_stream(80))
    with serve(ds, "restarted", consumers=1, num_cpus=0.1):
        it = connect("restarted", consumer=0)
        came = _numbers(itertools.islice(it, 10))
        (server,) = [one for one in living_actors() if one["ActorClassName"] == "PipelineServer"]
        import os

        os.kill(server["Pid"], 9)
        came += _numbers(it)
    assert came == expected
    assert_nothing_left()


def test_errors_arrive_at_the_consumer_of_the_element() -> None:
    def fail(number: int) -> Any:
        if number == 5:
            raise KeyError("five")
        return number

    ds = wg.MapDataset.range(12).map(fail).to_iter_dataset()
    with serve(ds, "errors", consumers=2, num_cpus=0.1):
        even, odd = (connect("errors", consumer=number) for number in range(2))
        assert [next(odd), next(odd)] == [1, 3]
        with pytest.raises(KeyError, match="five") as caught:
            next(odd)
        assert any("element 5" in note for note in caught.value.__notes__)
        assert [next(even) for _ in range(6)] == [0, 2, 4, 6, 8, 10]
        assert list(odd) == [7, 9, 11]
        assert list(even) == []


def test_mistakes_are_explained() -> None:
    with serve(_stream(), "mistakes", consumers=2, num_cpus=0.1):
        with pytest.raises(ValueError, match="being served on this cluster already"):
            serve(_stream(), "mistakes", consumers=2, num_cpus=0.1)
        with pytest.raises(ValueError, match="2 consumers, numbered from 0, but got consumer=2"):
            connect("mistakes", consumer=2)
        with pytest.raises(ValueError, match="no worker of Ray Train"):
            connect("mistakes")
        old = connect("mistakes", consumer=0)
        state = connect("mistakes", consumer=1).get_state()
        with pytest.raises(ValueError, match="`consumer` is 1 in it, but 0 here"):
            old.set_state(state)
        connect("mistakes", consumer=0)
        with pytest.raises(RuntimeError, match="Another process has connected"):
            next(old)
    with pytest.raises(ValueError, match="No pipeline named 'mistakes'"):
        connect("mistakes", consumer=0, timeout_s=0)
    with pytest.raises(ValueError, match="number of `consumers`"):
        serve(_stream(), "mistakes")
    with pytest.raises(TypeError, match="needs a MapDataset or an IterDataset"):
        serve([1, 2], "mistakes", consumers=1)  # type: ignore[arg-type]


def test_an_iterator_fails_when_the_pipeline_is_closed() -> None:
    served = serve(wg.MapDataset.range(10**9), "closed", consumers=1, num_cpus=0.1)
    it = connect("closed", consumer=0)
    assert_equal([0, 1, 2], [next(it) for _ in range(3)], "elements")
    served.close()
    served.close()
    with pytest.raises(RuntimeError, match="not being served any more"):
        list(it)


_TRAINING = """
import json, sys
import numpy as np
import ray
import ray.train
from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer
import wholegrain as wg
from wholegrain.ray import connect, serve

address, folder = sys.argv[1:]

def train_loop():
    with connect("trained") as it:
        seen = list(it)
    rank = ray.train.get_context().get_world_rank()
    with open(f"{folder}/{rank}.json", "w") as file:
        json.dump(seen, file)

ray.init(address=address, log_to_driver=False, logging_level="error")
with serve(wg.MapDataset.range(20), "trained", consumers=2, num_cpus=0.1):
    DataParallelTrainer(
        train_loop,
        scaling_config=ray.train.ScalingConfig(num_workers=2, resources_per_worker={"CPU": 0.1}),
        run_config=ray.train.RunConfig(storage_path=f"{folder}/runs"),
    ).fit()
"""


def test_inside_ray_train_the_rank_is_the_consumer(cluster: Any, tmp_path: Path) -> None:
    if any(importlib.util.find_spec(name) is None for name in ("pyarrow", "fsspec", "pandas")):
        pytest.skip("needs ray[train]")
    command = [sys.executable, "-c", textwrap.dedent(_TRAINING), cluster.address, str(tmp_path)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=200)
    assert run.returncode == 0, run.stderr
    seen = [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(2)]
    assert seen == [list(range(0, 20, 2)), list(range(1, 20, 2))]
