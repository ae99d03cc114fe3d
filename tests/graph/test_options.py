"""DatasetOptions: which fields were given, how they merge, and how far they reach."""

import pickle
from collections.abc import Callable
from typing import Any

import pytest

import wholegrain as wg
from tests.graph.tools import R, X, finishes

Options = X.DatasetOptions


def test_defaults() -> None:
    options = Options()
    assert options.filter_warn_threshold_ratio == 0.9
    assert options.filter_raise_threshold_ratio is None
    assert options.execution_tracking_mode is X.ExecutionTrackingMode.DISABLED
    assert options.min_shm_size == 0
    assert X.ExecutionTrackingMode.DISABLED.value == 1
    assert X.ExecutionTrackingMode.STAGE_TIMING.value == 2


def test_fields_are_keywords_and_cannot_be_changed() -> None:
    with pytest.raises(TypeError):
        Options(0.5)
    with pytest.raises(AttributeError):
        Options().min_shm_size = 3
    with pytest.raises(TypeError):
        hash(Options())


def test_what_was_given_counts_even_if_it_is_the_default() -> None:
    assert Options() == Options()
    assert Options(min_shm_size=0) != Options()
    assert Options(min_shm_size=0) == Options(min_shm_size=0)
    assert Options(min_shm_size=0).merge(Options(min_shm_size=5)).min_shm_size == 0
    assert Options() != "options"


def test_merging_completes() -> None:
    one = Options(filter_warn_threshold_ratio=0.5)
    two = Options(filter_warn_threshold_ratio=0.1, filter_raise_threshold_ratio=0.2)
    merged = one.merge(two)
    assert merged.filter_warn_threshold_ratio == 0.5
    assert merged.filter_raise_threshold_ratio == 0.2
    assert merged.min_shm_size == 0
    assert merged == Options(filter_warn_threshold_ratio=0.5, filter_raise_threshold_ratio=0.2)
    assert one.merge(None) is one
    none_given = Options(filter_raise_threshold_ratio=None)
    assert none_given.merge(two).filter_raise_threshold_ratio is None


def test_they_can_be_pickled() -> None:
    options = Options(filter_raise_threshold_ratio=0.2)
    assert pickle.loads(pickle.dumps(options)) == options
    assert pickle.loads(pickle.dumps(options)) != Options()


def test_elements_and_states_are_not_changed() -> None:
    ds = X.WithOptionsIterDataset(R(4).to_iter_dataset(), Options(min_shm_size=3))
    assert ds.options == Options(min_shm_size=3)
    it = iter(ds)
    assert [next(it), it.get_state()] == [0, {"next_index": 1}]
    assert list(it) == [1, 2, 3]
    assert list(X.WithOptionsIterDataset(R(3), Options())) == [0, 1, 2]


# How far they reach. A filter that drops everything says whether it got a threshold.


def _raising(ds: Any, ratio: float | None = 0.5) -> Any:
    options = Options(filter_raise_threshold_ratio=ratio, filter_warn_threshold_ratio=None)
    return X.WithOptionsIterDataset(ds, options)


def _dropping() -> Any:
    return R(5000).to_iter_dataset().filter(lambda _: False)


def _reaches(ds: wg.IterDataset[Any]) -> bool:
    try:
        finishes(lambda: list(ds))
    except ValueError as error:
        return "skipped" in str(error)
    return False


_PLACES: dict[str, Callable[[], wg.IterDataset[Any]]] = {
    "upstream": lambda: _raising(_dropping()),
    "upstream, further": lambda: _raising(_dropping().map(abs).batch(2)),
    "downstream": lambda: _raising(R(5000).to_iter_dataset()).filter(lambda _: False),
    "downstream, further": lambda: _raising(R(5000)).map(abs).filter(lambda _: False).map(abs),
    "by index": lambda: _raising(R(5000).filter(lambda _: False).to_iter_dataset()),
    "through thread prefetch": lambda: _raising(
        X.ThreadPrefetchIterDataset(_dropping(), prefetch_buffer_size=2)
    ),
    "into interleaved datasets": lambda: _raising(
        X.InterleaveIterDataset([_dropping(), _dropping()], cycle_length=2)
    ),
    "into interleaved map datasets": lambda: _raising(
        X.InterleaveIterDataset([R(5000).filter(lambda _: False)], cycle_length=2)
    ),
    "inside interleaved datasets": lambda: X.InterleaveIterDataset(
        [_raising(_dropping())], cycle_length=1
    ),
    "into threads": lambda: _raising(X.multithread_prefetch(_dropping(), 2, 1)),
    "inside threads": lambda: X.multithread_prefetch(_raising(_dropping()), 2, 1),
    "from inside threads, downstream": lambda: X.multithread_prefetch(
        _raising(R(5000).to_iter_dataset()), 2, 1
    ).filter(lambda _: False),
    "into a mixture": lambda: _raising(wg.IterDataset.mix([_dropping(), _dropping()])),
    "from one component to another": lambda: wg.IterDataset.mix(
        [_raising(R(9).to_iter_dataset()), _dropping()]
    ),
    "into a zip": lambda: _raising(X.ZipIterDataset([_dropping(), _dropping()])),
    "through repeat, limit, cache, windows, rebatch": lambda: _raising(
        X.RebatchIterDataset(
            X.WindowShuffleIterDataset(
                X.CacheIterDataset(X.LimitIterDataset(X.RepeatIterDataset(_dropping(), 1), 9)),
                window_size=2,
                seed=1,
            ),
            2,
        )
    ),
    "over a nearer one that sets something else": lambda: X.WithOptionsIterDataset(
        _raising(_dropping()), Options(min_shm_size=4)
    ),
    "nearest to the output": lambda: _raising(_raising(_dropping(), None)),
    "first parent": lambda: X.ZipIterDataset([_raising(_dropping()), _raising(_dropping(), None)]),
}


@pytest.mark.parametrize("place", _PLACES)
def test_options_reach(place: str) -> None:
    assert _reaches(_PLACES[place]())


def test_options_are_overruled_by_those_nearer_to_the_output() -> None:
    assert not _reaches(_raising(_raising(_dropping()), None))
    first = [_raising(_dropping(), None), _raising(_dropping())]
    assert not _reaches(X.ZipIterDataset(first))


def test_options_end_with_the_pipeline() -> None:
    assert _reaches(_raising(_dropping()))
    assert not _reaches(_dropping())
    assert not _reaches(X.InterleaveIterDataset([_dropping()], cycle_length=1))


def test_options_reach_through_a_dataset_of_the_users() -> None:
    class Passing(wg.IterDataset[Any]):
        def __iter__(self) -> wg.DatasetIterator[Any]:
            return self._parent.__iter__()  # type: ignore[no-any-return]

    assert _reaches(_raising(Passing(_dropping())))
    assert _reaches(Passing(_raising(R(5000))).filter(lambda _: False))
    assert _reaches(Passing(_raising(_dropping())))
