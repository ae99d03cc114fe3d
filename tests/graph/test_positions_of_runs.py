"""The position of a run in a signal handler, after a refused move, and with threads that start."""

import signal
import time
from typing import Any

import pytest

import wholegrain as wg
from tests.graph.tools import X
from wholegrain._graph.iterator import get_next_index, set_next_index

_HERE = wg.ReadOptions(num_threads=0, prefetch_buffer_size=0)


def _range(first: int, last: int) -> wg.IterDataset[Any]:
    return wg.MapDataset.range(first, last).to_iter_dataset(_HERE)


def _pending(it: Any) -> int:
    """Return how many elements of its last chunk a run has not handed out yet."""
    count: int = it._ready.__length_hint__()
    return count


def _slow(number: int) -> int:
    time.sleep(5e-4)
    return number


def test_a_signal_handler_may_save_the_state_in_the_middle_of_next() -> None:
    def notify(number: int) -> int:
        if number == 5000:
            signal.raise_signal(signal.SIGUSR1)
        return number

    it: Any = iter(_range(0, 10**6).map(notify))
    saved: list[Any] = []
    before = signal.signal(signal.SIGUSR1, lambda *_: saved.append(it.get_state()))
    try:
        count = 0
        while not saved:
            assert next(it) == count
            count += 1
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert saved == [{"next_index": count - 1}]
    assert [next(it) for _ in range(300)] == list(range(count, count + 300))


class _Opens(wg.IterDataset[int]):
    """A dataset whose opening is interrupted once."""

    armed = False

    def __init__(self, first: int) -> None:
        super().__init__()
        self._first = first

    def __iter__(self) -> Any:
        if _Opens.armed:
            _Opens.armed = False
            signal.raise_signal(signal.SIGINT)
        return _range(self._first, self._first + 3).__iter__()


def test_an_interrupted_get_state_loses_no_interleaved_dataset() -> None:
    ds: Any = X.InterleaveIterDataset([_Opens(0), _Opens(10)], cycle_length=2)
    it = iter(ds)
    _Opens.armed = True
    with pytest.raises(KeyboardInterrupt):
        it.get_state()
    assert list(it) == [0, 10, 1, 11, 2, 12]


def test_starting_threads_in_the_middle_of_a_chunk_keeps_the_state() -> None:
    ds: Any = X.InterleaveIterDataset([_range(0, 5000), _range(10_000, 15_000)], cycle_length=2)
    expected = list(ds)
    it = iter(ds)
    count = 300
    assert [next(it) for _ in range(count)] == expected[:count]
    while not _pending(it):
        next(it)
        count += 1
    state = it.get_state()
    it.start_prefetch()
    assert it.get_state() == state
    assert [next(it) for _ in range(500)] == expected[count : count + 500]
    other = iter(ds)
    other.set_state(state)
    assert [next(other) for _ in range(500)] == expected[count : count + 500]


def test_asking_for_the_index_of_a_thread_prefetch_moves_nothing() -> None:
    ds: Any = X.ThreadPrefetchIterDataset(_range(0, 4000).map(_slow), prefetch_buffer_size=64)
    it = iter(ds)
    it.set_state(it.get_state())
    found: list[int] = []
    while len(found) < 300 and (len(found) < 20 or _pending(it) < 4):
        time.sleep(1e-3)
        found.append(next(it))
    assert get_next_index(it) == len(found)
    found += [next(it) for _ in range(100)]
    assert found == list(range(len(found)))


@pytest.mark.parametrize("buffer_size", [0, 8])
def test_a_refused_index_leaves_a_thread_prefetch_where_it_is(buffer_size: int) -> None:
    ds: Any = X.ThreadPrefetchIterDataset(
        _range(0, 4000).map(_slow), prefetch_buffer_size=buffer_size
    )
    it = iter(ds)
    assert [next(it) for _ in range(20)] == list(range(20))
    time.sleep(0.02)
    with pytest.raises(ValueError, match="Cannot go to"):
        set_next_index(it, 10**9)
    assert [next(it) for _ in range(50)] == list(range(20, 70))


class _Rows:
    def __len__(self) -> int:
        return 2000

    def __getitem__(self, index: int) -> dict[str, int]:
        return {"n": 10 * index}


def _increment(row: dict[str, int]) -> dict[str, int]:
    row["n"] += 1
    return row


def test_a_refused_index_changes_no_element_that_was_changed_in_place() -> None:
    it: Any = iter(wg.MapDataset.source(_Rows()).to_iter_dataset().map(_increment))
    found = [next(it)["n"] for _ in range(300)]
    while not _pending(it):
        found.append(next(it)["n"])
    with pytest.raises(ValueError, match="Cannot go to"):
        set_next_index(it, 10**9)
    found += [row["n"] for row in it]
    assert found == [10 * index + 1 for index in range(2000)]


def test_the_state_at_the_end_of_a_thread_prefetch_stays() -> None:
    ds: Any = X.ThreadPrefetchIterDataset(
        _range(0, 10).filter(lambda number: number < 5), prefetch_buffer_size=0
    )
    it = iter(ds)
    assert list(it) == list(range(5))
    state = it.get_state()
    assert next(it, None) is None
    assert it.get_state() == state
