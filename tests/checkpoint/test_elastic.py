"""ElasticIterator: a checkpoint that another number of processes can resume."""

import asyncio
import itertools
import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import wholegrain as wg
from wholegrain import testing
from wholegrain.checkpoint import CheckpointHandler
from wholegrain.experimental import ElasticIterator, InterleaveIterDataset, ParquetIterDataset
from wholegrain.sharding import ShardOptions, as_process

_END = "the end"


def _shards(ds: Any, batch_size: int, count: int, **arguments: Any) -> list[ElasticIterator]:
    return [
        ElasticIterator(ds, batch_size, ShardOptions(index, count), **arguments)
        for index in range(count)
    ]


def _flat(batches: Any) -> list[Any]:
    return [element for batch in batches for element in batch.tolist()]


# Over a MapDataset.


def test_shards_share_each_batch() -> None:
    shards = _shards(wg.MapDataset.range(20), 4, 2)
    assert [batch.tolist() for batch in shards[0]] == [[0, 2], [4, 6], [8, 10], [12, 14], [16, 18]]
    assert [batch.tolist() for batch in shards[1]] == [[1, 3], [5, 7], [9, 11], [13, 15], [17, 19]]


def test_the_state_is_what_all_have_read_together() -> None:
    shards = _shards(wg.MapDataset.range(20), 4, 2)
    for step in range(3):
        assert [it.get_state() for it in shards] == [{"global_next_index": 4 * step}] * 2
        for it in shards:
            next(it)


def test_another_number_of_shards_goes_on() -> None:
    ds = wg.MapDataset.range(20)
    before = _shards(ds, 4, 2)
    for it in before:
        next(it), next(it)
    state = before[0].get_state()
    assert state == {"global_next_index": 8}
    after = _shards(ds, 8, 4)
    for it in after:
        it.set_state(json.loads(json.dumps(state)))
    assert [batch.tolist() for batch in after[0]] == [[8, 12]]
    assert sorted(_flat(itertools.chain(*after[1:]))) == [9, 10, 11, 13, 14, 15]


@given(
    count=st.integers(0, 40),
    first=st.sampled_from([1, 2, 3]),
    second=st.sampled_from([1, 2, 4]),
    batch_size=st.sampled_from([12, 24]),
    steps=st.integers(0, 4),
    seed=st.integers(0, 9),
)
def test_each_element_is_read_once_whatever_the_numbers_of_shards(
    count: int, first: int, second: int, batch_size: int, steps: int, seed: int
) -> None:
    ds = wg.MapDataset.range(count).shuffle(seed=seed)
    num_batches = count // batch_size
    read: list[Any] = []
    for it in (before := _shards(ds, batch_size, first)):
        read += _flat(itertools.islice(it, min(steps, num_batches)))
    state = before[0].get_state()
    for it in _shards(ds, batch_size, second):
        it.set_state(state)
        read += _flat(it)
    assert len(read) == len(set(read))
    # Of the last batch, which is not full, some shards may have their part.
    assert {ds[index] for index in range(num_batches * batch_size)} <= set(read)


def test_a_state_restores_running_and_ended_iterators() -> None:
    it = ElasticIterator(wg.MapDataset.range(8), 2, ShardOptions(0, 1))
    next(it)
    state = it.get_state()
    rest = [batch.tolist() for batch in it]
    assert next(it, _END) == _END
    for _ in range(2):
        it.set_state(state)
        assert it.get_state() == state
        assert [batch.tolist() for batch in it] == rest


def test_a_state_beyond_the_data_is_the_end() -> None:
    it = ElasticIterator(wg.MapDataset.range(8), 2, ShardOptions(0, 1))
    it.set_state({"global_next_index": 100})
    assert next(it, _END) == _END


def test_an_endless_dataset_goes_on() -> None:
    it = ElasticIterator(wg.MapDataset.range(3).repeat(), 2, ShardOptions(0, 1))
    assert [next(it).tolist() for _ in range(3)] == [[0, 1], [2, 0], [1, 2]]
    it.set_state({"global_next_index": 10**12})
    assert next(it).tolist() == [10**12 % 3, (10**12 + 1) % 3]


def test_it_is_a_dataset_with_one_iterator() -> None:
    elastic: Any = ElasticIterator(wg.MapDataset.range(8), 2, ShardOptions(0, 1))
    it = iter(elastic)
    assert issubclass(type(elastic), wg.IterDataset)
    assert not issubclass(type(elastic), wg.DatasetIterator)
    assert issubclass(type(it), wg.DatasetIterator)
    assert not issubclass(type(it), ElasticIterator)
    assert iter(elastic) is it
    assert next(elastic).tolist() == [0, 1]
    assert next(it).tolist() == [2, 3]
    assert elastic.get_state() == it.get_state() == {"global_next_index": 4}
    assert elastic.parents == ()
    assert elastic.shard_options == ShardOptions(0, 1)
    assert elastic.base_iterator is elastic.base_iterator
    assert len(list(elastic)) == 2
    assert list(elastic) == []


def test_transformations_read_from_it() -> None:
    def elastic() -> ElasticIterator:
        return ElasticIterator(wg.MapDataset.range(12), 2, ShardOptions(0, 1))

    assert [b.tolist() for b in elastic().map(lambda b: b * 10)][:2] == [[0, 10], [20, 30]]
    assert next(b.tolist() for b in elastic().batch(3)) == [[0, 1], [2, 3], [4, 5]]
    assert [b.tolist() for b in elastic().filter(lambda b: b[0] > 7)] == [[8, 9], [10, 11]]
    ds = elastic().map(lambda b: b + 1)
    it = iter(ds)
    next(it)
    state = it.get_state()
    assert state == {"global_next_index": 2}
    rest = [batch.tolist() for batch in it]
    it.close()
    again = iter(ds)
    again.set_state(state)
    assert [batch.tolist() for batch in again] == rest
    again.close()
    testing.assert_equal_output_after_checkpoint(ds)
    threads: Any = wg.experimental.ThreadPrefetchIterDataset(elastic(), prefetch_buffer_size=2)
    assert next(iter(threads)).tolist() == [0, 1]
    with pytest.raises(NotImplementedError):
        wg.experimental.get_element_spec(elastic())


@pytest.mark.parametrize("as_iterator", [False, True])
def test_the_dataset_and_its_iterator_are_saved_alike(as_iterator: bool, tmp_path: Path) -> None:
    def given() -> Any:
        elastic = ElasticIterator(wg.MapDataset.range(8), 2, ShardOptions(0, 1))
        return iter(elastic) if as_iterator else elastic

    one, other = given(), given()
    next(one)
    CheckpointHandler().save(tmp_path, one)
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {"process_0-of-1.json", "pipeline_0-of-1.json"}
    assert CheckpointHandler().restore(tmp_path, other) is other
    assert next(other).tolist() == [2, 3]


@pytest.mark.parametrize(
    "states",
    [
        {0: {"exhausted": 0}, 1: {"exhausted": 0, "state": {"next_index": 0}}},
        {0: {"state": {"next_index": 0}}, 1: {"exhausted": 0, "state": {"next_index": 0}}},
        {"a": {"exhausted": 0, "state": {"next_index": 0}}},
        {None: {"exhausted": 0, "state": {"next_index": 0}}},
        {0: None, 1: None},
        {0: {"exhausted": 7, "state": {}}, 1: {"exhausted": 0, "state": {"next_index": 0}}},
        [1, 2],
        None,
        {0: {"exhausted": 0, "state": {"next_index": 99}}, 1: {"exhausted": 1, "state": {}}},
    ],
)
def test_states_of_single_datasets_that_were_changed_are_refused(states: Any) -> None:
    (it,) = _shards(_interleave([6, 6]), 0, 1)
    next(it), next(it)
    with pytest.raises(ValueError, match="state"):
        it.set_shard_states(states)
    assert [next(it) for _ in range(3)] == [1, 101, 2]


def test_a_closed_one_gives_nothing_but_its_state() -> None:
    it = ElasticIterator(wg.MapDataset.range(8), 2, ShardOptions(0, 1))
    next(it)
    it.close()
    it.close()
    with pytest.raises(ValueError, match="closed iterator"):
        next(it)
    assert it.get_state() == {"global_next_index": 2}
    fresh = ElasticIterator(wg.MapDataset.range(8), 2, ShardOptions(0, 1))
    fresh.close()
    with pytest.raises(ValueError, match="closed iterator"):
        next(fresh)


def test_workers_may_run_the_pipeline() -> None:
    options = wg.MultiprocessingOptions(num_workers=2)
    shards = _shards(wg.MapDataset.range(16), 4, 2, multiprocessing_options=options)
    batches = [[batch.tolist() for batch in it] for it in shards]
    assert batches[0] == [[0, 2], [4, 6], [8, 10], [12, 14]]
    assert batches[1] == [[1, 3], [5, 7], [9, 11], [13, 15]]
    shards[0].set_state({"global_next_index": 8})
    assert next(shards[0]).tolist() == [8, 10]
    for it in shards:
        it.close()


@pytest.mark.parametrize(
    ("batch_size", "message"), [(3, "3 is not one of 2"), (0, "at least 1"), (-2, "at least 1")]
)
def test_a_batch_that_cannot_be_shared_is_refused(batch_size: int, message: str) -> None:
    it = ElasticIterator(wg.MapDataset.range(8), batch_size, ShardOptions(0, 2))
    with pytest.raises(ValueError, match=message):
        next(it)


def test_missing_elements_cannot_be_counted() -> None:
    ds = wg.MapDataset.range(8).filter(lambda x: x > 3).map(lambda x: x)
    with pytest.raises(ValueError, match="cannot count elements after a `filter`"):
        ElasticIterator(ds, 2, ShardOptions(0, 1))


def test_there_are_no_states_of_single_datasets() -> None:
    it = ElasticIterator(wg.MapDataset.range(8), 2, ShardOptions(0, 1))
    with pytest.raises(NotImplementedError):
        it.get_shard_states()
    with pytest.raises(NotImplementedError):
        it.set_shard_states({})


def test_grains_state_is_the_same() -> None:
    grain = pytest.importorskip("grain")
    for position in (0, 4, 8):
        states, batches = [], []
        for package in (grain, wg):
            options = package.sharding.ShardOptions(1, 2)
            ds = package.MapDataset.range(20).shuffle(seed=3)
            it = package.experimental.ElasticIterator(ds, 4, options)
            it.set_state({"global_next_index": position})
            batches.append([next(it).tolist() for _ in range(2)])
            states.append(it.get_state())
        assert states[0] == states[1] == {"global_next_index": position + 8}
        assert batches[0] == batches[1]


# Over an IterDataset.


def _numbered(number: int, length: int) -> Any:
    return wg.MapDataset.range(100 * number, 100 * number + length).to_iter_dataset()


def _interleave(lengths: list[int], cycle_length: int = 2) -> Any:
    datasets = [_numbered(number, length) for number, length in enumerate(lengths)]
    return InterleaveIterDataset(datasets, cycle_length=cycle_length)


def test_each_shard_has_every_nth_dataset() -> None:
    shards = _shards(_interleave([2, 3, 1, 2, 2]), 2, 2)
    assert [batch.tolist() for batch in shards[0]] == [[0], [200], [1], [400], [401]]
    assert [batch.tolist() for batch in shards[1]] == [[100], [300], [101], [301], [102]]


def test_the_last_batch_may_be_short_and_there_need_be_none() -> None:
    (batched,) = _shards(_interleave([2, 3]), 2, 1)
    assert [batch.tolist() for batch in batched] == [[0, 100], [1, 101], [102]]
    (single,) = _shards(_interleave([2, 3]), 0, 1)
    assert list(single) == [0, 100, 1, 101, 102]


def test_the_state_is_that_of_the_shards_own_pipeline() -> None:
    (it,) = _shards(_interleave([4, 4, 4]), 2, 1)
    next(it), next(it)
    state = it.get_state()
    assert state["iterators_in_use_indices"] == [0, 1]
    assert state["iterators_in_use_states"] == [{"next_index": 2}] * 2
    rest = _flat(it)
    it.set_state(json.loads(json.dumps(state)))
    assert _flat(it) == rest


def test_the_states_of_single_datasets_have_their_numbers_among_all() -> None:
    shards = _shards(_interleave([2, 9, 3, 9, 9], cycle_length=2), 0, 2)
    assert [next(shards[0]) for _ in range(6)] == [0, 200, 1, 201, 202, 400]
    assert shards[0].get_shard_states() == {
        0: {"exhausted": 1, "state": {"next_index": 0}},
        2: {"exhausted": 0, "state": {"next_index": 3}},
        4: {"exhausted": 0, "state": {"next_index": 1}},
    }
    assert list(shards[1].get_shard_states()) == [1, 3]


def test_datasets_that_have_not_begun_have_their_first_state() -> None:
    (it,) = _shards(_interleave([5, 5, 5, 5], cycle_length=1), 0, 1)
    next(it)
    states = it.get_shard_states()
    assert [state["state"] for state in states.values()] == [
        {"next_index": position} for position in (1, 0, 0, 0)
    ]


def _resumed(shards: list[ElasticIterator], ds: Any, count: int, form: Any) -> list[Any]:
    """Return what is left of the data when other shards go on from the states of these."""
    states: dict[Any, Any] = {}
    for it in shards:
        states |= form(it.get_shard_states())
    left: list[Any] = []
    for it in _shards(ds, 0, count):
        index = it.shard_options.shard_index
        own = {key: state for key, state in states.items() if int(key) % count == index}
        it.set_shard_states(own)
        left += list(it)
    return left


def _as_json(states: Any) -> Any:
    return json.loads(json.dumps(states))


@settings(max_examples=60)
@given(
    lengths=st.lists(st.integers(0, 6), min_size=1, max_size=7),
    cycle_length=st.integers(1, 4),
    counts=st.lists(st.integers(1, 4), min_size=2, max_size=4),
    steps=st.lists(st.integers(0, 8), min_size=16, max_size=16),
    through_json=st.booleans(),
)
def test_each_element_is_read_once_by_changing_numbers_of_shards(
    lengths: list[int],
    cycle_length: int,
    counts: list[int],
    steps: list[int],
    through_json: bool,
) -> None:
    ds = _interleave(lengths, cycle_length)
    expected = [100 * n + i for n, length in enumerate(lengths) for i in range(length)]
    read: list[Any] = []
    states: dict[Any, Any] = {}
    remaining_steps = iter(steps)
    for count in counts:
        shards = _shards(ds, 0, count)
        for it in shards:
            own = {
                key: state
                for key, state in states.items()
                if int(key) % count == it.shard_options.shard_index
            }
            if states:
                it.set_shard_states(own)
            read += itertools.islice(it, next(remaining_steps, 0))
        states = {}
        for it in shards:
            states |= it.get_shard_states()
        if through_json:
            states = _as_json(states)
    read += _resumed(shards, ds, 1, _as_json if through_json else dict)
    assert Counter(read) == Counter(expected)


def test_pending_positions_survive_a_file() -> None:
    """States of datasets that wait for their turn are kept when they are saved once more."""
    ds = _interleave([6, 6, 6, 6], cycle_length=4)
    (before,) = _shards(ds, 0, 1)
    read = [next(before) for _ in range(12)]
    # One shard with room for two, which has to keep the positions of the others.
    narrow = _interleave([6, 6, 6, 6], cycle_length=2)
    (it,) = _shards(narrow, 0, 1)
    it.set_shard_states(_as_json(before.get_shard_states()))
    read += [next(it) for _ in range(2)]
    state = _as_json(it.get_state())
    assert set(state["future_states"]) == {"2", "3"}
    (other,) = _shards(narrow, 0, 1)
    other.set_state(state)
    read += list(other)
    assert Counter(read) == Counter(100 * n + i for n in range(4) for i in range(6))


def test_a_dataset_that_has_ended_is_not_read_again() -> None:
    ds = _interleave([6, 6, 6, 6], cycle_length=1)
    states = {
        0: {"exhausted": 0, "state": {"next_index": 4}},
        1: {"exhausted": 1, "state": {"next_index": 0}},
        2: {"exhausted": 0, "state": {"next_index": 5}},
        3: {"exhausted": 1, "state": {"next_index": 0}},
    }
    (it,) = _shards(ds, 0, 1)
    it.set_shard_states(states)
    assert next(it) == 4
    saved = _as_json(it.get_state())
    assert list(it) == [5, 205]
    (other,) = _shards(ds, 0, 1)
    other.set_state(saved)
    assert list(other) == [5, 205]


def test_states_of_other_data_are_refused() -> None:
    (it,) = _shards(_interleave([6, 6, 6]), 0, 1)
    states = it.get_shard_states()
    (more,) = _shards(_interleave([6, 6, 6, 6]), 0, 1)
    with pytest.raises(ValueError, match="states of 3 datasets, but this shard has 4"):
        more.set_shard_states(states)


def test_a_closed_one_is_closed() -> None:
    (it,) = _shards(_interleave([6, 6]), 2, 1)
    next(it)
    state = it.get_state()
    it.close()
    with pytest.raises(ValueError, match="closed iterator"):
        next(it)
    assert it.get_state() == state


def test_pipelines_that_cannot_be_dealt_out_are_refused() -> None:
    plain, options = _numbered(0, 5), ShardOptions(0, 2)
    zipped: Any = wg.experimental.ZipIterDataset([_interleave([3]), plain])
    mixed = wg.IterDataset.mix([_interleave([3]), plain])
    for ds in (plain, plain.map(abs), zipped, mixed):
        with pytest.raises(ValueError, match="cannot redistribute"):
            ElasticIterator(ds, 2, options)
    with pytest.raises(NotImplementedError, match="without worker processes"):
        ElasticIterator(
            _interleave([3]), 2, options, multiprocessing_options=wg.MultiprocessingOptions(2)
        )
    with pytest.raises(ValueError, match="3 is not one of 2"):
        next(ElasticIterator(_interleave([3, 3]), 3, options))


def _pairs(*lengths: list[int]) -> Any:
    return wg.experimental.ZipIterDataset(
        [_interleave(one).map(lambda x, k=k: x + 1000 * k) for k, one in enumerate(lengths)]
    )


def test_components_of_a_zip_are_batched_one_by_one() -> None:
    (it,) = _shards(_pairs([2, 2], [2, 2]), 2, 1)
    first, second = next(it)
    assert (first.tolist(), (second - first).tolist()) == ([0, 100], [1000, 1000])


@pytest.mark.parametrize("kind", ["zip", "mix"])
@pytest.mark.parametrize("after", [1, 2, 4])
def test_zips_and_mixes_go_on_with_another_number_of_processes(kind: str, after: int) -> None:
    lengths = [5, 5, 5, 5]
    if kind == "zip":
        ds = _pairs(lengths, lengths)
    else:
        ds = wg.IterDataset.mix([_interleave(lengths), _interleave(lengths).map(lambda x: -x - 1)])
    before = _shards(ds, 2, 2)
    seen = [tree_key(row) for it in before for _ in range(3) for row in _rows(next(it))]
    states = {number: state for it in before for number, state in it.get_shard_states().items()}
    json.loads(json.dumps(states))
    assert sorted(states) == [0, 1, 2, 3]
    later = _shards(ds, after, after)
    for index, it in enumerate(later):
        it.set_shard_states({n: states[n] for n in states if n % after == index})
    for it in later:
        seen += [tree_key(row) for batch in it for row in _rows(batch)]
    everything = [tree_key(element) for element in ds]
    assert len(set(seen)) == len(seen)
    assert set(seen) <= set(everything)
    assert kind == "mix" or set(seen) == set(everything)


def _rows(batch: Any) -> list[Any]:
    return list(zip(*batch, strict=True)) if isinstance(batch, tuple) else list(batch)


def tree_key(element: Any) -> Any:
    return tuple(map(int, element)) if isinstance(element, tuple) else int(element)


def test_parents_of_a_zip_need_as_many_shards() -> None:
    (it,) = _shards(_pairs([2, 2], [2, 2, 2]), 1, 1)
    with pytest.raises(ValueError, match="All parents must have the same number of shards"):
        it.get_shard_states()


def test_a_source_that_cannot_be_sliced_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "records"
    file.touch()
    ds = wg.experimental.TFRecordIterDataset(str(file))
    with pytest.raises(ValueError, match="Cannot slice"):
        ElasticIterator(ds, 2, ShardOptions(0, 2))


def test_transformations_come_along() -> None:
    ds = _interleave([4, 4, 4]).map(lambda x: x + 1).filter(lambda x: x % 2)
    shards = _shards(ds, 0, 2)
    assert [list(it) for it in shards] == [[1, 201, 3, 203], [101, 103]]
    assert list(shards[0].get_shard_states()) == [0, 2]


# Over Parquet files.


def _parquet(folder: Path, lengths: list[int]) -> list[str]:
    pa = pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")
    paths = []
    for number, length in enumerate(lengths):
        rows = np.arange(100 * number, 100 * number + length)
        paths.append(str(folder / f"{number}.parquet"))
        pq.write_table(pa.table({"x": rows}), paths[-1], row_group_size=2)
    return paths


def test_one_file_for_a_shard_is_enough(tmp_path: Path) -> None:
    ds = ParquetIterDataset(_parquet(tmp_path, [5, 5, 5]))
    read: list[int] = []
    shards = _shards(ds, 0, 3)
    for it in shards:
        read += [int(next(it)["x"]) for _ in range(3)]
    read += [int(row["x"]) for row in _resumed(shards, ds, 2, _as_json)]
    assert Counter(read) == Counter(100 * n + i for n in range(3) for i in range(5))


def test_a_single_file_belongs_to_one_shard(tmp_path: Path) -> None:
    ds = ParquetIterDataset(_parquet(tmp_path, [5]))
    shards = _shards(ds, 0, 2)
    assert [len(it.get_shard_states()) for it in shards] == [1, 0]
    assert [int(next(shards[0])["x"]) for _ in range(2)] == [0, 1]
    assert [int(row["x"]) for row in _resumed(shards, ds, 1, _as_json)] == [2, 3, 4]
    assert list(shards[1]) == []


# Files.


def _handlers(count: int) -> list[CheckpointHandler]:
    return [CheckpointHandler(process_index=i, process_count=count) for i in range(count)]


def test_any_process_file_restores_an_elastic_map_dataset(tmp_path: Path) -> None:
    ds = wg.MapDataset.range(24)
    for handler, it in zip(_handlers(2), _shards(ds, 4, 2), strict=True):
        next(it), next(it)
        handler.save(tmp_path, it)
    left: list[int] = []
    for handler, it in zip(_handlers(4), _shards(ds, 8, 4), strict=True):
        assert handler.restore(tmp_path, it) is it
        left += _flat(it)
    assert sorted(left) == list(range(8, 24))
    (it,) = _shards(ds, 4, 1)
    CheckpointHandler().restore(tmp_path, it)
    assert next(it).tolist() == [8, 9, 10, 11]


def test_each_dataset_has_a_file_of_its_own(tmp_path: Path) -> None:
    ds = _interleave([4, 4, 4, 4, 4])
    for handler, it in zip(_handlers(2), _shards(ds, 0, 2), strict=True):
        next(it)
        handler.save(tmp_path, it)
    names = {path.name for path in tmp_path.iterdir() if not path.name.startswith("pipeline")}
    assert names == {
        *(f"process_{index}-of-2.json" for index in range(2)),
        *(f"shard_state_{number}.json" for number in range(5)),
    }
    text = (tmp_path / "shard_state_0.json").read_text()
    assert text == json.dumps({"exhausted": 0, "state": {"next_index": 1}}, indent=4)


@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_other_processes_take_over_the_datasets(count: int, tmp_path: Path) -> None:
    ds = _interleave([4, 6, 2, 4, 5], cycle_length=3)
    read: list[int] = []
    for handler, it in zip(_handlers(2), _shards(ds, 0, 2), strict=True):
        read += itertools.islice(it, 7)
        handler.save(tmp_path, it)
    for handler, it in zip(_handlers(count), _shards(ds, 0, count), strict=True):
        assert handler.restore(tmp_path, it) is it
        read += list(it)
    expected = [100 * n + i for n, length in enumerate([4, 6, 2, 4, 5]) for i in range(length)]
    assert Counter(read) == Counter(expected)


def test_the_same_processes_go_on_in_the_same_order(tmp_path: Path) -> None:
    ds = _interleave([4, 6, 2, 4, 5])
    rest = []
    for handler, it in zip(_handlers(2), _shards(ds, 2, 2), strict=True):
        next(it), next(it)
        handler.save(tmp_path, it)
        rest.append(_flat(it))
    for number, (handler, it) in enumerate(zip(_handlers(2), _shards(ds, 2, 2), strict=True)):
        handler.restore(tmp_path, it)
        assert _flat(it) == rest[number]


class _Directory:
    """What Orbax's newer interface passes to `save`."""

    def __init__(self, path: Path) -> None:
        self._path = path

    async def await_creation(self) -> Path:
        return self._path


@pytest.mark.parametrize("ds", [_interleave([4, 6, 2]), wg.MapDataset.range(12)])
def test_the_newer_interface_is_elastic_as_well(ds: Any, tmp_path: Path) -> None:
    read: list[int] = []

    async def save(it: Any) -> None:
        write = await it.save(_Directory(tmp_path))
        next(it)
        await write

    async def load(it: Any) -> None:
        await (await it.load(str(tmp_path)))

    for it in _shards(ds, 2, 2):
        read += _flat(itertools.islice(it, 2))
        with as_process(it.shard_options.shard_index, 2):
            asyncio.run(save(it))
    for it in _shards(ds, 3, 3):
        with as_process(it.shard_options.shard_index, 3):
            asyncio.run(load(it))
        read += _flat(it)
    expected = range(12) if isinstance(ds, wg.MapDataset) else _flat(_shards(ds, 1, 1)[0])
    assert Counter(read) == Counter(expected)


def test_a_dataset_without_its_file_is_noticed(tmp_path: Path) -> None:
    ds = _interleave([4, 4, 4, 4])
    for handler, it in zip(_handlers(2), _shards(ds, 0, 2), strict=True):
        handler.save(tmp_path, it)
    (tmp_path / "shard_state_1.json").unlink()
    (it,) = _shards(ds, 0, 1)
    with pytest.raises(ValueError, match=r"shard_state_1\.json does not exist.*of 3 datasets"):
        CheckpointHandler().restore(tmp_path, it)


def test_a_directory_without_states_is_noticed(tmp_path: Path) -> None:
    (it,) = _shards(_interleave([4, 4]), 0, 1)
    for directory in (tmp_path, tmp_path / "nothing"):
        with pytest.raises(ValueError, match=r"process_0-of-1\.json does not exist"):
            CheckpointHandler().restore(directory, it)
