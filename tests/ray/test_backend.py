"""What a program sees of the backend: arrays, reports, limits, messages."""

import pickle
import time
from typing import Any

import numpy as np
import pytest

import wholegrain as wg
from tests.ray.cluster_state import assert_nothing_left, living_actors, stored_objects, wait_until
from wholegrain.ray import RayBackend

pytestmark = pytest.mark.usefixtures("cluster")


def _run(ds: Any, num_workers: Any, backend: RayBackend, **more: Any) -> Any:
    options = wg.MultiprocessingOptions(num_workers, backend=backend, **more)
    return iter(ds.mp_prefetch(options))


def _batches(count: int) -> wg.IterDataset[Any]:
    return wg.MapDataset.range(count).map(lambda n: np.full(200_000, n)).to_iter_dataset()


def test_arrays_are_writable_or_views_of_the_object_store() -> None:
    with _run(_batches(4), 1, RayBackend(num_cpus=0.5)) as it:
        first, second = next(it), next(it)
        first[:] = 7
        assert (second == 1).all()
        assert [int(element[0]) for element in it] == [2, 3]
    with _run(_batches(4), 1, RayBackend(num_cpus=0.5, zero_copy=True)) as it:
        views = list(it)
        assert not any(view.flags.writeable for view in views)
        # They stay valid after the actor is gone, and keep their memory in the object store.
    assert [int(view.sum()) for view in views] == [200_000 * n for n in range(4)]
    wait_until(lambda: not living_actors(), "actors are left")
    assert stored_objects() > 0
    del views
    assert_nothing_left()


def test_memory_in_the_object_store_is_bounded() -> None:
    backend = RayBackend(num_cpus=0.5, max_in_flight=2, zero_copy=True)
    with _run(_batches(200), 1, backend, per_worker_buffer_size=40) as it:
        for _ in range(3):
            for _ in range(20):
                next(it)
            time.sleep(1)  # The actor runs ahead now, and Ray removes old objects once a second.
            # Objects are on the node of the actor and on this one; one more is being read.
            wait_until(lambda: 1 <= stored_objects() <= 2 * 3, f"{stored_objects()} objects")


def test_a_large_pipeline_is_stored_once() -> None:
    table = np.arange(2_000_000)
    ds = wg.MapDataset.range(8).map(lambda n: int(table[n])).to_iter_dataset()
    backend = RayBackend(num_cpus=0.5, scheduling_strategy="DEFAULT")
    with _run(ds, 4, backend) as it:
        assert list(it) == list(range(8))
        assert len(living_actors()) == 4
        nodes = {actor["Address"]["NodeID"] for actor in living_actors()}
        assert stored_objects() <= len(nodes) + 1  # One copy on each node with actors, and here.
    it = None
    assert_nothing_left()


def test_auto_uses_the_cpus_of_the_cluster() -> None:
    # Actors of an earlier test may still be ending.
    wait_until(lambda: RayBackend().max_workers() == 6, f"{RayBackend().max_workers()} workers")
    assert RayBackend(num_cpus=2).max_workers() == 3
    assert RayBackend(num_cpus=4).max_workers() == 1
    assert RayBackend(num_cpus=0).max_workers() == 6
    assert RayBackend(resources={"node1": 50}).max_workers() == 2


def test_actors_run_where_they_are_asked_to(cluster: Any) -> None:
    import ray

    (wanted,) = [node["NodeID"] for node in ray.nodes() if "node2" in node["Resources"]]
    ds = wg.MapDataset.range(10).to_iter_dataset()
    with _run(ds, 2, RayBackend(num_cpus=0.5, resources={"node2": 1})) as it:
        assert list(it) == list(range(10))
        assert {actor["Address"]["NodeID"] for actor in living_actors()} == {wanted}


@pytest.mark.parametrize("num_workers", [2, "auto"])
def test_a_report_shows_the_actors_and_the_cost_of_fetching(num_workers: Any) -> None:
    import ray

    with _run(_batches(20), num_workers, RayBackend(num_cpus=0.5)) as it:
        for _ in range(15):
            next(it)
        report = it.report()
        nodes = [node["NodeID"][:8] for node in ray.nodes()]
    at_work = [text for text in report.remote_workers if "ms each for the network" in text]
    assert at_work  # With "auto", others may just have been started.
    assert all(any(node in text for node in nodes) for text in at_work)
    assert at_work[0] in str(report)


def test_a_backend_can_be_pickled_and_checks_its_settings() -> None:
    backend = RayBackend(num_cpus=2, resources={"a": 1}, zero_copy=True)
    copy = pickle.loads(pickle.dumps(backend))
    assert repr(copy) == repr(backend)
    with pytest.raises(ValueError, match="`max_in_flight` has to be at least 1"):
        RayBackend(max_in_flight=0)
    with pytest.raises(ValueError, match="`num_cpus` cannot be negative"):
        RayBackend(num_cpus=-1)
