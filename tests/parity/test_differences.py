"""Where Grain loses, repeats or hides data, hangs or crashes, and wholegrain does not."""

import copy
import sys
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import wholegrain as wg
from tests.parity import model
from wholegrain.testing import check_iter_dataset, check_map_dataset

X = wg.experimental


def _iterate(*args: int) -> wg.IterDataset[int]:
    return wg.MapDataset.range(*args).to_iter_dataset()


class Parts(X.FlatMapTransform):
    max_fan_out = 2

    def flat_map(self, element: int) -> list[int]:
        return [element] * 2


class Generated(X.FlatMapTransform):
    max_fan_out = 2

    def flat_map(self, element: int) -> Any:
        return (part for part in [element, -element])


# Errors of user functions: the failing element is gone, everything else is there.


def _fails_at(*bad: int) -> Any:
    def function(element: int) -> int:
        if element in bad:
            raise RuntimeError(f"cannot do {element}")
        return element

    return function


def _collect(it: Any, most: int = 50) -> tuple[list[Any], list[str]]:
    """Return elements and errors, going on after each error."""
    elements: list[Any] = []
    errors: list[str] = []
    for _ in range(most):
        try:
            elements.append(next(it))
        except StopIteration:
            return elements, errors
        except Exception as error:
            errors.append(str(error))
    raise AssertionError("The iterator does not end.")


@pytest.mark.parametrize("num_threads", [0, 1, 3])
def test_a_failing_element_of_a_map_dataset_is_consumed(num_threads: int) -> None:
    ds = wg.MapDataset.range(6).map(_fails_at(2, 5))
    options = wg.ReadOptions(num_threads=num_threads, prefetch_buffer_size=3)
    it = iter(ds.to_iter_dataset(options))
    assert [next(it), next(it)] == [0, 1]
    with pytest.raises(RuntimeError, match="cannot do 2"):
        next(it)
    assert it.get_state() == {"next_index": 3}
    assert _collect(it) == ([3, 4], ["cannot do 5"])
    assert it.get_state() == {"next_index": 6}


@pytest.mark.parametrize("prefetch_buffer_size", [0, 1, 4])
def test_a_failing_element_is_consumed_behind_a_thread(prefetch_buffer_size: int) -> None:
    ds: Any = X.ThreadPrefetchIterDataset(
        _iterate(6).map(_fails_at(2)), prefetch_buffer_size=prefetch_buffer_size
    )
    it = iter(ds)
    assert [next(it), next(it)] == [0, 1]
    with pytest.raises(RuntimeError, match="cannot do 2"):
        next(it)
    assert it.get_state() == {"next_index": 3}
    assert _collect(it) == ([3, 4, 5], [])


def test_a_state_after_an_error_restores_behind_it() -> None:
    ds = wg.MapDataset.range(6).map(_fails_at(2)).to_iter_dataset()
    it = iter(ds)
    _collect(_first(it, 3))
    fresh = iter(ds)
    fresh.set_state(it.get_state())
    assert list(fresh) == [3, 4, 5]


def _first(it: Any, count: int) -> Iterator[Any]:
    for _ in range(count):
        try:
            yield next(it)
        except RuntimeError:
            continue


def test_a_batch_drops_what_it_had_collected_before_an_error() -> None:
    it: Any = iter(_iterate(7).map(_fails_at(1)).batch(3))
    elements, errors = _collect(it)
    assert errors == ["cannot do 1"]
    assert [batch.tolist() for batch in elements] == [[2, 3, 4], [5, 6]]


def test_an_error_in_one_component_does_not_end_a_mixture() -> None:
    it = iter(wg.IterDataset.mix([_iterate(3).map(_fails_at(1)), _iterate(10, 20)]))
    elements, errors = _collect(it)
    assert errors == ["cannot do 1"]
    assert elements[:4] == [0, 10, 11, 2]


def test_a_window_starts_again_after_an_error() -> None:
    ds: Any = X.WindowShuffleIterDataset(_iterate(8).map(_fails_at(1)), window_size=4, seed=7)
    elements, errors = _collect(iter(ds))
    assert errors == ["cannot do 1"]
    assert sorted(elements) in ([0, 2, 3, 4, 5, 6, 7], [2, 3, 4, 5, 6, 7])
    assert elements != sorted(elements)


# Restoring.


def _interleaved() -> wg.IterDataset[int]:
    return X.InterleaveIterDataset([_iterate(0, 2), _iterate(10, 14)], cycle_length=2)


def test_interleave_rewinds_after_its_end() -> None:
    it = iter(_interleaved())
    start = it.get_state()
    kept = copy.deepcopy(start)
    expected = list(it)
    for _ in range(2):  # The same state twice: it was not changed.
        it.set_state(start)
        assert start == kept
        assert it.get_state() == kept
        assert list(it) == expected


def test_what_is_interleaved_can_be_repeated() -> None:
    ds: Any = X.RepeatIterDataset(_interleaved(), num_epochs=3)
    assert list(ds) == [0, 10, 1, 11, 12, 13] * 3
    check_iter_dataset(ds)


def test_interleave_skips_missing_datasets_and_drains_the_others() -> None:
    datasets = wg.MapDataset.range(5).filter(lambda x: x % 2 == 0)
    ds: Any = X.InterleaveIterDataset(
        datasets.map(lambda x: _iterate(10 * x, 10 * x + 3)), cycle_length=2
    )
    assert list(ds) == [0, 20, 1, 21, 2, 22, 40, 41, 42]
    check_iter_dataset(ds)


def test_interleave_of_nothing_is_empty_and_needs_a_cycle() -> None:
    assert list(X.InterleaveIterDataset([], cycle_length=2)) == []
    with pytest.raises(ValueError, match="cycle_length"):
        X.InterleaveIterDataset([_iterate(2)], cycle_length=0)


def test_a_flat_map_forgets_its_parts_at_the_end() -> None:
    ds: Any = X.FlatMapIterDataset(_iterate(3), Parts())
    it = iter(ds)
    end = [it.get_state() for _ in it][-1]
    _ = next(it, None)
    end_of_data = it.get_state()
    for state in (end, end_of_data):
        running = iter(ds)
        next(running)
        running.set_state(state)
        assert list(running) == []


def test_a_flat_map_takes_generators() -> None:
    assert list(X.FlatMapIterDataset(_iterate(3), Generated())) == [0, 0, 1, -1, 2, -2]
    assert list(X.FlatMapMapDataset(wg.MapDataset.range(3), Generated())) == [0, 0, 1, -1, 2, -2]


def test_rebatch_restored_at_its_end_is_at_its_end() -> None:
    ds: Any = X.RebatchIterDataset(_iterate(8).batch(4), 4)
    it = iter(ds)
    assert len([next(it), next(it)]) == 2
    restored = iter(ds)
    restored.set_state(it.get_state())
    assert list(restored) == []
    check_iter_dataset(ds)


def test_repeating_nothing_forever_ends() -> None:
    assert list(X.RepeatIterDataset(_iterate(0))) == []
    assert list(X.RepeatIterDataset(_iterate(5).filter(lambda _: False))) == []


# Order.


@pytest.mark.parametrize(("length", "window_size"), [(10, 4), (8, 3), (5, 5), (3, 10), (1, 2)])
@pytest.mark.parametrize("seed", [1, 2**32 - 2])
def test_windows_by_index_hold_every_element_of_an_epoch(
    length: int, window_size: int, seed: int
) -> None:
    parent = wg.MapDataset.range(length)
    ds: Any = X.WindowShuffleMapDataset(parent, window_size=window_size, seed=seed)
    for epoch in (-2, -1, 0, 1, 2):
        indices = range(epoch * length, (epoch + 1) * length)
        elements = [ds[index] for index in indices]
        parents = [
            model.window_shuffled(index, length, window_size, seed, X.index_shuffle)
            for index in indices
        ]
        assert elements == [parent % length for parent in parents]
        assert sorted(elements) == list(range(length))
    check_map_dataset(ds)


def test_seeds_are_seen_through_prefetching() -> None:
    def draw(element: int, rng: np.random.Generator) -> tuple[int, float]:
        return element, float(rng.random())

    ds = wg.MapDataset.range(6).seed(5).to_iter_dataset()
    expected = list(ds.random_map(draw))
    for num_threads in (1, 2, 3):
        prefetched = X.multithread_prefetch(ds, num_threads, 1)
        assert list(prefetched.random_map(draw)) == expected


def _noisy(element: int, rng: np.random.Generator) -> tuple[int, float]:
    return element, float(rng.random())


_RANGE = wg.MapDataset.range(11)
_CUT: dict[str, wg.MapDataset[Any]] = {
    "range": _RANGE,
    "random_map": _RANGE.random_map(_noisy, seed=1),
    "map": _RANGE.map(lambda x: (x, 0)),
    "slice": _RANGE[1::2],
    "repeat": _RANGE.repeat(2),
    "mix": wg.MapDataset.mix([_RANGE, wg.MapDataset.range(100, 111)]),
    "concatenate": wg.MapDataset.concatenate([_RANGE, wg.MapDataset.range(100, 104)]),
    "zip": X.ZipMapDataset([_RANGE, wg.MapDataset.range(100, 111)]),
    "batch": _RANGE.batch(1).map(lambda batch: batch.tolist()),
}


@pytest.mark.parametrize("name", _CUT)
@pytest.mark.parametrize("num_threads", [1, 2, 3])
def test_each_part_of_a_sequential_slice_is_read_once(name: str, num_threads: int) -> None:
    ds = _CUT[name]
    cut = X.multithread_prefetch(ds.to_iter_dataset(), num_threads, 1, sequential_slice=True)
    assert sorted(cut, key=str) == sorted(ds, key=str)


def test_weights_belong_to_the_datasets_of_their_name() -> None:
    datasets = {"a": _iterate(9), "b": _iterate(100, 109)}
    expected = list(wg.IterDataset.mix(datasets, {"a": 1, "b": 2}))
    assert list(wg.IterDataset.mix(datasets, {"b": 2, "a": 1})) == expected
    for weights in ({"a": 1}, {"a": 1, "b": 2, "c": 3}, {"a": 1, "c": 2}):
        with pytest.raises(ValueError, match=r"[abc]"):
            wg.IterDataset.mix(datasets, weights)


# Batches.


@pytest.mark.parametrize(
    "elements",
    [
        [[1, 2], [1]],
        [(1, 2), (1, 2, 3)],
        [{"a": 1}, {"b": 1}],
        [{"a": 1}, {"a": 1, "b": 1}],
        [{"a": [1, 2]}, {"a": [1]}],
        [{"a": 1}, [1]],
    ],
    ids=str,
)
def test_elements_of_unequal_structure_are_not_stacked(elements: list[Any]) -> None:
    ds = wg.MapDataset.source(elements)
    with pytest.raises(ValueError, match=r"structure|keys|same"):
        ds.batch(2)[0]
    with pytest.raises(ValueError, match=r"structure|keys|same"):
        list(ds.to_iter_dataset().batch(2))


def test_missing_elements_are_not_stacked_by_index() -> None:
    ds: Any = wg.MapDataset.range(4).map(lambda x: None if x == 1 else x).batch(2)
    with pytest.raises(ValueError, match="None"):
        ds[0]
    assert ds[1].tolist() == [2, 3]


def test_batches_of_an_infinite_dataset_are_counted_exactly() -> None:
    assert len(wg.MapDataset.range(5).repeat().batch(3)) == -(-sys.maxsize // 3)
    assert len(wg.MapDataset.range(5).repeat().batch(3, drop_remainder=True)) == sys.maxsize // 3


def test_the_spec_of_a_rebatched_dataset_knows_about_the_last_batch() -> None:
    ds: Any = wg.MapDataset.range(10).batch(4).to_iter_dataset()
    assert X.get_element_spec(X.RebatchIterDataset(ds, 3)).shape == (None,)
    assert X.get_element_spec(X.RebatchIterDataset(ds, 3, drop_remainder=True)).shape == (3,)


# Arguments.


@pytest.mark.parametrize("weights", [[1, -1], [-1, -1], [0, 1]])
def test_weights_have_to_be_positive(weights: list[float]) -> None:
    with pytest.raises(ValueError, match="weight"):
        wg.MapDataset.mix([wg.MapDataset.range(3)] * 2, weights)
    with pytest.raises(ValueError, match="weight"):
        wg.IterDataset.mix([_iterate(3)] * 2, weights)


def test_numbers_of_threads_cannot_be_negative() -> None:
    with pytest.raises(ValueError, match="num_threads"):
        X.multithread_prefetch(_iterate(3), -1, 1)


# Prefetching and closing.


def _reads(seen: list[int]) -> Any:
    def function(element: int) -> int:
        seen.append(element)
        return element

    return function


def _wait_for(seen: list[int], count: int) -> None:
    for _ in range(500):
        if len(seen) >= count:
            return
        threading.Event().wait(0.01)
    raise AssertionError(f"Only {seen} were read ahead.")


def test_a_fresh_interleave_starts_to_prefetch() -> None:
    seen: list[int] = []
    datasets = [_iterate(0, 3).map(_reads(seen)), _iterate(10, 13).map(_reads(seen))]
    it: Any = iter(X.InterleaveIterDataset(datasets, cycle_length=2))
    it.start_prefetch()
    _wait_for(seen, 2)
    assert {0, 10} <= set(seen)
    assert list(it) == [0, 10, 1, 11, 2, 12]


def test_a_buffer_of_size_zero_does_not_prefetch() -> None:
    seen: list[int] = []
    parent = _iterate(4).map(_reads(seen))
    it: Any = iter(X.ThreadPrefetchIterDataset(parent, prefetch_buffer_size=0))
    it.start_prefetch()
    assert next(it) == 0
    assert seen == [0]
    assert list(it) == [1, 2, 3]


_CLOSED: dict[str, wg.IterDataset[Any]] = {
    "to_iter_dataset": _iterate(5),
    "threads": wg.MapDataset.source(list(range(5))).to_iter_dataset(),
    "map": _iterate(5).map(str),
    "map_with_index": _iterate(5).map_with_index(lambda i, x: (i, x)),
    "random_map": _iterate(5).random_map(lambda x, _: x, seed=1),
    "filter": _iterate(5).filter(bool),
    "batch": _iterate(5).batch(2),
    "rebatch": X.RebatchIterDataset(_iterate(5).batch(2), 3),
    "flat_map": X.FlatMapIterDataset(_iterate(5), Parts()),
    "window_shuffle": X.WindowShuffleIterDataset(_iterate(5), window_size=3, seed=1),
    "repeat": X.RepeatIterDataset(_iterate(5)),
    "limit": X.LimitIterDataset(_iterate(5), 4),
    "cache": X.RepeatIterDataset(X.CacheIterDataset(_iterate(1))),
    "zip": X.ZipIterDataset([_iterate(5), _iterate(5)]),
    "mix": wg.IterDataset.mix([_iterate(5), _iterate(5)]),
    "interleave": X.InterleaveIterDataset([_iterate(5), _iterate(5)], cycle_length=2),
    "thread_prefetch": X.ThreadPrefetchIterDataset(_iterate(5), prefetch_buffer_size=2),
    "no thread": X.ThreadPrefetchIterDataset(_iterate(5), prefetch_buffer_size=0),
    "options": X.WithOptionsIterDataset(_iterate(5), X.DatasetOptions()),
}


@pytest.mark.parametrize("name", _CLOSED)
def test_a_closed_iterator_gives_nothing(name: str) -> None:
    it = iter(_CLOSED[name])
    next(it)
    state = it.get_state()
    it.close()
    it.close()
    with pytest.raises(ValueError, match="closed"):
        next(it)
    assert it.get_state() == state
    with pytest.raises(ValueError, match="closed"):
        it.start_prefetch()


@pytest.mark.parametrize("name", _CLOSED)
def test_an_iterator_can_be_closed_before_it_starts(name: str) -> None:
    it = iter(_CLOSED[name])
    it.close()
    with pytest.raises(ValueError, match="closed"):
        next(it)
