"""shuffle: a random order that is computed, for each epoch another."""

import sys
import tracemalloc
from typing import Any

import numpy as np
import pytest

import wholegrain as wg
from tests.graph.tools import READ_OPTIONS, R, X
from wholegrain.testing import check_iter_dataset, check_map_dataset


def test_known_order() -> None:
    assert list(R(10).seed(42).shuffle()) == [1, 7, 6, 9, 0, 8, 4, 5, 3, 2]


@pytest.mark.parametrize("length", [1, 2, 3, 10, 255, 256, 257, 1000])
def test_each_epoch_has_every_element_once(length: int) -> None:
    ds = R(length).shuffle(seed=7)
    for epoch in (0, 1, 5, -1):
        indices = range(epoch * length, (epoch + 1) * length)
        assert sorted(ds[i] for i in indices) == list(range(length))


@pytest.mark.parametrize("length", [2**16 - 1, 2**16, 2**16 + 1, 2**18 + 1])
def test_large_epochs_have_every_element_once(length: int) -> None:
    epoch = np.array(R(length).shuffle(seed=7).getitems(np.arange(length)))
    assert np.array_equal(np.sort(epoch), np.arange(length))


def test_epochs_differ() -> None:
    ds = R(100).shuffle(seed=1)
    orders = {tuple(ds[i] for i in range(100 * e, 100 * e + 100)) for e in range(-3, 5)}
    assert len(orders) == 8


def test_the_next_epoch_has_the_next_seed() -> None:
    one, two = R(20).shuffle(seed=5), R(20).shuffle(seed=6)
    assert [one[i] for i in range(20, 40)] == [two[i] for i in range(20)]
    last = R(20).shuffle(seed=2**32 - 1)
    first = R(20).shuffle(seed=0)
    assert [last[i] for i in range(20, 40)] == [first[i] for i in range(20)]


@pytest.mark.parametrize("seed", [-1, 2**32, -(2**40)])
def test_a_seed_has_32_bits(seed: int) -> None:
    with pytest.raises(ValueError, match=f"seed={seed}") as raised:
        R(3).shuffle(seed=seed)
    assert "ds.seed(" in str(raised.value)


@pytest.mark.parametrize("seed", [1.5, "a", (1,)])
def test_a_seed_is_a_whole_number(seed: Any) -> None:
    with pytest.raises(TypeError, match="whole number"):
        R(3).shuffle(seed)


def test_a_seed_is_needed() -> None:
    with pytest.raises(ValueError, match="`shuffle` needs a seed") as raised:
        R(3).shuffle()
    assert "ds.seed(" in str(raised.value)


def test_one_element_stays_and_none_is_fine_until_it_is_read() -> None:
    assert list(R(1).shuffle(seed=3)) == [0]
    assert R(1).shuffle(seed=3)[17] == 0
    empty = R(0).shuffle(seed=3)
    assert list(empty) == []
    with pytest.raises(ZeroDivisionError) as raised:
        empty[0]
    assert any("empty" in note for note in raised.value.__notes__)
    with pytest.raises(ZeroDivisionError, match="empty"):
        empty.getitems(np.array([0]))


def test_an_infinite_dataset_can_be_shuffled() -> None:
    ds = R(10).repeat().shuffle(seed=1)
    assert len(ds) == sys.maxsize
    elements = [ds[i] for i in range(500)]
    assert set(elements) == set(range(10))
    check_map_dataset(ds, epochs=1)


@pytest.mark.parametrize("options", READ_OPTIONS)
def test_the_order_is_the_same_with_any_number_of_threads(options: wg.ReadOptions) -> None:
    ds = R(3000).shuffle(seed=9)
    assert list(ds.to_iter_dataset(options)) == [ds[i] for i in range(3000)]


def test_reading_in_the_middle_of_a_long_dataset_takes_no_memory() -> None:
    ds = R(100_000_000).shuffle(seed=3).map(lambda x: x + 1).batch(8)
    it = iter(ds)
    ds[5], next(it)  # What is made once is made now.
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        tracemalloc.reset_peak()
        for index in (0, 5_000_000, 12_499_999, 12_500_000 * 7 + 3):
            assert len(ds[index]) == 8
        it.set_state({"next_index": 6_000_000})
        for _ in range(10):
            next(it)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak - before < 4 << 20  # The epoch has 800 MB of indices.


def test_reads_chunks_as_elements_and_resumes() -> None:
    check_map_dataset(R(11).shuffle(seed=1), epochs=3)
    check_map_dataset(R(2**16 + 1).shuffle(seed=1))
    check_iter_dataset(R(11).shuffle(seed=1).to_iter_dataset())


# Windows, by index.


def test_each_window_is_shuffled_by_itself() -> None:
    ds = X.WindowShuffleMapDataset(R(20), window_size=5, seed=3)
    for start in range(0, 40, 5):
        window = [ds[i] for i in range(start, start + 5)]
        assert sorted(window) == list(range(start % 20, start % 20 + 5))
    orders = {tuple(ds[i] % 5 for i in range(s, s + 5)) for s in range(0, 100, 5)}
    assert len(orders) > 5


@pytest.mark.parametrize("seed", [1, 2**32 - 2])
@pytest.mark.parametrize("window_size", [1, 3, 4, 7, 10, 100])
def test_windows_start_anew_with_each_epoch(window_size: int, seed: int) -> None:
    ds = X.WindowShuffleMapDataset(R(10), window_size=window_size, seed=seed)
    for epoch in range(-2, 3):
        elements = [ds[i] for i in range(10 * epoch, 10 * epoch + 10)]
        assert sorted(elements) == list(range(10))
        for start in range(0, 10, window_size):
            window = elements[start : start + window_size]
            assert sorted(window) == list(range(10))[start : start + window_size]
    check_map_dataset(ds, epochs=3)


def test_windows_are_known_where_they_divide_the_length() -> None:
    ds = X.WindowShuffleMapDataset(R(8), window_size=4, seed=7)
    shuffle = X.index_shuffle
    assert list(ds) == [
        *(shuffle(i, 3, 7, 4) for i in range(4)),
        *(4 + shuffle(i, 3, 8, 4) for i in range(4)),
    ]


@pytest.mark.parametrize("window_size", [0, -2])
def test_a_window_has_room_for_an_element(window_size: int) -> None:
    with pytest.raises(ValueError, match=f"window_size={window_size}"):
        X.WindowShuffleMapDataset(R(8), window_size=window_size, seed=7)


def test_windows_need_a_seed_of_32_bits() -> None:
    with pytest.raises(TypeError):
        X.WindowShuffleMapDataset(R(8), window_size=2)
    with pytest.raises(ValueError, match="seed=-1"):
        X.WindowShuffleMapDataset(R(8), window_size=2, seed=-1)


def test_an_empty_dataset_has_no_windows() -> None:
    ds = X.WindowShuffleMapDataset(R(0), window_size=2, seed=1)
    assert list(ds) == []
    with pytest.raises(ZeroDivisionError):
        ds[0]
