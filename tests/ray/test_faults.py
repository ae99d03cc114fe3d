"""Actors and nodes that disappear change nothing in the stream, and leave nothing."""

import concurrent.futures
import gc
import itertools
import logging
import os
import random
import signal
import subprocess
import sys
import textwrap
import threading
import time
from typing import Any

import numpy as np
import pytest

import wholegrain as wg
from tests.ray.cluster_state import assert_nothing_left, living_actors, wait_until
from wholegrain.multiprocessing import MultiprocessingOptions
from wholegrain.ray import RayBackend
from wholegrain.testing.checks import assert_equal

# All 20 faults: WHOLEGRAIN_RAY_FAULTS=20
_FAULTS = int(os.environ.get("WHOLEGRAIN_RAY_FAULTS", "4"))


def _large(number: int) -> Any:
    time.sleep(0.02)
    return np.full(40_000, number)  # In a block of its own: 320 kB.


def _pipeline(count: int) -> wg.IterDataset[Any]:
    return wg.MapDataset.range(count).shuffle(seed=2).map(_large).to_iter_dataset()


def _expected(count: int) -> list[int]:
    return list(wg.MapDataset.range(count).shuffle(seed=2))


def _in_actors(ds: wg.IterDataset[Any], num_workers: Any = 3, **settings: Any) -> Any:
    options = MultiprocessingOptions(
        num_workers=num_workers, max_workers=3, backend=RayBackend(num_cpus=0.5, **settings)
    )
    return iter(ds.mp_prefetch(options))


def _replace_a_node(cluster: Any) -> None:
    """Remove a node that has no driver, as if its machine had failed, and add another one."""
    node = random.choice([node for node in cluster.worker_nodes if node is not cluster.head_node])
    cluster.remove_node(node, allow_graceful=False)
    resources = node._ray_params.resources
    cluster.add_node(num_cpus=2, object_store_memory=120_000_000, resources=resources)


def _kill_a_process(cluster: Any) -> None:
    actors = [actor for actor in living_actors() if actor["State"] == "ALIVE"]
    if actors:
        os.kill(random.choice(actors)["Pid"], signal.SIGKILL)


@pytest.mark.parametrize("num_workers", [3, "auto"])
def test_a_stream_survives_killed_actors_and_lost_nodes(cluster: Any, num_workers: Any) -> None:
    rounds = _FAULTS // 2
    count = 30 * (rounds + 1)
    with _in_actors(_pipeline(count), num_workers) as it:
        came = []
        for number in range(rounds):
            came += [element[0] for element in itertools.islice(it, random.randrange(1, 30))]
            (_kill_a_process, _replace_a_node)[number % 2](cluster)
        came += [element[0] for element in it]
    assert came == _expected(count)
    assert_nothing_left()


def test_a_drained_node_is_replaced(cluster: Any) -> None:
    import ray

    node = cluster.add_node(num_cpus=2, resources={"drained": 2}, object_store_memory=120_000_000)
    client = ray._private.worker.global_worker.gcs_client
    with _in_actors(_pipeline(60), 2) as it:
        came = [next(it)[0] for _ in range(5)]
        preemption, soon = 2, int(1e3 * (time.time() + 1))
        accepted, why = client.drain_node(node.node_id, preemption, "the test asks", soon)
        assert accepted, why
        came += [element[0] for element in it]
    assert came == _expected(60)
    cluster.remove_node(node)


def test_nothing_is_left_after_an_exception(cluster: Any) -> None:
    def fail(number: int) -> Any:
        if number == 7:
            raise KeyError("the reason")
        return _large(number)

    ds = wg.MapDataset.range(20).map(fail).to_iter_dataset()
    it = _in_actors(ds, 2)
    with pytest.raises(KeyError, match="the reason") as caught:
        list(it)
    assert any("Worker 1 of 2" in note for note in caught.value.__notes__)
    assert next(it)[0] == 8
    del it, caught
    gc.collect()  # The traceback refers to the iterator, and to itself.
    assert_nothing_left()


_DRIVER = """
import sys
import numpy as np
import ray
import wholegrain as wg
from wholegrain.ray import RayBackend

ray.init(address=sys.argv[1], log_to_driver=False, logging_level="error")
table = np.zeros(1_000_000)
ds = wg.MapDataset.range(1000).map(lambda n: table[:40_000] + n).to_iter_dataset()
options = wg.MultiprocessingOptions(2, backend=RayBackend(num_cpus=0.5))
it = iter(ds.mp_prefetch(options))
held = [next(it) for _ in range(3)]
print("running", flush=True)
sys.stdin.read()
"""


def test_nothing_is_left_after_the_driver_was_killed(cluster: Any) -> None:
    driver = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(_DRIVER), cluster.address],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        assert driver.stdout is not None
        assert driver.stdout.readline() == b"running\n"
        pids = [actor["Pid"] for actor in living_actors()]
        assert len(pids) == 2
    finally:
        driver.kill()
        driver.communicate()
    assert_nothing_left()
    wait_until(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in pids), "processes left")


def test_a_warning_says_what_is_missing_and_then_it_waits(
    cluster: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "wholegrain")
    it = _in_actors(_pipeline(4), 1, resources={"telescope": 1})
    it.start_prefetch()
    added: list[Any] = []

    class AddNode(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if "telescope" in record.getMessage() and not added:
                resources = {"telescope": 1}
                added.append(
                    cluster.add_node(
                        num_cpus=1, resources=resources, object_store_memory=120_000_000
                    )
                )

    handler = AddNode()
    logging.getLogger("wholegrain").addHandler(handler)
    try:
        with it:
            assert [element[0] for element in it] == _expected(4)
    finally:
        logging.getLogger("wholegrain").removeHandler(handler)
        for node in added:
            cluster.remove_node(node)
    (warning,) = [text for text in caplog.messages if "telescope" in text]
    assert "asks for 0.5 CPU, 1 telescope" in warning
    assert "The cluster has 6 CPU" in warning


def test_losses_that_no_element_causes_do_not_count_against_it() -> None:
    from ray import exceptions

    from wholegrain.ray import _exits

    # Ray has no way to lose an object on request; nodes that are removed lose theirs.
    losses = [
        exceptions.ObjectLostError("00" * 28, None, "the stack"),
        exceptions.OwnerDiedError("00" * 28, None, "the stack"),
        exceptions.ActorUnavailableError("Socket closed", None),
        exceptions.RayActorError(error_msg="The actor died because its node has died."),
        exceptions.RayActorError(error_msg="It is dead because it was killed by `ray.kill`."),
        exceptions.RayActorError(error_msg="gone", preempted=True),
    ]
    for error in losses:
        assert _exits.is_loss(error)
        assert _exits.exit_of(error, "worker 0 of 1").is_blameless, error
    crash = exceptions.RayActorError(
        error_msg="Worker exit detail: End of file. Some common causes"
    )
    assert _exits.is_loss(crash)
    assert not _exits.exit_of(crash, "worker 0 of 1").is_blameless
    assert not _exits.is_loss(exceptions.RuntimeEnvSetupError("no such package"))


class _JustLate(concurrent.futures.Future[str]):
    """A call that ends when its caller has stopped waiting."""

    def result(self, timeout: float | None = None) -> str:
        if not self.done():
            self.set_result("an element")
            raise TimeoutError
        return super().result(timeout)


def test_a_call_that_ends_when_the_wait_for_it_does_is_no_time_out() -> None:
    from wholegrain.ray import _handle

    link = _handle.Link(None, threading.Condition(), 1, zero_copy=False)
    assert _handle._result(_JustLate(), link) == "an element"
    failed: concurrent.futures.Future[Any] = concurrent.futures.Future()
    failed.set_exception(TimeoutError("of the source"))
    with pytest.raises(TimeoutError, match="of the source"):
        _handle._result(failed, link)


def test_ray_that_is_shut_down_first_is_an_error_and_no_crash(cluster: Any) -> None:
    code = """
    import sys, ray, wholegrain as wg
    from wholegrain.ray import RayBackend
    ray.init(address=sys.argv[1], log_to_driver=False, logging_level="error")
    ds = wg.MapDataset.range(100_000).map(str).to_iter_dataset()
    it = iter(ds.mp_prefetch(wg.MultiprocessingOptions(2, backend=RayBackend(num_cpus=0.5))))
    next(it)
    ray.shutdown()
    try:
        list(it)
    except RuntimeError as error:
        print(error)
    """
    run = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), cluster.address],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert run.returncode == 0, run.stderr
    assert "`ray.shutdown` was called while" in run.stdout
    assert_nothing_left()


def test_elements_that_kill_actors_are_named(cluster: Any) -> None:
    def die(number: int) -> int:
        if number == 5:
            os._exit(1)
        return number

    ds = wg.MapDataset.range(10).map(die).to_iter_dataset()
    with _in_actors(ds, 1) as it:
        assert_equal([0, 1, 2, 3, 4], list(itertools.islice(it, 5)), "before")
        with pytest.raises(RuntimeError, match="element 5"):
            next(it)
