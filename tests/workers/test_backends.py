"""Backends: what starts workers can be chosen, and changes nothing else."""

import os
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pytest

import wholegrain as wg
from tests.workers.pipe_backend import PipeBackend
from wholegrain import testing
from wholegrain.multiprocessing import Backend, WorkerHandle, WorkerSpec


@pytest.mark.parametrize("backend", ["fork", "spawn", PipeBackend()], ids=["fork", "spawn", "pipe"])
def test_backends_conform(backend: Any) -> None:
    testing.check_backend(backend)


class _Broken(PipeBackend):
    """Loses every message of elements but the first."""

    def start(self, spec: WorkerSpec) -> WorkerHandle:
        handle = super().start(spec)
        receive, seen = handle.receive, 0

        def losing(timeout_s: float) -> tuple[Any, ...] | None:
            nonlocal seen
            message = receive(timeout_s)
            if message is not None and len(message) > 4:
                seen += 1
                return message if seen == 1 else None
            return message

        handle.receive = losing  # type: ignore[method-assign]
        return handle


def test_the_check_finds_a_backend_that_loses_messages() -> None:
    with pytest.raises(AssertionError, match="element"):
        testing.check_backend(_Broken())


def _pid(number: int) -> int:
    return os.getpid()


@pytest.mark.parametrize("backend", ["fork", "spawn", PipeBackend()])
def test_a_data_loader_takes_a_backend(backend: Any) -> None:
    loader = wg.DataLoader(
        data_source=list(range(6)),
        sampler=wg.samplers.SequentialSampler(6, wg.sharding.NoSharding()),
        worker_count=2,
        worker_backend=backend,
    )
    assert list(loader) == list(range(6))


def test_backends_run_side_by_side() -> None:
    ds = wg.MapDataset.range(4).map(_pid).to_iter_dataset()
    pids: set[int] = set()
    for backend in ("fork", "spawn", PipeBackend()):
        options = wg.MultiprocessingOptions(num_workers=1, backend=backend)
        it = iter(ds.mp_prefetch(options))
        pids.add(next(it))
    assert len(pids) == 3
    assert os.getpid() not in pids


class _Unused(Backend):
    def start(self, spec: WorkerSpec) -> WorkerHandle:
        raise NotImplementedError

    def wait(self, handles: Sequence[WorkerHandle], timeout_s: float) -> Iterable[WorkerHandle]:
        raise NotImplementedError


def test_what_a_backend_raises_reaches_the_consumer() -> None:
    options = wg.MultiprocessingOptions(num_workers=1, backend=_Unused())
    with pytest.raises(NotImplementedError):
        next(iter(wg.MapDataset.range(4).to_iter_dataset().mp_prefetch(options)))


def test_the_environment_variable_only_sets_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WHOLEGRAIN_WORKER_START", "nonsense")
    ds = wg.MapDataset.range(4).to_iter_dataset()
    assert list(ds.mp_prefetch(wg.MultiprocessingOptions(num_workers=1, backend="fork"))) == [
        0,
        1,
        2,
        3,
    ]
    with pytest.raises(ValueError, match="WHOLEGRAIN_WORKER_START is 'nonsense'"):
        next(iter(ds.mp_prefetch(wg.MultiprocessingOptions(num_workers=1))))


def test_a_backend_that_does_not_exist_is_refused() -> None:
    ds = wg.MapDataset.range(4).to_iter_dataset()
    with pytest.raises(ValueError, match="`backend` has to be"):
        ds.mp_prefetch(wg.MultiprocessingOptions(num_workers=1, backend="thread"))


def test_large_sources_reach_workers_of_any_backend() -> None:
    data = [np.full(100_000, number) for number in range(4)]
    options = wg.MultiprocessingOptions(num_workers=1, backend=PipeBackend())
    found = list(wg.MapDataset.source(data).to_iter_dataset().mp_prefetch(options))
    np.testing.assert_array_equal(found, data)
