"""Several threads use one iterator: each element is returned once, and states count what was."""

import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import wholegrain as wg

_LENGTH = 2000
_THREADS = 3


def _numbers() -> Any:
    return wg.MapDataset.range(_LENGTH)


def _prefetch(ds: Any, workers: Any) -> Any:
    return ds.mp_prefetch(wg.MultiprocessingOptions(num_workers=workers))


_PIPELINES: dict[str, Callable[[], Any]] = {
    "range": lambda: _numbers().to_iter_dataset(),
    "no threads": lambda: _numbers().to_iter_dataset(wg.ReadOptions(0, 0)),
    "map": lambda: _numbers().to_iter_dataset().map(lambda x: x),
    "filter": lambda: _numbers().to_iter_dataset().filter(lambda x: x % 5 > 0),
    "batch": lambda: _numbers().to_iter_dataset().batch(3),
    "window": lambda: wg.experimental.WindowShuffleIterDataset(
        _numbers().to_iter_dataset(), window_size=30, seed=1
    ),
    "prefetch": lambda: wg.experimental.ThreadPrefetchIterDataset(
        _numbers().to_iter_dataset(), prefetch_buffer_size=4
    ),
    "workers": lambda: _prefetch(_numbers().to_iter_dataset(), 2),
    "auto": lambda: _prefetch(_numbers().to_iter_dataset(), "auto"),
}


@pytest.fixture(autouse=True)
def switching() -> Iterator[None]:
    """Switch threads as often as possible."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def _plain(element: Any) -> Any:
    return np.asarray(element).tolist()


def _run_all(*functions: Callable[[], None]) -> None:
    errors: list[BaseException] = []

    def run(function: Callable[[], None]) -> None:
        try:
            function()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(f,), daemon=True) for f in functions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive(), "A thread waits forever."
    if errors:
        raise errors[0]


@pytest.mark.parametrize("name", _PIPELINES)
def test_each_element_goes_to_one_thread(name: str) -> None:
    ds = _PIPELINES[name]()
    want = sorted(map(_plain, ds))
    it = iter(ds)
    got: list[Any] = []
    _run_all(*[lambda: got.extend(map(_plain, it))] * _THREADS)
    assert sorted(got) == want
    it.close()


@pytest.mark.parametrize("name", _PIPELINES)
def test_states_and_reports_may_be_asked_for_by_another_thread(name: str) -> None:
    ds = _PIPELINES[name]()
    want = list(map(_plain, ds))
    it = iter(ds)
    got: list[Any] = []
    states: list[tuple[int, Any, int]] = []

    def ask() -> None:
        while len(got) < len(want):
            before = len(got)
            state = it.get_state()
            states.append((before, state, len(got)))
            it.report()

    _run_all(lambda: got.extend(map(_plain, it)), ask)
    assert got == want
    it.close()
    with iter(ds) as other:
        for before, state, after in states[:: 1 + len(states) // 8]:
            other.set_state(state)
            following = _plain(next(other, None))
            # The first thread may be between getting an element and adding it.
            assert following in [*want, None][before : after + 2]


@pytest.mark.parametrize("name", _PIPELINES)
def test_a_state_after_close_in_another_thread_counts_what_was_returned(name: str) -> None:
    ds = _PIPELINES[name]()
    want = list(map(_plain, ds))
    for attempt in range(4 if "workers" in name or "auto" in name else 40):
        it = iter(ds)
        got: list[Any] = []
        begun = threading.Event()
        _run_all(
            lambda it=it, got=got, begun=begun, at=1 + 3 * attempt: _read(it, got, begun, at),  # type: ignore[misc]
            lambda it=it, begun=begun: _close(it, begun),  # type: ignore[misc]
        )
        assert got == want[: len(got)]
        with iter(ds) as other:
            other.set_state(it.get_state())
            assert list(map(_plain, other)) == want[len(got) :]


def _close(it: Any, begun: threading.Event) -> None:
    begun.wait(60)
    it.close()


def _read(it: Any, got: list[Any], begun: threading.Event, at: int) -> None:
    try:
        for element in it:
            got.append(_plain(element))
            if len(got) == at:
                begun.set()
    except ValueError as error:
        if "closed iterator" not in str(error):
            raise


def test_next_inside_next_of_the_same_iterator_says_so() -> None:
    def more(x: Any) -> Any:
        return x + next(it)

    it: Any = iter(wg.MapDataset.range(9).to_iter_dataset().map(more))
    with pytest.raises(ValueError, match="already executing"):
        next(it)


class _CutShort(wg.DatasetIterator[int]):
    """Counts, and waits in its fourth element for `close`, after which it returns nonsense."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0
        self.waits, self.closed = threading.Event(), threading.Event()

    def __next__(self) -> int:
        if self.count == 3:
            self.waits.set()
            self.closed.wait(60)
        self.count += 1
        return -1 if self.closed.is_set() else self.count - 1

    def get_state(self) -> dict[str, int]:
        return {"count": self.count}

    def set_state(self, state: dict[str, int]) -> None:
        self.count = state["count"]

    def close(self) -> None:
        self.closed.set()


def test_what_a_stage_makes_while_another_thread_closes_it_is_not_returned() -> None:
    opened: list[_CutShort] = []

    class Numbers(wg.IterDataset[int]):
        def __iter__(self) -> _CutShort:
            opened.append(_CutShort())
            return opened[-1]

    it = iter(Numbers().map(lambda x: x))
    got: list[Any] = []

    def close() -> None:
        opened[0].waits.wait(60)
        it.close()

    _run_all(lambda: _read(it, got, threading.Event(), 0), close)
    assert got == [0, 1, 2]
    assert it.get_state() == {"count": 3}
