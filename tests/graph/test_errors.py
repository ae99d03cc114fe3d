"""What an error says: itself, and in a note the stage, the element and the source's index."""

import traceback
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import wholegrain as wg
from tests.graph.tools import (
    END,
    READ_OPTIONS,
    R,
    Unreadable,
    X,
    eventually,
    fails_on,
    finishes,
    our_threads,
    source,
)


class Corrupt(KeyError):
    """An error class of the user's."""

    def __init__(self, where: str, code: int) -> None:
        super().__init__(where)
        self.code = code


def _corrupt(element: Any) -> Any:
    if element == 14:
        raise Corrupt("block", 7)
    return element


def _raised(call: Callable[[], Any]) -> BaseException:
    try:
        finishes(call)
    except Exception as error:
        return error
    raise AssertionError("nothing was raised")


def _notes(error: BaseException) -> str:
    return "\n".join(getattr(error, "__notes__", ()))


def _place(ds: Any, element: int) -> int:
    return next(i for i in range(len(ds)) if ds[i] == element)


def test_an_element_by_index_says_where_it_failed() -> None:
    shuffled = R(100).shuffle(seed=3)
    place = _place(shuffled, 14)
    ds = shuffled.map(_corrupt).map(abs)
    for index in (place, place + 100 * 0):
        error = _raised(lambda i=index: ds[i])  # type: ignore[misc]
        assert type(error) is Corrupt
        assert error.args == ("block",)
        assert error.code == 7
        note = _notes(error)
        assert "MapMapDataset(transform=_corrupt @ " in note
        assert f"element {place} there" in note
        assert f"element {place} of the pipeline" in note
        assert "index 14 of the source" in note
        assert sum("wholegrain: " in note for note in error.__notes__) == 1


@pytest.mark.parametrize("options", READ_OPTIONS)
@pytest.mark.parametrize("batched", [False, True])
def test_so_does_an_element_of_a_chunk_or_a_thread(options: wg.ReadOptions, batched: bool) -> None:
    shuffled = R(100).shuffle(seed=3)
    place = _place(shuffled, 14)
    ds = shuffled.map(_corrupt)
    ds = ds.batch(4) if batched else ds
    error = _raised(lambda: list(ds.to_iter_dataset(options)))
    assert type(error) is Corrupt
    note = _notes(error)
    assert "MapMapDataset(transform=_corrupt @ " in note
    assert f"element {place} there" in note
    assert f"element {place // 4 if batched else place} of the pipeline" in note
    assert "index 14 of the source" in note


@pytest.mark.parametrize("workers", [1, 2, 3, "auto"])
@pytest.mark.parametrize("batched", [False, True])
def test_an_error_in_a_worker_counts_elements_as_the_whole_pipeline_does(
    workers: Any, batched: bool
) -> None:
    shuffled = R(100).shuffle(seed=3)
    place = _place(shuffled, 14)
    ds = shuffled.map(_corrupt)
    ds = ds.batch(4) if batched else ds
    options = wg.MultiprocessingOptions(num_workers=workers)
    error = _raised(lambda: list(ds.to_iter_dataset().mp_prefetch(options)))
    note = _notes(error)
    assert "MapMapDataset(transform=_corrupt @ " in note
    assert f"element {place} there" in note
    assert f"element {place // 4 if batched else place} of the pipeline" in note
    assert "index 14 of the source" in note
    assert "Worker " in note
    assert "its element" not in note


def test_the_index_of_the_source_is_found_through_every_stage() -> None:
    ds = wg.MapDataset.concatenate([R(5), R(40)[10:30].repeat(2)])  # 14 is at 5 + 4.
    ds = X.ZipMapDataset([ds.map(_corrupt), ds])
    error = _raised(lambda: ds[9])
    assert "MapMapDataset" in _notes(error)
    assert "element 9 there" in _notes(error)
    assert "index 14 of the source" in _notes(error)
    mixed = wg.MapDataset.mix([R(100, 200), R(40).map(_corrupt)])
    error = _raised(lambda: mixed[29])
    assert "component 1" in _notes(error)
    assert "element 29 of the pipeline" in _notes(error)
    assert "index 14 of the source" in _notes(error)


def test_a_source_says_which_record_failed() -> None:
    class Records:
        def __len__(self) -> int:
            return 50

        def __getitem__(self, index: int) -> int:
            if index == 14:
                raise Unreadable("bad block")
            return index

    for ds in (source(Records()), source(Records())[::2].map(abs)):
        error = _raised(lambda ds=ds: list(ds))  # type: ignore[misc]
        assert str(error) == "bad block"
        assert "SourceMapDataset(source=Records)" in _notes(error)
        assert "index 14 of the source" in _notes(error)


_IN_ORDER: dict[str, tuple[Callable[[Any], Any], str]] = {
    "map": (lambda ds: ds.map(_corrupt), "MapDatasetIterator(transform=_corrupt @"),
    "filter": (lambda ds: ds.filter(_corrupt), "FilterDatasetIterator(transform=_corrupt @"),
    "map_with_index": (
        lambda ds: ds.map_with_index(lambda _, x: _corrupt(x)),
        "MapWithIndexDatasetIterator(transform=<lambda> @",
    ),
    "random_map": (
        lambda ds: ds.random_map(lambda x, _: _corrupt(x), seed=1),
        "RandomMapDatasetIterator(transform=<lambda> @",
    ),
    "batch_fn": (
        lambda ds: ds.batch(1, batch_fn=lambda members: _corrupt(members[0])),
        "BatchDatasetIterator(batch_size=1",
    ),
    "flat_map": (
        lambda ds: X.FlatMapIterDataset(ds, _CorruptParts()),
        "FlatMapDatasetIterator(transform=_CorruptParts",
    ),
}


class _CorruptParts(wg.transforms.FlatMap):
    def flat_map(self, element: Any) -> Any:
        return [_corrupt(element)]


@pytest.mark.parametrize("stage", _IN_ORDER)
@pytest.mark.parametrize("batched", [False, True])
@pytest.mark.parametrize("threads", [False, True])
def test_a_stage_in_order_says_where_it_failed(stage: str, batched: bool, threads: bool) -> None:
    add, name = _IN_ORDER[stage]
    ds = add(R(30).to_iter_dataset()).map(lambda x: x)
    ds = ds.batch(4) if batched else ds
    ds = X.ThreadPrefetchIterDataset(ds, prefetch_buffer_size=2) if threads else ds
    error = _raised(lambda: list(ds))
    assert type(error) is Corrupt
    assert name in _notes(error)
    assert "'next_index': 15" in _notes(error)
    assert sum("wholegrain: " in note for note in error.__notes__) == 1


def test_the_cause_and_the_context_of_an_error_stay() -> None:
    def fail(element: int) -> int:
        try:
            return [1][element + 5]
        except IndexError:
            raise Unreadable("no such place")  # noqa: B904

    def fail_because(element: int) -> int:
        try:
            return [1][element + 5]
        except IndexError as error:
            raise Unreadable("no such place") from error

    for function in (fail, fail_because):
        for ds in (R(3).map(function), R(3).to_iter_dataset().map(function)):
            for batched in (ds, ds.batch(2)):
                error = _raised(lambda ds=batched: list(ds))  # type: ignore[misc]
                assert type(error) is Unreadable
                assert type(error.__context__) is IndexError
                assert not error.__suppress_context__ or error.__cause__ is error.__context__
                assert (error.__cause__ is None) == (function is fail)


def test_the_traceback_leads_to_the_users_function() -> None:
    for ds in (R(20).map(_corrupt), R(20).to_iter_dataset().map(_corrupt).batch(2)):
        error = _raised(lambda ds=ds: list(ds))  # type: ignore[misc]
        text = "".join(traceback.format_exception(error))
        assert "in _corrupt" in text
        assert "wholegrain: This happened in" in text


# StopIteration would end a loop as if the data had ended.


def _stops(element: Any) -> Any:
    return next(iter(())) if element == 3 else element


_STOPPING: dict[str, Callable[[], Any]] = {
    "map by index": lambda: R(6).map(_stops).to_iter_dataset(),
    "filter by index": lambda: R(6).filter(lambda x: _stops(x) + 1).to_iter_dataset(),
    "batch_fn by index": lambda: R(6).batch(1, batch_fn=lambda m: _stops(m[0])).to_iter_dataset(),
    "map": lambda: R(6).to_iter_dataset().map(_stops),
    "filter": lambda: R(6).to_iter_dataset().filter(lambda x: _stops(x) + 1),
    "map_with_index": lambda: R(6).to_iter_dataset().map_with_index(lambda _, x: _stops(x)),
    "random_map": lambda: R(6).to_iter_dataset().random_map(lambda x, _: _stops(x), seed=1),
    "batch_fn": lambda: R(6).to_iter_dataset().batch(1, batch_fn=lambda m: _stops(m[0])),
    "flat_map": lambda: X.FlatMapIterDataset(R(6).to_iter_dataset(), _StoppingParts()),
}


class _StoppingParts(wg.transforms.FlatMap):
    def flat_map(self, element: Any) -> Any:
        return [_stops(element)]


@pytest.mark.parametrize("stage", _STOPPING)
@pytest.mark.parametrize("batched", [False, True])
def test_a_function_cannot_end_the_data(stage: str, batched: bool) -> None:
    ds = _STOPPING[stage]()
    it = iter(ds.batch(2, batch_fn=list) if batched else ds)
    found: list[Any] = [next(it)]
    with pytest.raises(RuntimeError, match="raised StopIteration") as raised:
        found.extend(next(it) for _ in range(5))
    error: Any = raised.value
    while type(error.__cause__) is not StopIteration:  # A generator expression wraps it again.
        error = error.__cause__
    assert next(it) == ([4, 5] if batched else 4)


def test_a_source_may_say_that_it_has_ended() -> None:
    class Ending:
        def __len__(self) -> int:
            return 100

        def __getitem__(self, index: int) -> int:
            if index >= 20:
                raise StopIteration
            return index

    for options in READ_OPTIONS:
        it = iter(source(Ending()).to_iter_dataset(options))
        assert list(it) == list(range(20))
        assert [next(it, END) for _ in range(3)] == [END] * 3


# Nothing stays behind.


def test_an_error_does_not_keep_the_iterator() -> None:
    before = our_threads()  # Those that other tests have left.
    for ds in (
        R(30).map(fails_on(10)).to_iter_dataset(wg.ReadOptions(4, 4)),
        X.ThreadPrefetchIterDataset(
            R(30).map(fails_on(10)).to_iter_dataset(), prefetch_buffer_size=2
        ),
    ):
        it = iter(ds)
        it.start_prefetch()
        for _ in range(10):
            next(it)
        with pytest.raises(Unreadable):
            next(it)
        del it
        assert eventually(lambda: len(our_threads()) <= len(before))


# Empty datasets.


@pytest.mark.parametrize(
    "ds",
    [
        R(0),
        source([]),
        R(0).map(abs),
        R(0).shuffle(seed=1),
        R(5)[3:3],
        R(0).batch(2),
        R(0).repeat(),
        wg.MapDataset.concatenate([]),
        R(0).filter(bool),
        R(0).map_with_index(max),
        X.ZipMapDataset([R(0)]),
        source(np.zeros((0, 3))),
        R(0).slice([]),
    ],
    ids=str,
)
def test_an_empty_dataset_has_no_element_to_read(ds: wg.MapDataset[Any]) -> None:
    assert len(ds) == 0
    assert list(ds) == []
    assert not ds
    with pytest.raises(ZeroDivisionError) as raised:
        ds[0]
    assert "empty" in str(raised.value) + _notes(raised.value)
    with pytest.raises(ZeroDivisionError):
        ds.getitems(np.array([0, 1]))


# States.


@pytest.mark.parametrize("index", [-1, 6, 10**20])
def test_a_state_outside_the_dataset_is_refused(index: int) -> None:
    it = iter(R(5).to_iter_dataset())
    with pytest.raises(IndexError, match=str(index)) as raised:
        it.set_state({"next_index": index})
    assert "the dataset has 5" in str(raised.value)
    assert next(it) == 0


@pytest.mark.parametrize(
    "ds",
    [
        R(5).to_iter_dataset(),
        R(5).to_iter_dataset().map_with_index(max),
        R(5).to_iter_dataset().random_map(max, seed=1),
        X.RepeatIterDataset(R(5)),
        X.LimitIterDataset(R(5), 2),
        X.CacheIterDataset(R(5)),
        X.ZipIterDataset([R(5)]),
        wg.IterDataset.mix([R(5)]),
        X.RebatchIterDataset(R(5), 2),
        X.WindowShuffleIterDataset(R(5), window_size=2, seed=1),
        X.FlatMapIterDataset(R(5), _CorruptParts()),
        X.InterleaveIterDataset([R(5)], cycle_length=1),
    ],
    ids=str,
)
def test_a_state_without_its_keys_is_refused(ds: Any) -> None:
    with pytest.raises(KeyError):
        iter(ds).set_state({})


# What `apply` takes.


@pytest.mark.parametrize("wrong", [abs, 3, object()])
def test_apply_takes_transformations_only(wrong: Any) -> None:
    for ds in (R(5), R(5).to_iter_dataset()):
        with pytest.raises(NotImplementedError, match="transforms") as raised:
            ds.apply(wrong)
        assert "ds.map(function)" in str(raised.value)


@pytest.mark.parametrize("name", ["num_threads", "prefetch_buffer_size"])
def test_read_options_cannot_be_negative(name: str) -> None:
    with pytest.raises(ValueError, match=f"{name}=-1") as raised:
        wg.ReadOptions(**{name: -1})
    assert "0 switches it off" in str(raised.value)
    with pytest.raises(ValueError, match="whole number"):
        wg.ReadOptions(**{name: 1.5})  # type: ignore[arg-type]


def test_a_range_needs_a_step() -> None:
    with pytest.raises(ValueError, match="step"):
        R(0, 5, 0)


@pytest.mark.parametrize("wrong", [3, None, iter([1]), (x for x in "a")])
def test_a_source_needs_indices(wrong: Any) -> None:
    with pytest.raises(TypeError, match=r"__getitem__|only be read once") as raised:
        source(wrong)
    assert type(wrong).__name__ in str(raised.value)


@pytest.mark.parametrize("method", ["map", "filter", "random_map", "map_with_index"])
@pytest.mark.parametrize("wrong", [3, None, wg.transforms.Batch(2)])
def test_a_transformation_that_cannot_be_called_is_refused_at_once(method: str, wrong: Any) -> None:
    numbers = R(3).seed(1)
    for ds in (numbers, numbers.to_iter_dataset()):
        with pytest.raises(TypeError, match=f"`{method}` needs a function, or .*, but got"):
            getattr(ds, method)(wrong)


def test_workers_are_asked_for_with_options() -> None:
    with pytest.raises(TypeError, match=r"MultiprocessingOptions\(num_workers=4\)`, but got 4"):
        R(3).to_iter_dataset().mp_prefetch(4)
