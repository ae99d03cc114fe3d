"""get_next_index and set_next_index: positions counted in elements that an iterator produces."""

import time
from collections.abc import Callable
from typing import Any

import pytest

import wholegrain as wg
from tests.graph.tools import END, R, X, as_lists, fails_on, finishes

get: Any = wg.experimental.get_next_index
set_: Any = wg.experimental.set_next_index


def _numbered(ds: Any) -> Any:
    return ds.map_with_index(lambda i, x: (i, x))


_COUNTED: dict[str, Callable[[], Any]] = {
    "to_iter_dataset": lambda: R(12).shuffle(seed=1).to_iter_dataset(),
    "missing elements as None": lambda: (
        R(12).filter(lambda x: x % 2).to_iter_dataset(allow_nones=True)
    ),
    "map": lambda: R(12).to_iter_dataset().map(abs),
    "map_with_index": lambda: _numbered(R(12).to_iter_dataset()),
    "random_map": lambda: R(12).to_iter_dataset().random_map(lambda x, r: (x, r.random()), seed=1),
    "seed": lambda: R(12).to_iter_dataset().seed(1),
    "options": lambda: X.WithOptionsIterDataset(R(12).to_iter_dataset(), X.DatasetOptions()),
    "limit": lambda: X.LimitIterDataset(R(20).to_iter_dataset(), 12),
    "batch": lambda: R(36).to_iter_dataset().batch(3),
    "a short batch": lambda: R(34).to_iter_dataset().batch(3),
    "thread, buffer 0": lambda: X.ThreadPrefetchIterDataset(
        R(12).to_iter_dataset(), prefetch_buffer_size=0
    ),
    "thread": lambda: X.ThreadPrefetchIterDataset(
        R(12).to_iter_dataset().map(abs), prefetch_buffer_size=3
    ),
    "interleave of one": lambda: X.InterleaveIterDataset([R(12)], cycle_length=3),
    "one worker thread": lambda: X.multithread_prefetch(_numbered(R(12).to_iter_dataset()), 1, 2),
    "several": lambda: _numbered(
        X.LimitIterDataset(R(36).to_iter_dataset().map(abs).batch(2), 12).map(list)
    ),
}


@pytest.mark.parametrize("name", _COUNTED)
def test_the_index_counts_the_elements(name: str) -> None:
    def run() -> None:
        it = iter(_COUNTED[name]())
        assert get(it) == 0
        count = 0
        for count, _ in enumerate(it, 1):
            assert get(it) == count
        assert count == 12
        assert get(it) == 12
        assert get(it) == 12
        assert next(it, END) is END
        it.close()

    finishes(run)


@pytest.mark.parametrize("name", _COUNTED)
def test_going_to_an_index_gives_the_elements_from_there(name: str) -> None:
    def run() -> None:
        ds = _COUNTED[name]()
        everything = as_lists(ds)
        it = iter(ds)
        for index in (5, 0, 11, 3, 3):
            set_(it, index)
            assert get(it) == index
            assert as_lists(it) == everything[index:]
        it.close()
        it = iter(ds)
        next(it)
        set_(it, 7)
        state = it.get_state()
        it.close()
        restored = iter(ds)
        restored.set_state(state)
        assert get(restored) == 7
        assert as_lists(restored) == everything[7:]
        restored.close()

    finishes(run)


def test_an_index_outside_is_refused() -> None:
    for ds in (R(5).to_iter_dataset(), R(5).to_iter_dataset().map(abs)):
        for index in (-1, 6):
            with pytest.raises(IndexError, match=str(index)):
                set_(iter(ds), index)
        it = iter(ds)
        set_(it, 5)
        assert next(it, END) is END


class Parts(wg.transforms.FlatMap):
    max_fan_out = 1

    def flat_map(self, element: Any) -> Any:
        return [element]


@pytest.mark.parametrize(
    "ds",
    [
        R(5).to_iter_dataset().filter(bool),
        X.FlatMapIterDataset(R(5).to_iter_dataset(), Parts()),
        X.RebatchIterDataset(R(5).to_iter_dataset().batch(2), 3),
        X.RepeatIterDataset(R(5).to_iter_dataset()),
        X.WindowShuffleIterDataset(R(5).to_iter_dataset(), window_size=2, seed=1),
        wg.IterDataset.mix([R(5), R(5)]),
        X.ZipIterDataset([R(5), R(5)]),
        X.CacheIterDataset(R(5).to_iter_dataset()),
        X.InterleaveIterDataset([R(5), R(5)], cycle_length=2),
        X.multithread_prefetch(R(5).to_iter_dataset(), 2, 1),
    ],
    ids=lambda ds: type(ds).__name__,
)
def test_some_iterators_cannot_say(ds: Any) -> None:
    it = iter(ds)
    for behind in (it, iter(ds.map(abs)), iter(ds.batch(2))):
        with pytest.raises(NotImplementedError):
            get(behind)
        with pytest.raises(NotImplementedError):
            set_(behind, 2)
        behind.close()


def test_behind_a_filter_by_index_elements_are_not_counted() -> None:
    it = iter(R(5).filter(bool).to_iter_dataset())
    with pytest.raises(NotImplementedError, match="filter"):
        get(it)


@pytest.mark.parametrize("size", [0, 2])
def test_a_failing_element_counts(size: int) -> None:
    ds = X.ThreadPrefetchIterDataset(
        R(6).to_iter_dataset().map(fails_on(1)), prefetch_buffer_size=size
    )
    it = iter(ds)
    next(it)
    with pytest.raises(Exception, match="element 1"):
        next(it)
    assert get(it) == 2
    next(it)
    assert get(it) == 3
    it.set_state(it.get_state())
    assert get(it) == 3
    it.close()


def test_the_index_is_right_when_threads_take_over() -> None:
    def slow(element: int) -> int:
        time.sleep(0.002)
        return element

    ds = R(200).to_iter_dataset(wg.ReadOptions(0)).map(slow)
    it = iter(X.InterleaveIterDataset([ds], cycle_length=1))

    def run() -> None:
        for count in range(1, 20):
            next(it)
            assert get(it) == count
        it.start_prefetch()
        for count in range(20, 40):
            next(it)
            assert get(it) == count

    finishes(run)
    it.close()


def test_asking_does_not_rewind_an_iterator_that_has_ended() -> None:
    it = iter(X.InterleaveIterDataset([R(3)], cycle_length=1))
    assert list(it) == [0, 1, 2]
    assert get(it) == 3
    assert next(it, END) is END
    it.close()
    assert get(it) == 3
