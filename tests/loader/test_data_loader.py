"""A DataLoader: a source, a sampler and operations."""

import itertools
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import wholegrain as wg
from wholegrain.samplers import IndexSampler, SequentialSampler
from wholegrain.sharding import NoSharding, ShardOptions

_NO_THREADS = wg.ReadOptions(num_threads=0, prefetch_buffer_size=0)


def _loader(source: Any, **arguments: Any) -> wg.DataLoader:
    return wg.DataLoader(
        **{"data_source": source, "sampler": SequentialSampler(len(source) or 1), **arguments}
    )


class _Add(wg.transforms.Map):
    def __init__(self, number: int) -> None:
        self._number = number

    def map(self, element: int) -> int:
        return element + self._number


# Elements.


def test_operations_are_applied_in_turn() -> None:
    loader = _loader(range(4), operations=[_Add(1), wg.transforms.Batch(2)])
    assert [batch.tolist() for batch in loader] == [[1, 2], [3, 4]]


def test_each_iterator_starts_at_the_beginning() -> None:
    loader = _loader(range(4))
    first, second = iter(loader), iter(loader)
    assert [next(first), next(first), next(second), next(first)] == [0, 1, 0, 2]
    assert list(second) == [1, 2, 3]
    assert list(loader) == [0, 1, 2, 3]


def test_the_end_stays_the_end() -> None:
    it = iter(_loader(range(2)))
    assert list(it) == [0, 1]
    for _ in range(3):
        with pytest.raises(StopIteration):
            next(it)


@given(
    num_records=st.integers(1, 30),
    count=st.integers(1, 5),
    drop=st.booleans(),
    seed=st.none() | st.integers(0, 100),
    threads=st.booleans(),
)
def test_the_shards_of_one_epoch_have_each_record_once(
    num_records: int, count: int, drop: bool, seed: int | None, threads: bool
) -> None:
    options = wg.ReadOptions() if threads else _NO_THREADS
    shards = []
    for index in range(count):
        shard = ShardOptions(index, count, drop)
        sampler = IndexSampler(num_records, shard, seed is not None, num_epochs=1, seed=seed)
        shards.append(list(_loader(range(num_records), sampler=sampler, read_options=options)))
    sizes = {len(shard) for shard in shards}
    elements = sorted(itertools.chain(*shards))
    if drop:
        assert sizes == {num_records // count}
        assert elements == list(range(num_records // count * count))
    else:
        assert max(sizes) - min(sizes) <= 1
        assert elements == list(range(num_records))


def test_a_shard_of_several_epochs_has_its_part_of_the_whole_stream() -> None:
    sizes = []
    for index in range(3):
        sampler = IndexSampler(10, ShardOptions(index, 3), shuffle=True, num_epochs=2, seed=7)
        sizes.append(len(list(_loader(range(10), sampler=sampler))))
    assert sizes == [7, 7, 6]


def test_the_loaders_shard_takes_every_nth_place_of_the_samplers_stream() -> None:
    sampler = IndexSampler(10, shuffle=True, num_epochs=1, seed=7)
    keys = [sampler[index].record_key for index in range(10)]
    for index in range(3):
        loader = _loader(range(10), sampler=sampler, shard_options=ShardOptions(index, 3))
        assert list(loader) == keys[index::3]


@pytest.mark.parametrize("epochs", [1, 2, None])
def test_a_shard_without_records_is_empty(epochs: int | None) -> None:
    sampler = IndexSampler(2, ShardOptions(3, 4), num_epochs=epochs)
    assert list(_loader(range(2), sampler=sampler)) == []


def test_an_endless_loader_goes_on() -> None:
    loader = _loader(range(3), sampler=IndexSampler(3))
    assert list(itertools.islice(loader, 7)) == [0, 1, 2, 0, 1, 2, 0]


@given(
    num_threads=st.integers(0, 4),
    buffer_size=st.integers(0, 20),
    num_records=st.integers(1, 60),
)
def test_read_options_do_not_change_the_elements(
    num_threads: int, buffer_size: int, num_records: int
) -> None:
    options = wg.ReadOptions(num_threads, buffer_size)
    loader = _loader(range(num_records), operations=[_Add(3)], read_options=options)
    assert list(loader) == list(range(3, num_records + 3))


def test_the_source_is_read_from_several_threads_where_it_waits() -> None:
    threads = set()

    class Source:
        def __len__(self) -> int:
            return 200

        def __getitem__(self, index: int) -> int:
            threads.add(threading.get_ident())
            threading.Event().wait(0.002)
            return index

    assert list(_loader(Source())) == list(range(200))
    assert len(threads) > 1


def test_nothing_is_read_before_the_first_element() -> None:
    read = []

    class Source:
        def __len__(self) -> int:
            return 3

        def __getitem__(self, index: int) -> int:
            read.append(index)
            return index

    it = iter(_loader(Source(), read_options=_NO_THREADS))
    assert it.get_state()
    assert not read
    assert next(it) == 0
    assert read


def test_start_prefetch_reads_before_the_first_element() -> None:
    read = threading.Event()

    class Source:
        def __len__(self) -> int:
            return 3

        def __getitem__(self, index: int) -> int:
            read.set()
            return index

    it = iter(_loader(Source()))
    it.start_prefetch()
    assert read.wait(20)
    it.start_prefetch()
    assert b'"0": -1' in it.get_state()
    assert list(it) == [0, 1, 2]


# Sources.


def test_any_object_with_getitem_is_a_source() -> None:
    for source in ([5, 6, 7], (5, 6, 7), np.array([5, 6, 7]), {0: 5, 1: 6, 2: 7}):
        assert list(_loader(source)) == [5, 6, 7]
    dataset = wg.MapDataset.range(5, 8)
    assert list(_loader(dataset)) == [5, 6, 7]


def test_a_source_that_reads_many_at_once_does() -> None:
    asked: list[int] = []

    class Source:
        def __len__(self) -> int:
            return 100

        def __getitem__(self, index: int) -> int:
            return index

        def __getitems__(self, indices: list[int]) -> list[int]:
            asked.append(len(indices))
            return list(indices)

    sampler = IndexSampler(100, shuffle=True, num_epochs=1, seed=0)
    elements = list(_loader(Source(), sampler=sampler))
    assert elements == [sampler[index].record_key for index in range(100)]
    assert max(asked) > 1


def test_a_source_without_a_length_gets_the_keys_as_they_are() -> None:
    class Squares:
        def __getitem__(self, index: int) -> int:
            return index**2

    for sampler in (IndexSampler(5, num_epochs=1), SequentialSampler(5), _Custom(5)):
        loader = wg.DataLoader(data_source=Squares(), sampler=sampler, shard_options=NoSharding())
        assert list(loader) == [0, 1, 4, 9, 16]


def test_a_sampler_longer_than_the_source_wraps_around_with_a_warning() -> None:
    with pytest.warns(UserWarning, match=r"num_records=7, but len\(source\)=3") as caught:
        loader = _loader([5, 6, 7], sampler=SequentialSampler(7))
    assert caught[0].filename == __file__
    assert list(loader) == [5, 6, 7, 5, 6, 7, 5]


def test_an_empty_source_says_so() -> None:
    for options in (_NO_THREADS, wg.ReadOptions()):
        loader = _loader([], sampler=SequentialSampler(3), read_options=options)
        with pytest.raises(ZeroDivisionError, match="source is empty"):
            next(iter(loader))


def test_a_source_that_fails_to_tell_its_length_is_no_concern_of_the_constructor() -> None:
    class Missing:
        def __len__(self) -> int:
            raise FileNotFoundError("data")

        def __getitem__(self, index: int) -> int:
            return index

    loader = wg.DataLoader(data_source=Missing(), sampler=SequentialSampler(3))
    with pytest.raises(FileNotFoundError):
        next(iter(loader))


def test_stop_iteration_out_of_a_source_ends_the_stream() -> None:
    class Stream:
        def __len__(self) -> int:
            return 10_000_000_000

        def __getitem__(self, index: int) -> int:
            if index >= 3:
                raise StopIteration
            return index

    for options in (_NO_THREADS, wg.ReadOptions()):
        for sampler in (SequentialSampler(10_000_000_000), _Custom(10_000_000_000)):
            loader = wg.DataLoader(
                data_source=Stream(),
                sampler=sampler,
                shard_options=NoSharding(),
                read_options=options,
            )
            it = iter(loader)
            assert list(it) == [0, 1, 2]
            assert next(it, "the end") == "the end"


# Samplers of users.


class _Custom:
    """Reads backwards. It has neither a length nor shard options."""

    def __init__(self, num_records: int) -> None:
        self._num_records = num_records
        self.asked = 0

    def __getitem__(self, index: int) -> wg.RecordMetadata:
        self.asked += 1
        if index >= self._num_records:
            raise IndexError(index)
        return wg.RecordMetadata(index=index, record_key=index)


def test_the_length_of_a_sampler_without_one_is_found_by_asking() -> None:
    for count in (0, 1, 5, 1000):
        sampler = _Custom(count)
        loader = _loader(range(1000), sampler=sampler, shard_options=NoSharding())
        assert sampler.asked <= 65
        assert list(loader) == list(range(count))


def test_an_endless_sampler_without_a_length_works() -> None:
    class Endless:
        def __getitem__(self, index: int) -> wg.RecordMetadata:
            return wg.RecordMetadata(index=index, record_key=-index)

    loader = _loader(range(5), sampler=Endless(), shard_options=NoSharding())
    # Keys are taken modulo the length of the source.
    assert list(itertools.islice(loader, 7)) == [0, 4, 3, 2, 1, 0, 4]


def test_a_sampler_without_shard_options_needs_those_of_the_loader() -> None:
    with pytest.raises(ValueError, match=r"_Custom does not define.*shard_options=NoSharding\(\)"):
        _loader(range(5), sampler=_Custom(5))
    loader = _loader(range(5), sampler=_Custom(5), shard_options=ShardOptions(1, 2))
    assert list(loader) == [1, 3]


def test_a_sampler_may_tell_its_shard_options() -> None:
    sampler = _Custom(6)
    sampler._shard_options = ShardOptions(2, 3)  # type: ignore[attr-defined]
    assert list(_loader(range(6), sampler=sampler)) == [2, 5]


def test_a_sampler_that_names_no_record_is_told_so() -> None:
    class Keyless:
        def __getitem__(self, index: int) -> wg.RecordMetadata:
            return wg.RecordMetadata(index=index)

    loader = _loader(range(5), sampler=Keyless(), shard_options=NoSharding())
    with pytest.raises(ValueError, match="without `record_key`"):
        next(iter(loader))


def test_a_subclass_of_a_sampler_may_name_other_records() -> None:
    class Reversed(SequentialSampler):
        def __getitem__(self, index: int) -> wg.RecordMetadata:
            metadata = super().__getitem__(index)
            metadata.record_key = len(self) - 1 - index
            return metadata

    assert list(_loader(range(4), sampler=Reversed(4))) == [3, 2, 1, 0]


# Arguments.


def test_all_arguments_go_by_name() -> None:
    with pytest.raises(TypeError):
        wg.DataLoader(range(3), SequentialSampler(3))  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("arguments", "kind", "message"),
    [
        ({"worker_count": -1}, ValueError, "`worker_count` cannot be negative, but got -1"),
        ({"worker_count": "2"}, TypeError, "`worker_count` has to be a whole number.*'2'"),
        ({"worker_count": 2.7}, TypeError, r"whole number, but got 2\.7"),
        ({"worker_count": float("inf")}, TypeError, "whole number"),
        ({"worker_buffer_size": -1}, ValueError, "`worker_buffer_size`.*-1"),
        ({"worker_count": 1, "worker_buffer_size": 0}, ValueError, "at least 1 with 1 workers"),
        ({"operations": [wg.transforms.Batch(0)]}, ValueError, "at least one.*batch_size=0"),
        ({"operations": [wg.transforms.Batch(-2)]}, ValueError, "batch_size=-2"),
    ],
)
def test_arguments_that_make_no_sense_are_refused(
    arguments: dict[str, Any], kind: type[Exception], message: str
) -> None:
    with pytest.raises(kind, match=message):
        _loader(range(3), **arguments)


def test_the_options_of_the_workers_are_told() -> None:
    loader = _loader(range(3), worker_count=2, worker_buffer_size=3, enable_profiling=True)
    assert loader.multiprocessing_options == wg.MultiprocessingOptions(2, 3, True)
    assert _loader(range(3)).multiprocessing_options == wg.MultiprocessingOptions(0, 1, False)


@pytest.mark.parametrize(("given", "meant"), [(True, 1), (2.0, 2), (np.int64(2), 2)])
def test_a_number_of_workers_may_be_of_any_kind_that_is_whole(given: Any, meant: int) -> None:
    count = _loader(range(3), worker_count=given).multiprocessing_options.num_workers
    assert (count, type(count)) == (meant, int)


def test_no_number_of_workers_stands_for_the_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 5)
    assert _loader(range(3), worker_count=None).multiprocessing_options.num_workers == 5
    monkeypatch.setattr("os.cpu_count", lambda: None)
    with pytest.raises(ValueError, match="number of processors"):
        _loader(range(3), worker_count=None)


def test_a_buffer_of_zero_is_fine_without_workers() -> None:
    assert list(_loader(range(3), worker_buffer_size=0)) == [0, 1, 2]


def test_the_list_of_operations_is_copied() -> None:
    operations: list[Any] = [_Add(1)]
    loader = _loader(range(3), operations=operations)
    operations.append(_Add(100))
    assert list(loader) == [1, 2, 3]
    assert list(_loader(range(3), operations=iter([_Add(1), _Add(2)]))) == [3, 4, 5]


def test_a_loader_has_neither_a_length_nor_places() -> None:
    loader: Any = _loader(range(3))
    with pytest.raises(TypeError):
        len(loader)
    with pytest.raises(TypeError):
        loader[0]


# Closing.


def test_a_closed_iterator_gives_nothing_but_its_state() -> None:
    it = iter(_loader(range(5), operations=[_Add(1)]))
    assert next(it) == 1
    state = it.get_state()
    it.close()
    it.close()
    with pytest.raises(ValueError, match="closed iterator"):
        next(it)
    assert it.get_state() == state


def test_an_iterator_closes_with_its_block() -> None:
    with iter(_loader(range(5))) as it:
        assert next(it) == 0
    with pytest.raises(ValueError, match="closed iterator"):
        next(it)


def test_threads_end_with_the_iterator() -> None:
    class Waiting:
        def __len__(self) -> int:
            return 1000

        def __getitem__(self, index: int) -> int:
            threading.Event().wait(0.001)
            return index

    def _readers() -> Iterator[threading.Thread]:
        return (t for t in threading.enumerate() if t not in before)

    before = set(threading.enumerate())
    it = iter(_loader(Waiting()))
    for _ in range(100):
        next(it)
    it.close()
    for thread in list(_readers()):
        thread.join(20)
        assert not thread.is_alive()


# One call.


def test_load_makes_a_loader_with_an_index_sampler() -> None:
    loader = wg.load(
        range(6),
        num_epochs=1,
        shuffle=True,
        seed=1,
        transformations=[_Add(10)],
        batch_size=4,
        drop_remainder=True,
        read_options=_NO_THREADS,
    )
    keys = [IndexSampler(6, shuffle=True, num_epochs=1, seed=1)[i].record_key for i in range(4)]
    assert [batch.tolist() for batch in loader] == [[10 + (key or 0) for key in keys]]
    assert b"IndexSampler(num_records=6" in iter(loader).get_state()


def test_load_refuses_an_empty_source() -> None:
    with pytest.raises(ValueError, match="at least one record"):
        wg.load([])
