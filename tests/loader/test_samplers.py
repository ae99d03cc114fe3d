"""Which records are read, and in which order."""

import itertools
import pickle
import sys
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wholegrain.samplers import IndexSampler, Sampler, SequentialSampler
from wholegrain.sharding import NoSharding, ShardByJaxProcess, ShardOptions

_SHARDS = st.integers(1, 6).flatmap(
    lambda count: st.builds(ShardOptions, st.integers(0, count - 1), st.just(count), st.booleans())
)


@st.composite
def _samplers(draw: st.DrawFn) -> Any:
    num_records = draw(st.integers(1, 40))
    options = draw(st.just(NoSharding()) | _SHARDS)
    seed = draw(st.none() | st.integers(0, 2**32 - 1))
    if draw(st.booleans()):
        return SequentialSampler(num_records, options, seed)
    shuffle = seed is not None and draw(st.booleans())
    return IndexSampler(num_records, options, shuffle, draw(st.integers(1, 3)), seed)


@given(sampler=_samplers())
def test_many_keys_at_once_are_those_of_one_after_the_other(sampler: Any) -> None:
    if isinstance(sampler, IndexSampler) and sampler.shard_is_empty:
        return
    indices = range(len(sampler))
    keys = sampler.record_keys(np.arange(len(sampler))).tolist()
    assert keys == [sampler[index].record_key for index in indices]
    assert all(type(sampler[index].record_key) is int for index in indices)


@given(
    num_records=st.integers(1, 40),
    count=st.integers(1, 6),
    epochs=st.integers(1, 3),
    seed=st.integers(0, 2**32 - 1),
)
def test_all_shards_together_have_each_record_once_in_each_epoch(
    num_records: int, count: int, epochs: int, seed: int
) -> None:
    if num_records < count:
        return
    keys: Counter[int | None] = Counter()
    for shard in range(count):
        sampler = IndexSampler(num_records, ShardOptions(shard, count), True, None, seed)
        size = num_records // count + (shard < num_records % count)
        places = itertools.islice(itertools.count(shard, count), size * epochs)
        keys.update(sampler[place].record_key for place in places)
    assert keys == dict.fromkeys(range(num_records), epochs)


def test_each_epoch_is_shuffled_differently_and_the_seed_decides() -> None:
    sampler = IndexSampler(20, shuffle=True, num_epochs=2, seed=1)
    keys = [metadata.record_key for metadata in sampler]  # type: ignore[attr-defined]
    assert sorted(keys[:20]) == sorted(keys[20:]) == list(range(20))
    assert keys[:20] != keys[20:]
    # The next seed begins where this one goes on.
    other = IndexSampler(20, shuffle=True, num_epochs=1, seed=2)
    assert [other[index].record_key for index in range(20)] == keys[20:]


def test_samplers_can_be_iterated_until_their_end() -> None:
    assert [m.index for m in SequentialSampler(3)] == [0, 1, 2]  # type: ignore[attr-defined]
    endless = iter(IndexSampler(2))
    assert [m.record_key for m in itertools.islice(endless, 5)] == [0, 1, 0, 1, 0]


def test_generators_come_with_a_seed_and_do_not_depend_on_shuffling() -> None:
    assert IndexSampler(5, num_epochs=1)[2].rng is None
    shuffled = IndexSampler(5, shuffle=True, num_epochs=1, seed=3)[2].rng
    plain = IndexSampler(5, num_epochs=1, seed=3)[2].rng
    sequential = SequentialSampler(5, seed=3)[2].rng
    assert shuffled is not None
    assert plain is not None
    assert sequential is not None
    draws = [rng.integers(2**60) for rng in (shuffled, plain, sequential)]
    assert len(set(draws)) == 1
    expected = np.random.Generator(np.random.Philox(key=3 + 2)).integers(2**60)
    assert draws[0] == expected


def test_lengths() -> None:
    assert len(SequentialSampler(8, ShardOptions(1, 3))) == 8
    assert len(SequentialSampler(8, ShardOptions(1, 3, drop_remainder=True))) == 6
    assert len(IndexSampler(8)) == sys.maxsize
    assert len(IndexSampler(8, ShardOptions(1, 3), num_epochs=2)) == 16
    assert len(IndexSampler(8, ShardOptions(1, 3, True), num_epochs=2)) == 12
    assert len(SequentialSampler(2, ShardOptions(0, 3, drop_remainder=True))) == 0


@pytest.mark.parametrize(
    ("sampler", "outside", "message"),
    [
        (SequentialSampler(5), 5, "at 0 to 4, but index 5"),
        (IndexSampler(5, num_epochs=2), 10, "at 0 to 9, but index 10"),
        (IndexSampler(5), -1, "at 0 to infinity, but index -1"),
        (SequentialSampler(2, ShardOptions(0, 3, True)), 0, "no records, but index 0"),
    ],
)
def test_an_index_past_the_end_is_refused_with_the_right_bounds(
    sampler: Any, outside: int, message: str
) -> None:
    with pytest.raises(IndexError, match=message):
        sampler[outside]


@pytest.mark.parametrize(
    ("arguments", "kind", "message"),
    [
        ({"num_records": 0}, ValueError, "at least one record.*num_records=0"),
        ({"num_records": -3}, ValueError, "num_records=-3"),
        ({"num_epochs": 0}, ValueError, "at least one epoch.*num_epochs=0"),
        ({"shuffle": True}, ValueError, r"needs a seed: pass `seed="),
        ({"shuffle": True, "seed": 1.5}, TypeError, "`seed` has to be a whole number.*1.5"),
        ({"seed": -1}, ValueError, "from 0 to 2\\*\\*32 - 1, but got seed=-1"),
        ({"seed": 2**32}, ValueError, "seed=4294967296"),
        ({"num_records": "5"}, TypeError, "`num_records` has to be a whole number"),
        ({"num_epochs": 1.5}, TypeError, "`num_epochs` has to be a whole number"),
    ],
)
def test_arguments_that_make_no_sense_are_refused(
    arguments: dict[str, Any], kind: type[Exception], message: str
) -> None:
    with pytest.raises(kind, match=message):
        IndexSampler(**{"num_records": 5, **arguments})


def test_numpy_integers_are_integers() -> None:
    sampler = IndexSampler(
        np.int32(5),  # type: ignore[arg-type]
        ShardOptions(np.int64(1), np.int64(2)),  # type: ignore[arg-type]
        True,
        np.int64(2),  # type: ignore[arg-type]
        np.uint32(7),  # type: ignore[arg-type]
    )
    plain = IndexSampler(5, ShardOptions(1, 2), True, 2, 7)
    assert len(sampler) == len(plain) == 10
    assert sampler[np.int64(3)].record_key == plain[3].record_key  # type: ignore[index]
    assert repr(sampler).endswith("shuffle=True, num_epochs=2, seed=7)")


def test_the_seed_of_a_sequential_sampler_is_not_part_of_its_name() -> None:
    assert repr(SequentialSampler(3, seed=1)) == repr(SequentialSampler(3, seed=2))
    assert SequentialSampler(3, seed=2**40)[0].rng is not None


def test_a_shard_without_records_has_nothing_to_name() -> None:
    sampler = IndexSampler(2, ShardOptions(3, 4), num_epochs=2)
    with pytest.raises(IndexError, match="no records: there are 2 for 4 shards"):
        sampler[0]
    assert list(sampler) == []  # type: ignore[call-overload]


def test_samplers_fulfil_the_protocol_and_can_be_pickled() -> None:
    for sampler in (SequentialSampler(3), IndexSampler(3, seed=1, shuffle=True)):
        assert isinstance(sampler, Sampler)
        other = pickle.loads(pickle.dumps(sampler))
        assert repr(other) == repr(sampler)
        assert other[1].record_key == sampler[1].record_key
    assert not isinstance(object(), Sampler)


def test_shards_by_jax_process_name_themselves() -> None:
    sampler = SequentialSampler(3, ShardByJaxProcess())
    assert "ShardByJaxProcess(shard_index=0, shard_count=1" in repr(sampler)


def test_a_large_dataset_is_shuffled_without_a_table() -> None:
    sampler = IndexSampler(10**12, shuffle=True, num_epochs=None, seed=1)
    keys = [sampler[index].record_key or 0 for index in range(100)]
    assert len(set(keys)) == 100
    assert max(keys) > 10**11


@pytest.mark.parametrize("num_records", [0, -1, -(2**70)])
@pytest.mark.parametrize("kind", [SequentialSampler, IndexSampler])
def test_a_sampler_of_no_records_is_refused(kind: Any, num_records: int) -> None:
    for shard_options in (NoSharding(), ShardOptions(1, 2), ShardOptions(0, 2, True)):
        with pytest.raises(ValueError, match=f"`{kind.__name__}` needs.*num_records={num_records}"):
            kind(num_records, shard_options)


@pytest.mark.parametrize(("index", "count"), [(0, 0), (0, -1), (-1, 2), (2, 2), (0, 2**70 * -1)])
def test_shards_out_of_range_are_refused(index: int, count: int) -> None:
    with pytest.raises(ValueError, match=f"={index}|={count}"):
        ShardOptions(index, count)
