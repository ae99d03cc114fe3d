"""An exception that arrives anywhere in `iter`, `next`, `get_state`, `set_state` or `close`.

A tracer raises at each line and each call in the package that an operation comes to, once for each
place in the code: a `KeyboardInterrupt`, or an `Exception` like one of a signal handler, in turn.
It comes out, and afterwards the iterator stands where it stood, or is closed. As that takes
minutes, only some of the places are looked at where processes have to be started for each of them,
unless INTERRUPT_ALL is in the environment.
"""

import contextlib
import functools
import itertools
import os
import random
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import wholegrain as wg
from wholegrain._graph import clocked

# What is raised in a finalizer, Python cannot raise anywhere else.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

_PACKAGE = os.path.dirname(wg.__file__) + os.sep

Place = tuple[str, int, str]
"""A file, a line, an event."""


class Interrupted(KeyboardInterrupt):
    """Raised by the tracer."""


class TimedOut(TimeoutError):
    """Raised by the tracer, which is given the interrupted frame as signal handlers are."""


class _Tracer:
    """Notes the places that this thread comes to, and raises at one of them."""

    def __init__(self, at: Place | None = None, kind: type[BaseException] = Interrupted) -> None:
        self.at = at
        self.kind = kind
        self.seen: list[Place] = []
        self.has_raised = False

    def __call__(self, frame: Any, event: str, arg: Any) -> Any:
        name = frame.f_code.co_filename
        if not name.startswith(_PACKAGE):
            return None
        if event in ("line", "call"):
            place = (name, frame.f_lineno, event)
            self.seen.append(place)
            if place == self.at:
                sys.settrace(None)
                self.has_raised = True
                raise self.kind
        return self

    def lose(self, lost: Any) -> None:
        """Note that the exception was raised in a finalizer: Python can only print it."""
        if isinstance(lost.exc_value, self.kind):
            self.has_raised = False


@contextlib.contextmanager
def _traced(tracer: _Tracer) -> Iterator[None]:
    before, sys.unraisablehook = sys.unraisablehook, tracer.lose
    sys.settrace(tracer)
    try:
        yield
    finally:
        sys.settrace(None)
        sys.unraisablehook = before


def _slow(x: int) -> int:
    time.sleep(0.0003)
    return x


def _in_process() -> Any:
    ds = wg.MapDataset.range(16).shuffle(seed=1).map(lambda x: x + 1).to_iter_dataset()
    return ds.filter(lambda x: x % 7 != 0).random_map(lambda x, rng: x + rng.integers(9), seed=2)


def _batches() -> Any:
    return wg.MapDataset.range(16).shuffle(seed=1).to_iter_dataset().map(lambda x: 2 * x).batch(4)


def _packed() -> Any:
    ds = wg.MapDataset.range(20).map(lambda x: {"a": np.full(1 + x % 5, x)}).to_iter_dataset()
    return wg.experimental.FirstFitPackIterDataset(
        ds, length_struct={"a": 8}, num_packing_bins=3
    ).map(lambda packed: packed["a"])


def _window() -> Any:
    ds = wg.MapDataset.range(16).to_iter_dataset()
    return wg.experimental.WindowShuffleIterDataset(ds, window_size=7, seed=3)


def _interleaved() -> Any:
    parts = [wg.MapDataset.range(10 * n, 10 * n + 4).to_iter_dataset() for n in range(5)]
    return wg.experimental.InterleaveIterDataset(parts, cycle_length=3)


def _mixed() -> Any:
    parts = [wg.MapDataset.range(4), wg.MapDataset.range(100, 110).shuffle(seed=2)]
    return wg.MapDataset.mix(parts, [0.3, 0.7]).repeat(2).to_iter_dataset()


def _threads() -> Any:
    return wg.MapDataset.range(16).map(_slow).to_iter_dataset(wg.ReadOptions(2, 6))


def _thread_prefetch() -> Any:
    ds = wg.MapDataset.range(16).to_iter_dataset().map(_slow)
    return wg.experimental.ThreadPrefetchIterDataset(ds, prefetch_buffer_size=4)


def _workers() -> Any:
    ds = wg.MapDataset.range(12).map(lambda x: np.full(300, x)).to_iter_dataset()
    return ds.mp_prefetch(wg.MultiprocessingOptions(num_workers=2, per_worker_buffer_size=1))


def _auto() -> Any:
    ds = wg.MapDataset.range(12).map(lambda x: np.full(300, x)).to_iter_dataset()
    return ds.mp_prefetch(wg.MultiprocessingOptions(num_workers="auto"))


def _loader() -> Any:
    return wg.DataLoader(
        data_source=range(16),
        sampler=wg.samplers.IndexSampler(16, num_epochs=1, shuffle=True, seed=1),
        operations=[wg.transforms.Batch(2)],
        worker_count=0,
    )


def _elastic() -> Any:
    return wg.experimental.ElasticIterator(
        wg.MapDataset.range(32).shuffle(seed=1), 4, wg.sharding.ShardOptions(1, 2)
    )


def _elastic_files() -> Any:
    parts = [wg.MapDataset.range(10 * n, 10 * n + 4).to_iter_dataset() for n in range(5)]
    ds = wg.experimental.InterleaveIterDataset(parts, cycle_length=3)
    return wg.experimental.ElasticIterator(ds, 2, wg.sharding.ShardOptions(0, 1))


_PIPELINES = {
    "in_process": _in_process,
    "batches": _batches,
    "packed": _packed,
    "window": _window,
    "interleaved": _interleaved,
    "mixed": _mixed,
    "threads": _threads,
    "prefetch": _thread_prefetch,
    "workers": _workers,
    "auto": _auto,
    "loader": _loader,
    "elastic": _elastic,
    "elastic_files": _elastic_files,
}

_WARM = 3
_numbers = itertools.count()
_MOST_PLACES = sys.maxsize if "INTERRUPT_ALL" in os.environ else 150
_MOST_PLACES_OF_WORKERS = sys.maxsize if "INTERRUPT_ALL" in os.environ else 20


def _plain(elements: Any) -> list[Any]:
    return [np.asarray(element).tolist() for element in elements]


def _places(ds: Any, operation: Callable[[], object]) -> list[Place]:
    """Return the places that an operation comes to, or some of them."""
    tracer = _Tracer()
    with _traced(tracer):
        operation()
    places = list(dict.fromkeys(tracer.seen))
    assert places
    has_workers = str(ds).startswith(("ProcessPrefetch", "AutoPrefetch"))
    most = _MOST_PLACES_OF_WORKERS if has_workers else _MOST_PLACES
    chosen = random.Random(len(places)).sample(places, min(most, len(places)))
    return sorted(chosen, key=places.index)


def _interrupt(place: Place, operation: Callable[[], object]) -> bool:
    """Run an operation, interrupted at a place; say whether it came there."""
    kinds = (Interrupted, TimedOut)
    tracer = _Tracer(place, kinds[next(_numbers) % len(kinds)])
    try:
        with _traced(tracer):
            operation()
    except kinds:
        return True
    assert not tracer.has_raised, f"The interruption at {place} did not come out."
    return False


class _Fresh:
    """A pipeline that is made anew for each iterator: those of an ElasticIterator are one."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make = make

    def __iter__(self) -> Any:
        return iter(self._make())

    def __str__(self) -> str:
        return str(self._make())


@pytest.fixture(params=_PIPELINES)
def ds(request: pytest.FixtureRequest) -> Any:
    return _Fresh(_PIPELINES[request.param])


@pytest.mark.parametrize("warm", [0, _WARM])
def test_next_is_interrupted(ds: Any, warm: int) -> None:
    want = _plain(ds)
    with contextlib.closing(iter(ds)) as it:
        got = [next(it) for _ in range(warm)]
        places = _places(ds, lambda: next(it))
    for place in places:
        with contextlib.closing(iter(ds)) as it:
            got = [next(it) for _ in range(warm)]
            if not _interrupt(place, lambda it=it, got=got: got.append(next(it))):  # type: ignore[misc]
                continue
            state = it.get_state()
            assert _plain(got) + _plain(it) == want, place
        with contextlib.closing(iter(ds)) as again:
            again.set_state(state)
            assert _plain(got) + _plain(again) == want, place


def test_get_state_is_interrupted(ds: Any) -> None:
    want = _plain(ds)
    with contextlib.closing(iter(ds)) as it:
        got = _plain([next(it) for _ in range(_WARM)])
        for place in _places(ds, it.get_state):
            _interrupt(place, it.get_state)
        got += _plain(it)
        assert got == want


def test_set_state_is_interrupted(ds: Any) -> None:
    want = _plain(ds)
    with contextlib.closing(iter(ds)) as it:
        next(it)
        state = it.get_state()
        next(it)
        places = _places(ds, lambda: it.set_state(state))
    for place in places:
        with contextlib.closing(iter(ds)) as it:
            got = _plain([next(it) for _ in range(_WARM)])
            if _interrupt(place, lambda it=it: it.set_state(state)):  # type: ignore[misc]
                assert got + _plain(it) == want, place
                it.set_state(state)
                assert _plain(it) == want[1:], place


def test_close_is_interrupted(ds: Any) -> None:
    want = _plain(ds)

    def opened() -> tuple[Any, list[Any]]:
        it = iter(ds)
        return it, _plain([next(it) for _ in range(_WARM)])

    it, _ = opened()
    for place in _places(ds, it.close):
        it, got = opened()
        if _interrupt(place, it.close):
            state = it.get_state()
            it.close()
            with pytest.raises(ValueError, match="closed iterator"):
                next(it)
            with contextlib.closing(iter(ds)) as again:
                again.set_state(state)
                assert got + _plain(again) == want, place


def test_iter_is_interrupted(ds: Any) -> None:
    want = _plain(ds)
    opened: list[Any] = []
    for place in _places(ds, lambda: opened.append(iter(ds))):
        _interrupt(place, lambda: opened.append(iter(ds)))
        opened.clear()
        with contextlib.closing(iter(ds)) as it:
            assert _plain(it) == want, place


class _Refuses(wg.MapDataset[int]):
    """A stage that cannot be copied with other parents, so it is measured as a whole."""

    def __len__(self) -> int:
        return 16

    def __getitem__(self, index: Any) -> Any:
        return index

    def with_parents(self, parents: Any) -> Any:
        raise NotImplementedError


@pytest.mark.parametrize("kind", ["row", "as_a_whole"])
def test_a_measured_read_is_interrupted(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every chunk is measured here, not one in some hundreds."""
    monkeypatch.setattr(clocked, "_ONE_IN", 0)
    if kind == "row":
        parent = wg.MapDataset.range(16).shuffle(seed=1)
    else:
        parent = _Refuses(wg.MapDataset.range(16))
    ds = parent.map(lambda x: x + 1).map(lambda x: 2 * x).to_iter_dataset(wg.ReadOptions(0))
    want = _plain(ds)

    def read_some(it: Any, got: list[Any], count: int = 8) -> None:
        while len(got) < count:
            got.append(next(it))

    with contextlib.closing(iter(ds)) as it:
        places = _places(ds, lambda: read_some(it, []))
    assert any(file == clocked.__file__ for file, *_ in places)
    for place in places:
        for _ in range(2):  # Once with each kind of interruption.
            with contextlib.closing(iter(ds)) as it:
                got: list[Any] = []
                _interrupt(place, functools.partial(read_some, it, got))
                assert _plain(got) + _plain(it) == want, place
