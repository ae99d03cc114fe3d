"""close: nothing comes afterwards, the state stays, and it may be called again."""

import gc
import threading
from collections.abc import Callable
from typing import Any

import pytest

import wholegrain as wg
from tests.graph.tools import END, R, X, eventually, finishes, our_threads


class Parts(wg.transforms.FlatMap):
    max_fan_out = 2

    def flat_map(self, element: Any) -> Any:
        return [element, element]


_it: Callable[[], Any] = lambda: R(12).to_iter_dataset()  # noqa: E731

_DATASETS: dict[str, Callable[[], Any]] = {
    "a map dataset": lambda: R(12).map(abs),
    "to_iter_dataset": _it,
    "without threads": lambda: R(12).to_iter_dataset(wg.ReadOptions(0)),
    "map": lambda: _it().map(abs),
    "map_with_index": lambda: _it().map_with_index(max),
    "random_map": lambda: _it().random_map(lambda x, _: x, seed=1),
    "filter": lambda: _it().filter(lambda _: True),
    "batch": lambda: _it().batch(2),
    "seed": lambda: _it().seed(1),
    "options": lambda: X.WithOptionsIterDataset(_it(), X.DatasetOptions()),
    "limit": lambda: X.LimitIterDataset(_it(), 8),
    "repeat": lambda: X.RepeatIterDataset(_it(), 2),
    "repeat forever": lambda: X.RepeatIterDataset(_it()),
    "cache": lambda: X.CacheIterDataset(_it()),
    "a repeated cache": lambda: X.RepeatIterDataset(X.CacheIterDataset(_it()), 3),
    "flat map": lambda: X.FlatMapIterDataset(_it(), Parts()),
    "rebatch": lambda: X.RebatchIterDataset(_it().batch(2), 3),
    "windows": lambda: X.WindowShuffleIterDataset(_it(), window_size=5, seed=1),
    "zip": lambda: X.ZipIterDataset([_it(), _it()]),
    "mix": lambda: wg.IterDataset.mix([_it(), _it()]),
    "named mix": lambda: wg.IterDataset.mix({"a": _it(), "b": _it()}),
    "interleave": lambda: X.InterleaveIterDataset([_it(), _it(), _it()], cycle_length=2),
    "no thread": lambda: X.ThreadPrefetchIterDataset(_it(), prefetch_buffer_size=0),
    "thread": lambda: X.ThreadPrefetchIterDataset(_it(), prefetch_buffer_size=2),
    "worker threads": lambda: X.multithread_prefetch(_it(), 2, 1),
    "many": lambda: X.WindowShuffleIterDataset(
        wg.IterDataset.mix([_it().map(abs), X.RepeatIterDataset(_it(), 2).filter(bool)]),
        window_size=3,
        seed=1,
    ).map(abs),
}


@pytest.mark.parametrize("name", _DATASETS)
@pytest.mark.parametrize("taken", [0, 3, 5, None])
def test_nothing_comes_after_close_and_the_state_stays(name: str, taken: int | None) -> None:
    def run() -> None:
        it = iter(_DATASETS[name]())
        if taken is None and name == "repeat forever":
            return
        if taken is None:
            list(it)
            next(it, END)
        for _ in range(taken or 0):
            next(it, END)
        state = it.get_state() if taken != 0 or name != "interleave" else None
        it.close()
        for _ in range(3):
            with pytest.raises(ValueError, match="closed iterator"):
                next(it)
            with pytest.raises(ValueError, match="closed iterator"):
                it.take(2)
            if state is not None:
                assert it.get_state() == state
            it.close()

    finishes(run)
    gc.collect()
    assert eventually(lambda: not our_threads())


@pytest.mark.parametrize("name", _DATASETS)
def test_the_state_of_a_closed_iterator_restores(name: str) -> None:
    def run() -> None:
        ds = _DATASETS[name]()
        it, other = iter(ds), iter(ds)
        for _ in range(4):
            next(it)
            next(other)
        it.close()
        restored = iter(ds)
        restored.set_state(it.get_state())
        for _ in range(3):
            assert str(next(restored, END)) == str(next(other, END))
        restored.close()
        other.close()

    finishes(run)


@pytest.mark.parametrize("name", _DATASETS)
def test_an_iterator_that_was_never_used_can_be_closed(name: str) -> None:
    it = iter(_DATASETS[name]())
    it.close()
    it.close()
    with pytest.raises(ValueError, match="closed iterator") as raised:
        next(it)
    assert "iter(ds)" in str(raised.value)


@pytest.mark.parametrize("name", ["to_iter_dataset", "map", "thread", "interleave", "mix"])
def test_prefetching_cannot_start_after_close(name: str) -> None:
    it = iter(_DATASETS[name]())
    it.close()
    with pytest.raises(ValueError, match="closed iterator"):
        it.start_prefetch()
    assert our_threads() == []


@pytest.mark.parametrize("name", _DATASETS)
def test_dropping_leaves_no_threads_without_the_garbage_collector(name: str) -> None:
    gc.collect()
    gc.disable()
    try:
        it = iter(_DATASETS[name]())
        it.start_prefetch()
        for _ in range(3):
            next(it)
        del it
        assert eventually(lambda: not our_threads())
    finally:
        gc.enable()


# Iterators of the user's.


class Files(wg.DatasetIterator[int]):
    """Has something to close."""

    closed: list[str]

    def __init__(self, name: str, closed: list[str]) -> None:
        super().__init__()
        self._name, self._position, self.closed = name, 0, closed

    def __next__(self) -> int:
        self._position += 1
        return self._position - 1

    def get_state(self) -> dict[str, Any]:
        return {"position": self._position}

    def set_state(self, state: dict[str, Any]) -> None:
        self._position = state["position"]

    def close(self) -> None:
        self.closed.append(self._name)
        super().close()


class FilesDataset(wg.IterDataset[int]):
    def __init__(self, name: str, closed: list[str]) -> None:
        super().__init__()
        self._name, self._closed = name, closed

    def __iter__(self) -> wg.DatasetIterator[int]:
        return Files(self._name, self._closed)


@pytest.mark.parametrize("end", ["close", "drop", "end of a with block"])
def test_a_users_iterator_is_closed_with_the_pipeline(end: str) -> None:
    closed: list[str] = []
    ds: Any = wg.IterDataset.mix([FilesDataset("a", closed), FilesDataset("b", closed)])
    it = iter(X.LimitIterDataset(ds.map(abs), 9).batch(2))
    next(it)
    assert closed == []
    if end == "close":
        it.close()
    elif end == "end of a with block":
        with it:
            next(it)
    else:
        del it
    assert set(closed) == {"a", "b"}


def test_an_error_in_a_users_close_is_not_raised_when_it_is_dropped() -> None:
    class Stubborn(Files):
        def close(self) -> None:
            raise OSError("no")

    it = Stubborn("s", [])
    del it


def test_close_leaves_the_iterator_to_other_threads() -> None:
    it: Any = iter(_it())
    next(it)
    it.close()
    it.close()
    free = []
    thread = threading.Thread(target=lambda: free.append(it.turn_lock.acquire(blocking=False)))
    thread.start()
    thread.join()
    assert free == [True]
