"""Checks that every worker backend has to pass, including your own."""

import contextlib
import functools
import itertools
import os
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from wholegrain._graph.auto_prefetch import set_worker_count
from wholegrain._graph.iter_dataset import IterDataset
from wholegrain._graph.map_dataset import MapDataset
from wholegrain._workers.backend import Backend, WorkerHandle, WorkerSpec, resolve
from wholegrain.options import MultiprocessingOptions
from wholegrain.testing.checks import assert_equal

_LENGTH = 40
_PATIENCE_S = 20.0
_Workers = int | Literal["auto"]


def check_backend(backend: Any) -> None:
    """Check that the workers of a backend behave as those of every other backend.

    They have to return the elements, order and states of a pipeline without workers, continue at
    restored positions, and raise errors at the right element with a note. A worker that dies has to
    be replaced; an element that kills two workers has to raise. Nothing may run after `close`.

    The workers have to share a temporary folder with this process.

    Args:
        backend: The value for `MultiprocessingOptions(backend=...)`.

    Raises:
        AssertionError: If the backend behaves differently.

    Example:
        >>> check_backend("spawn")
    """
    watched = _Watched(resolve(backend))
    kinds: tuple[_Workers, ...] = (2, "auto")
    for num_workers in kinds:
        with tempfile.TemporaryDirectory() as folder:
            marks = Path(folder)
            _check_elements_and_states(watched, num_workers)
            _check_errors(watched, num_workers)
            _check_a_death(watched, num_workers, marks / "died")
            _check_a_deadly_element(watched, num_workers)
            _check_early_end(watched, num_workers, marks / "alive")
    _check_changing_worker_count(watched)
    watched.check_closed()


class _Watched(Backend):
    """Records the handles of a backend, to check that they are closed."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._handles: list[WorkerHandle] = []

    def prepare(self, modules: Iterable[str]) -> None:
        self._backend.prepare(modules)

    def max_workers(self) -> int | None:
        return self._backend.max_workers()

    def start(self, spec: WorkerSpec) -> WorkerHandle:
        handle = self._backend.start(spec)
        _require(isinstance(handle, WorkerHandle), f"`start` returned {handle!r}, not a handle.")
        self._handles.append(handle)
        return handle

    def wait(self, handles: Sequence[WorkerHandle], timeout_s: float) -> Iterable[WorkerHandle]:
        found = list(self._backend.wait(handles, timeout_s))
        _require(all(handle in handles for handle in found), "`wait` returned others than it got.")
        return found

    def check_closed(self) -> None:
        _require(bool(self._handles), "The backend has started no workers.")
        for handle in self._handles:
            handle.close()  # Closing a second time has to be harmless.


def _array(number: int) -> Any:
    """Return an element with arrays that are large, small and empty, and with other objects."""
    large = np.full(5000, number, np.int64)
    return {"large": large, "small": np.arange(number % 3), "text": f"{number}", "n": number}


def _fail_at(at: int, number: int) -> int:
    if number == at:
        raise KeyError(number)
    return number


def _die_once(mark: str, number: int) -> int:
    if number == 7:
        with contextlib.suppress(FileExistsError):
            os.close(os.open(mark, os.O_CREAT | os.O_EXCL))
            os._exit(3)
    return number


def _die(number: int) -> int:
    if number == 7:
        os._exit(3)
    return number


def _tick(file: str, number: int) -> int:
    for _ in range(int(_PATIENCE_S / 0.01) if number > 3 else 0):
        with open(file, "ab") as log:
            log.write(b".")
        time.sleep(0.01)
    return number


def _without_workers(function: Any) -> IterDataset[Any]:
    return MapDataset.range(_LENGTH).shuffle(seed=3).map(function).to_iter_dataset()


def _in_workers(backend: Backend, num_workers: _Workers, function: Any) -> Any:
    options = MultiprocessingOptions(num_workers=num_workers, max_workers=2, backend=backend)
    return iter(_without_workers(function).mp_prefetch(options))


@contextlib.contextmanager
def _closing(iterator: Any) -> Iterator[Any]:
    try:
        yield iterator
    finally:
        iterator.close()


def _check_elements_and_states(backend: Backend, num_workers: _Workers) -> None:
    here = iter(_without_workers(_array))
    with _closing(_in_workers(backend, num_workers, _array)) as it:
        states = [it.get_state()]
        expected = []
        for position, element in enumerate(it):
            expected.append(next(here))
            assert_equal(
                expected[-1], element, f"element {position} with num_workers={num_workers}"
            )
            states.append(it.get_state())
            if num_workers == "auto":
                assert_equal(here.get_state(), states[-1], f"the state after element {position}")
        _require(len(expected) == _LENGTH, f"{len(expected)} elements came instead of {_LENGTH}.")
        for position in (0, 1, 17, _LENGTH):  # Workers keep running.
            it.set_state(states[position])
            rest = list(itertools.islice(it, 5))
            assert_equal(expected[position : position + 5], rest, f"restored at {position}")
    with _closing(_in_workers(backend, num_workers, _array)) as it:
        it.set_state(states[23])
        assert_equal(expected[23:], list(it), "restored at 23 in new workers")


def _check_errors(backend: Backend, num_workers: _Workers) -> None:
    order = list(_without_workers(int))
    fail = functools.partial(_fail_at, order[5])
    with _closing(_in_workers(backend, num_workers, fail)) as it:
        assert_equal(order[:5], [next(it) for _ in range(5)], "the elements before an error")
        try:
            next(it)
        except KeyError as error:
            notes = "\n".join(getattr(error, "__notes__", ()))
            _require(error.args == (order[5],), f"The error has lost its arguments: {error!r}.")
            _require("Worker" in notes, f"No note says which worker raised it: {notes!r}.")
        else:
            raise AssertionError("An exception of a function in a worker was not raised here.")
        assert_equal(order[6:], list(it), "the elements after an error")


def _check_a_death(backend: Backend, num_workers: _Workers, mark: Path) -> None:
    order = list(_without_workers(int))
    die = functools.partial(_die_once, str(mark))
    with _closing(_in_workers(backend, num_workers, die)) as it:
        assert_equal(order, list(it), "the elements after a worker died once")
    _require(mark.exists(), "No worker reached the element: do they share the temporary folder?")


def _check_a_deadly_element(backend: Backend, num_workers: _Workers) -> None:
    order = list(_without_workers(int))
    with _closing(_in_workers(backend, num_workers, _die)) as it:
        came: list[int] = []
        try:
            came.extend(it)
        except RuntimeError as error:
            _require("terminated unexpectedly" in str(error), f"The error has no reason: {error}")
        else:
            raise AssertionError("An element that kills its workers did not raise.")
        assert_equal(order[: order.index(7)], came, "the elements before one that kills workers")


def _check_early_end(backend: Backend, num_workers: _Workers, file: Path) -> None:
    tick = functools.partial(_tick, str(file))
    with _closing(_in_workers(backend, num_workers, tick)) as it:
        with contextlib.suppress(AttributeError):
            it.start_prefetch()
        _wait(lambda: file.exists() and file.stat().st_size > 0, "no worker has started")
    size = -1

    def has_ended() -> bool:
        nonlocal size
        before, size = size, file.stat().st_size
        time.sleep(0.2)
        return size == before

    _wait(has_ended, "a worker still runs after `close`")


def _require(holds: bool, otherwise: str) -> None:
    if not holds:  # Not `assert`, which `python -O` removes.
        raise AssertionError(otherwise)


def _wait(condition: Any, otherwise: str) -> None:
    deadline = time.monotonic() + _PATIENCE_S
    while not condition():
        _require(time.monotonic() < deadline, f"After {_PATIENCE_S} seconds {otherwise}.")
        time.sleep(0.01)


def _check_changing_worker_count(backend: Backend) -> None:
    order = list(_without_workers(int))
    with _closing(_in_workers(backend, "auto", int)) as it:
        came: list[int] = []
        for count in (1, 3, 2, None):
            set_worker_count(it, count)
            came += itertools.islice(it, 8)
        came += it
    assert_equal(order, came, "the elements while the number of workers changes")
