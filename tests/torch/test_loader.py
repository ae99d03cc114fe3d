"""`wholegrain.torch.loader`: epochs, positions and lengths."""

import gc
import pickle
import threading
import time
from collections.abc import Callable
from itertools import chain
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import wholegrain as wg
from wholegrain import experimental
from wholegrain.sharding import ShardOptions

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

import wholegrain.torch  # noqa: E402

loader = wholegrain.torch.loader


def _noisy(number: int, rng: np.random.Generator) -> float:
    return number + rng.random()


def _is_odd(number: Any) -> bool:
    return int(number) % 2 == 1


def _numbers(count: int = 17) -> wg.MapDataset[int]:
    return wg.MapDataset.range(count).seed(3).shuffle()


_WORKERS = wg.MultiprocessingOptions(num_workers=2)

FINITE: dict[str, Callable[[], Any]] = {
    "batches": lambda: _numbers().batch(4),
    "random": lambda: _numbers().random_map(_noisy).batch(4),
    "iterable": lambda: _numbers().to_iter_dataset().batch(4),
    "random iterable": lambda: _numbers().to_iter_dataset().random_map(_noisy).batch(4),
    "filter": lambda: _numbers().filter(_is_odd).to_iter_dataset().batch(4),
    "late filter": lambda: _numbers().to_iter_dataset().filter(_is_odd).batch(4),
    "window": lambda: experimental.WindowShuffleIterDataset(
        wg.MapDataset.range(17), window_size=5, seed=1
    ).batch(4),
    "mix": lambda: wg.IterDataset.mix(
        [_numbers(9).to_iter_dataset(), _numbers(20).to_iter_dataset()]
    ).batch(4),
    "limit": lambda: experimental.LimitIterDataset(_numbers().to_iter_dataset().batch(4), 3),
    "repeat": lambda: _numbers().repeat(2).batch(4),
    "thread": lambda: experimental.ThreadPrefetchIterDataset(
        _numbers().batch(4).to_iter_dataset(), prefetch_buffer_size=3
    ),
    "drop": lambda: _numbers().to_iter_dataset().batch(4, drop_remainder=True),
}
WITH_WORKERS: dict[str, Callable[[], Any]] = {
    "workers": lambda: _numbers().batch(4).to_iter_dataset().mp_prefetch(_WORKERS),
    "batches in workers": lambda: _numbers().to_iter_dataset().batch(4).mp_prefetch(_WORKERS),
    "auto": lambda: (
        _numbers()
        .batch(4)
        .to_iter_dataset()
        .mp_prefetch(wg.MultiprocessingOptions(num_workers="auto", max_workers=2))
    ),
}
ALL = FINITE | WITH_WORKERS


def _read(epoch: Any) -> list[Any]:
    return [batch.tolist() for batch in epoch]


# Epochs.


@pytest.mark.parametrize("name", ALL)
def test_the_first_epoch_is_the_pipeline_and_later_ones_differ(name: str) -> None:
    ds = ALL[name]()
    batches = loader(ds)
    first, second = _read(batches), _read(batches)
    assert first == _read(iter(ds))
    assert first != second
    if "random" not in name and name not in ("mix", "limit", "drop"):
        assert sorted(chain(*first)) == sorted(chain(*second))
    batches.set_epoch(0)
    assert _read(batches) == first
    assert _read(batches) == second
    batches.set_epoch(1)
    assert _read(batches) == second


def test_epochs_are_those_of_repeat() -> None:
    batches = loader(_numbers(8).random_map(_noisy).batch(2))
    repeated = _numbers(8).random_map(_noisy).repeat(3).batch(2)
    assert [*_read(batches), *_read(batches), *_read(batches)] == _read(iter(repeated))


@pytest.mark.parametrize("name", ["batches", "random", "random iterable", "window", "late filter"])
def test_epochs_are_the_same_on_request(name: str) -> None:
    batches = loader(ALL[name](), reseed_each_epoch=False)
    first = _read(batches)
    assert _read(batches) == first
    batches.set_epoch(7)
    assert _read(batches) == first
    assert batches.epoch == 8


def test_a_loop_that_was_left_is_followed_by_the_next_epoch() -> None:
    batches = loader(_numbers().batch(4))
    whole = [_read(batches) for _ in range(3)]
    batches.set_epoch(0)
    for _ in batches:
        break
    assert batches.epoch == 0
    assert _read(batches) == whole[1]
    for batch in batches:
        assert batch.tolist() == whole[2][0]
        break
    batches.set_epoch(2)  # The same epoch again.
    assert _read(batches) == whole[2]


def test_the_epoch_may_be_set_after_iter() -> None:
    batches = loader(_numbers().batch(4))
    it = iter(batches)
    batches.set_epoch(3)
    assert batches.epoch == 3
    other = loader(_numbers().batch(4))
    other.set_epoch(3)
    assert _read(it) == _read(other)


@pytest.mark.parametrize("epoch", [-1, 1.5, "2", None])
def test_an_epoch_is_a_number(epoch: Any) -> None:
    with pytest.raises((TypeError, ValueError), match="epoch"):
        loader(_numbers().batch(4)).set_epoch(epoch)


def test_an_empty_dataset_has_empty_epochs() -> None:
    batches = loader(wg.MapDataset.range(0).batch(4))
    assert len(batches) == 0
    for _ in range(2):
        assert _read(batches) == []
        other = loader(wg.MapDataset.range(0).batch(4))
        other.load_state_dict(batches.state_dict())
        assert _read(other) == []


def test_a_data_loader_of_wholegrain_is_a_pipeline() -> None:
    def data_loader(num_epochs: int | None) -> wg.DataLoader:
        return wg.DataLoader(
            data_source=np.arange(10),
            sampler=wg.samplers.IndexSampler(10, shuffle=True, num_epochs=num_epochs, seed=1),
            operations=[wg.transforms.Batch(4)],
        )

    once = loader(data_loader(1))
    assert _read(once) == _read(iter(data_loader(1)))
    with pytest.raises(ValueError, match="num_epochs=None"):
        next(iter(once))
    endless = loader(data_loader(None), steps_per_epoch=2)
    it = iter(data_loader(None))
    assert [_read(endless), _read(endless)] == [
        [next(it).tolist() for _ in range(2)] for _ in range(2)
    ]


# Streams.


def _stream() -> wg.IterDataset[Any]:
    return _numbers(7).repeat().to_iter_dataset().filter(lambda x: x != 3).batch(4)


@pytest.mark.parametrize("ds", [lambda: _numbers(7).repeat().batch(4), _stream])
def test_an_endless_dataset_goes_on_in_each_loop(ds: Any) -> None:
    it = iter(ds())
    expected = [next(it).tolist() for _ in range(9)]
    batches = loader(ds())
    found = []
    for count in (2, 3, 4):
        batches.set_epoch(5)  # A framework may call it; the stream has its own epochs.
        for _, batch in zip(range(count), batches, strict=False):
            found.append(batch.tolist())
    assert found == expected
    other = loader(ds())
    other.load_state_dict(batches.state_dict())
    assert next(iter(other)).tolist() == next(it).tolist()


@pytest.mark.parametrize("ds", [lambda: _numbers(7).repeat().batch(4), _stream])
def test_steps_make_epochs_of_an_endless_dataset(ds: Any) -> None:
    it = iter(ds())
    expected = [[next(it).tolist() for _ in range(3)] for _ in range(4)]
    batches = loader(ds(), steps_per_epoch=3)
    assert len(batches) == 3
    assert [_read(batches) for _ in range(4)] == expected
    batches.set_epoch(2)
    assert _read(batches) == expected[2]
    batches.set_epoch(1)
    for _ in batches:
        break
    assert _read(batches) == expected[2]  # The rest of the epoch is skipped.


def test_workers_of_an_endless_dataset_keep_running() -> None:
    def process(number: int) -> int:
        import os

        return os.getpid()

    ds = _numbers(8).map(process).repeat().batch(2).to_iter_dataset().mp_prefetch(_WORKERS)
    batches = loader(ds, steps_per_epoch=4)
    seen = [set(chain(*_read(batches))) for _ in range(3)]
    assert seen[0] == seen[1] == seen[2]
    assert len(seen[0]) == 2
    batches.reader.close()


# Positions.


def _cuts(name: str, epochs: int = 2) -> None:
    """Restore at every position of some epochs, in a new loader."""
    expected = []
    states = []
    batches = loader(ALL[name]())
    states.append(batches.state_dict())
    for _ in range(epochs):
        for batch in batches:
            expected.append(batch.tolist())
            states.append(batches.state_dict())
        assert batches.state_dict()["batch"] == 0
    keys = [set(state) for state in states]
    assert all(one == keys[0] for one in keys)
    for count, state in enumerate(states):
        for without_rank in (False, True):
            other = loader(ALL[name]())
            if without_rank:  # The checkpoint of another rank.
                state = {key: value for key, value in state.items() if key != "rank_0"}
            other.load_state_dict(state)
            # If the length is not known, the rest of an epoch may be found to be empty.
            found = list(chain(*[_read(other) for _ in range(state["epoch"], epochs)]))
            assert found == expected[count:], (count, without_rank)


@pytest.mark.parametrize("name", FINITE)
def test_a_loader_continues_at_every_position(name: str) -> None:
    _cuts(name)


@pytest.mark.parametrize("name", WITH_WORKERS)
def test_a_loader_with_workers_continues_at_every_position(name: str) -> None:
    _cuts(name, epochs=1)


@given(
    count=st.integers(1, 30),
    size=st.integers(1, 6),
    steps=st.integers(1, 5),
    read=st.integers(0, 20),
    extra=st.integers(0, 3),
)
def test_a_stream_continues_at_any_position(
    count: int, size: int, steps: int, read: int, extra: int
) -> None:
    def make() -> Any:
        ds = _numbers(count).repeat().to_iter_dataset().random_map(_noisy).batch(size)
        return loader(ds, steps_per_epoch=steps)

    first = make()
    while read > 0:
        for _ in first:
            read -= 1
            if read == 0:
                break
    state = first.state_dict()
    whole = make()
    whole.set_epoch(state["epoch"])
    resumed = make()
    resumed.load_state_dict(state)
    resumed.set_epoch(state["epoch"])
    assert resumed.state_dict() == state
    assert _read(resumed) == _read(whole)[state["batch"] :]
    for _ in range(extra):
        assert _read(resumed) == _read(whole)


def test_a_state_is_that_of_the_loop_and_not_of_what_was_read_ahead() -> None:
    batches = loader(_numbers(40).batch(2), device="cpu", prefetch=8)
    for count, _ in enumerate(batches, 1):
        state = batches.state_dict()
        assert 20 * state["epoch"] + state["batch"] == count


def test_loading_before_the_first_batch_and_twice_is_fine() -> None:
    batches = loader(_numbers().batch(4))
    whole = [_read(batches) for _ in range(2)]
    batches.set_epoch(0)
    it = iter(batches)
    next(it)
    state = batches.state_dict()
    batches.load_state_dict(state)
    batches.load_state_dict(state)
    assert batches.state_dict() == state
    assert _read(batches) == whole[0][1:]
    assert _read(batches) == whole[1]


@pytest.mark.parametrize("steps", [None, 3])
def test_the_state_of_the_start_leads_back_to_it(steps: int | None) -> None:
    for ds in (_stream(), _numbers(7).repeat().batch(4)):
        batches = loader(ds, steps_per_epoch=steps)
        start = batches.state_dict()
        first = [next(it).tolist() for it in [iter(batches)] for _ in range(3)]
        batches.load_state_dict(start)
        assert [next(it).tolist() for it in [iter(batches)] for _ in range(3)] == first


def test_setting_another_epoch_drops_the_restored_position() -> None:
    batches = loader(_numbers().batch(4))
    whole = [_read(batches) for _ in range(2)]
    state = {"epoch": 0, "batch": 2, "world_size": 1, "rank_0": '{"next_index": 2}'}
    batches.load_state_dict(state)
    batches.set_epoch(0)
    assert _read(batches) == whole[0][2:]
    batches.load_state_dict(state)
    batches.set_epoch(1)
    assert _read(batches) == whole[1]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({}, "keys"),
        (None, "keys"),
        ({"state": "1"}, "keys"),
        ({"epoch": 0, "batch": 0, "world_size": 2, "rank_0": ""}, "2 processes"),
        ({"epoch": 0, "batch": 1, "world_size": 1, "rank_0": "{"}, "no JSON"),
        ({"epoch": 0, "batch": 1, "world_size": 1, "rank_0": '{"a": 1}'}, "next_index"),
    ],
)
def test_a_wrong_state_is_refused_and_changes_nothing(wrong: Any, message: str) -> None:
    batches = loader(_numbers().batch(4))
    it = iter(batches)
    next(it)
    before = batches.state_dict()
    with pytest.raises(ValueError, match=message):
        batches.load_state_dict(wrong)
    assert batches.state_dict() == before


def test_a_loader_can_be_pickled_in_the_middle_of_an_epoch() -> None:
    batches = loader(_numbers().batch(4))
    whole = [_read(batches) for _ in range(2)]
    batches.set_epoch(0)
    it = iter(batches)
    next(it)
    other = pickle.loads(pickle.dumps(batches))
    assert _read(other) == whole[0][1:]
    assert _read(other) == whole[1]


# Lengths.


@pytest.mark.parametrize("name", ALL)
def test_the_length_is_right_or_not_known(name: str) -> None:
    batches = loader(ALL[name]())
    count = len(_read(batches))
    if name in ("filter", "late filter", "window", "mix"):
        with pytest.raises(TypeError, match="not known"):
            len(batches)
    else:
        assert len(batches) == count


@given(
    count=st.integers(0, 30),
    size=st.integers(1, 7),
    drop=st.booleans(),
    limit=st.integers(0, 9),
)
def test_the_length_of_batches_is_right(count: int, size: int, drop: bool, limit: int) -> None:
    ds = _numbers(count).to_iter_dataset().batch(size, drop_remainder=drop)
    for pipeline in (ds, experimental.LimitIterDataset(ds, limit) if limit else ds):
        batches = loader(pipeline)
        assert len(batches) == len(_read(batches))


def test_an_endless_loader_has_no_length() -> None:
    with pytest.raises(TypeError, match="steps_per_epoch"):
        len(loader(_numbers().repeat().batch(4)))


# What it is.


def test_it_is_a_data_loader_of_torch() -> None:
    batches = loader(_numbers().batch(4))
    assert isinstance(batches, torch.utils.data.DataLoader)
    assert batches.num_workers == 0
    assert batches.batch_size is None
    assert isinstance(batches.state_dict()["rank_0"], str)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"steps_per_epoch": 3}, "ends by itself"),
        ({"steps_per_epoch": 0}, "at least one"),
        ({"prefetch": -1}, "negative"),
    ],
)
def test_wrong_options_are_refused(options: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        loader(_numbers().batch(4), **options)


@pytest.mark.parametrize("options", [{"batch_size": 4}, {"shuffle": True}, {"num_workers": 2}])
def test_options_of_torch_are_named(options: Any) -> None:
    with pytest.raises(TypeError, match="pipeline decides"):
        wholegrain.torch.Loader(_numbers().batch(4), **options)


def test_a_source_is_no_pipeline() -> None:
    with pytest.raises(TypeError, match=r"MapDataset\.source"):
        loader([1, 2, 3])  # type: ignore[arg-type]


def test_a_report_is_that_of_the_current_loop() -> None:
    batches = loader(_numbers(100).batch(4))
    with pytest.raises(ValueError, match="first batch"):
        batches.report()
    _read(batches)
    assert "batch" in str(batches.report())


def test_an_error_of_the_pipeline_arrives_in_the_loop_and_the_loop_goes_on() -> None:
    def fail(number: int) -> int:
        if number == 5:
            raise ValueError("five")
        return number

    batches = loader(wg.MapDataset.range(8).map(fail).to_iter_dataset().map(np.array))
    it = iter(batches)
    assert [int(next(it)) for _ in range(5)] == [0, 1, 2, 3, 4]
    with pytest.raises(ValueError, match="five"):
        next(it)
    assert [int(element) for element in it] == [6, 7]


def test_leaving_a_loop_leaves_no_threads() -> None:
    def slow(number: int) -> Any:
        import time

        time.sleep(0.002)
        return np.full(3, number)

    before = threading.active_count()
    batches = loader(wg.MapDataset.range(1000).map(slow), device="cpu")
    for _ in zip(range(30), batches, strict=False):
        pass
    del _, batches
    gc.collect()
    for _ in range(200):
        if threading.active_count() <= before:
            break
        threading.Event().wait(0.02)
    assert threading.active_count() <= before


def test_interleaved_datasets_differ_from_epoch_to_epoch() -> None:
    parts = [wg.MapDataset.range(n, n + 8).shuffle(seed=1).to_iter_dataset() for n in (0, 10)]
    batches = loader(experimental.InterleaveIterDataset(parts, cycle_length=2).batch(4))
    first, second = _read(batches), _read(batches)
    assert first != second
    assert sorted(chain(*first)) == sorted(chain(*second)) == [*range(8), *range(10, 18)]


def test_a_part_of_an_endless_dataset_has_epochs() -> None:
    endless = _numbers(8).repeat().to_iter_dataset()
    batches = loader(experimental.LimitIterDataset(endless.random_map(_noisy).batch(2), 3))
    first, second = _read(batches), _read(batches)
    assert len(first) == len(second) == 3
    assert first != second


# Loaders of an ElasticIterator with lanes.


def _elastic(ds: Any = None, **arguments: Any) -> Any:
    ds = wg.MapDataset.range(16).shuffle(seed=1) if ds is None else ds
    return experimental.ElasticIterator(ds, 4, ShardOptions(0, 1), lanes=2, **arguments)


@pytest.mark.parametrize("device", [None, "cpu"])
def test_an_elastic_iterator_continues_at_any_position(device: Any) -> None:
    batches = loader(_elastic(), device=device)
    found: list[Any] = []
    states: list[Any] = []
    for epoch in range(3):
        assert batches.epoch == epoch
        for batch in batches:
            time.sleep(0.005)  # Threads read ahead.
            assert batches.epoch == epoch
            found.append(batch.tolist())
            states.append(batches.state_dict())
        states[-1] = (states[-1], batches.state_dict())
        assert len(batches) == 4
    assert found[:4] != found[4:8] != found[8:]
    for number, state in enumerate(states[:8]):
        at_end, after = state if isinstance(state, tuple) else (None, state)
        other = loader(_elastic(), device=device)
        other.load_state_dict(after)
        place = number + 1
        assert _read(other) == found[place : place // 4 * 4 + 4]
        if at_end is not None:
            other.load_state_dict(at_end)  # Nothing of the epoch is left, but its end.
            assert _read(other) == []
            assert _read(other) == found[place : place + 4]


@pytest.mark.parametrize("device", [None, "cpu"])
def test_an_epoch_of_an_elastic_iterator_is_selected(device: Any) -> None:
    straight = loader(_elastic())
    epochs = [_read(straight) for _ in range(4)]
    batches = loader(_elastic(), device=device)
    for epoch in (2, 0, 1):
        batches.set_epoch(epoch)
        assert batches.epoch == epoch
        assert _read(batches) == epochs[epoch]
    next(iter(batches))
    batches.set_epoch(3)
    assert _read(batches) == epochs[3]
    other = loader(_elastic())
    batches.set_epoch(1)
    other.load_state_dict(batches.state_dict())
    assert _read(other) == epochs[1]


def test_steps_of_an_endless_elastic_iterator_are_epochs() -> None:
    ds = wg.MapDataset.range(64).shuffle(seed=1).repeat()
    straight = [batch.tolist() for _, batch in zip(range(12), _elastic(ds), strict=False)]
    batches = loader(_elastic(ds), steps_per_epoch=3)
    next(iter(batches))
    assert _read(batches) == straight[3:6]
    batches.set_epoch(3)
    assert _read(batches) == straight[9:12]
    batches.set_epoch(0)
    assert _read(batches) == straight[:3]


def test_an_elastic_iterator_that_ends_needs_no_steps() -> None:
    with pytest.raises(ValueError, match="ends by itself"):
        loader(_elastic(), steps_per_epoch=3)
    endless = loader(_elastic(wg.MapDataset.range(64).repeat(), steps=3))
    assert len(endless) == 3
    first, second = _read(endless), _read(endless)
    assert len(first) == len(second) == 3
    assert first != second
    endless.set_epoch(7)
    with pytest.raises(ValueError, match="only its state leads there"):
        _read(endless)


def test_a_state_of_other_lanes_is_refused_when_it_is_loaded() -> None:
    batches = loader(_elastic())
    next(iter(batches))
    other = loader(experimental.ElasticIterator(_numbers(16), 4, ShardOptions(0, 1), lanes=4))
    with pytest.raises(ValueError, match="taken with 2 lanes"):
        other.load_state_dict(batches.state_dict())
