"""`it.provenance`: which records an element was made from."""

import copy
import itertools
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import wholegrain as wg
from tests.graph.traced_pipelines import id_of, places_of, random_pipeline, source

X: Any = wg.experimental
_MOST = 40


def _plainly(choose: random.Random, ds: Any) -> Any:
    return ds


def _in_threads(choose: random.Random, ds: Any) -> Any:
    return X.multithread_prefetch(ds, 2, 1, sequential_slice=choose.random() < 0.3)


def _in_lanes(choose: random.Random, ds: Any) -> Any:
    return ds.mp_prefetch(wg.MultiprocessingOptions(0, lanes=choose.choice([2, 3])))


def _in_workers(choose: random.Random, ds: Any) -> Any:
    return ds.mp_prefetch(wg.MultiprocessingOptions(2))


def _told(origins: list[wg.Origin]) -> set[Any]:
    return {(id_of(origin), origin.row, origin.span) for origin in origins}


def _check_each_step(ds: Any, choose: random.Random) -> None:
    it = iter(ds)
    expected = []
    for element in itertools.islice(it, _MOST):
        # The memory of an element may be used again for a later one.
        expected.append(set(places_of(copy.deepcopy(element))))
        assert _told(it.provenance()) == expected[-1], f"the last element, {len(expected) - 1}"
    state = it.get_state()
    for step in choose.sample(range(len(expected)), min(6, len(expected))):
        assert _told(it.provenance(step)) == expected[step], f"step {step}"
    assert it.get_state() == state
    it.close()


@given(seed=st.integers(0, 2**32), run=st.sampled_from([_plainly, _in_threads, _in_lanes]))
@settings(max_examples=60)
def test_origins_are_what_elements_say_of_themselves(seed: int, run: Any) -> None:
    try:
        ds = random_pipeline(seed, run)
    except ValueError:  # It cannot be divided among workers.
        ds = random_pipeline(seed, _plainly)
    _check_each_step(ds, random.Random(seed))


@pytest.mark.parametrize("seed", range(3))
def test_origins_pass_through_workers(seed: int) -> None:
    seeds = (100 * seed + n for n in itertools.count())
    ds = next(filter(None, (_or_none(n) for n in seeds)))
    _check_each_step(ds, random.Random(seed))


def _or_none(seed: int) -> Any:
    try:
        return random_pipeline(seed, _in_workers)
    except ValueError:
        return None  # Not every pipeline can be divided among workers.


def test_auto_workers_have_the_origins_of_the_pipeline() -> None:
    ds = source("a", 40).shuffle(seed=1).batch(4).to_iter_dataset()
    _check_each_step(ds.mp_prefetch(wg.MultiprocessingOptions("auto")), random.Random(0))


class _Halves(wg.transforms.FlatMap):
    max_fan_out = 2

    def flat_map(self, element: int) -> list[int]:
        return [element] * 2


class _Odd(wg.transforms.Filter):
    def filter(self, element: int) -> bool:
        return element % 2 == 1


class _Noise(wg.transforms.RandomMap):
    def random_map(self, element: int, rng: np.random.Generator) -> int:
        return element + 1000 * int(rng.integers(10))


@pytest.mark.parametrize(
    ("middle", "workers"),
    [([], 0), ([_Odd()], 0), ([_Noise()], 2), ([_Halves(), _Odd()], 0), ([_Halves(), _Odd()], 2)],
)
def test_a_data_loader_tells_the_origins_of_its_batches(middle: list[Any], workers: int) -> None:
    loader = wg.DataLoader(
        data_source=range(30),
        sampler=wg.samplers.IndexSampler(30, shuffle=True, num_epochs=2, seed=3),
        operations=[*middle, wg.transforms.Batch(4)],
        worker_count=workers,
    )
    it = iter(loader)
    batches = list(itertools.islice(it, 6))
    for step, batch in enumerate(batches):
        origins = it.provenance(step)
        assert [origin.index for origin in origins] == [int(x) % 1000 for x in batch]
        assert [origin.row for origin in origins] == list(range(len(batch)))
    assert it.provenance() == it.provenance(5)


class _Pairs:
    """An older operation: the sums of two records, each of them twice."""

    def __call__(self, input_iterator: Any) -> Any:
        for record in input_iterator:
            other = next(input_iterator)
            for _ in range(2):
                yield wg.Record(record.metadata, record.data + other.data)


@pytest.mark.parametrize("workers", [0, 2])
def test_older_operations_tell_which_records_they_have_read(workers: int) -> None:
    sampler = wg.samplers.IndexSampler(12, shuffle=True, num_epochs=1, seed=3)
    loader = wg.DataLoader(
        data_source=range(12), sampler=sampler, operations=[_Pairs()], worker_count=workers
    )
    it = iter(loader)
    elements = []
    for element in it:
        elements.append(element)
        assert sum(origin.index for origin in it.provenance()) == element
    assert len(elements) == 12
    for step in (0, 7):
        assert sum(origin.index for origin in it.provenance(step)) == elements[step]
        assert len(it.provenance(step)) == 2


def test_epochs_are_counted() -> None:
    it = iter(wg.MapDataset.range(3).shuffle(seed=1).repeat(2))
    epochs = [it.provenance()[0].epoch for _ in it]
    assert epochs == [0, 0, 0, 1, 1, 1]
    it = iter(X.RepeatIterDataset(wg.MapDataset.range(2).to_iter_dataset(), 3))
    assert [it.provenance()[0].epoch for _ in it] == [0, 0, 1, 1, 2, 2]


def test_sources_with_the_same_label_are_numbered() -> None:
    mixed = wg.MapDataset.mix([wg.MapDataset.source([1, 2]), wg.MapDataset.source([3, 4])])
    it = iter(mixed)
    assert [it.provenance()[0].source for _ in it] == ["source(list)", "source(list) (2)"] * 2


def test_features_with_other_spans_have_origins_of_their_own() -> None:
    elements = [{"x": np.full(2, n), "y": np.full(1, n), "z": np.full(2, n)} for n in range(4)]
    lengths = {"x": 4, "y": 4, "z": 4}
    ds = X.FirstFitPackIterDataset(
        wg.MapDataset.source(elements).to_iter_dataset(), length_struct=lengths, num_packing_bins=1
    )
    it = iter(ds)
    next(it)
    told = [(one.index, one.feature, one.span) for one in it.provenance()]
    assert told == [
        (0, "x", (0, 2)),
        (0, "y", (0, 1)),
        (1, "x", (2, 4)),
        (1, "y", (1, 2)),
    ]


def test_the_last_element_needs_no_known_step() -> None:
    ds = source("a", 40).to_iter_dataset().filter(lambda x: x % 3 > 0).batch(2)
    it = iter(ds)
    elements = list(itertools.islice(it, 5))
    again = iter(ds)
    again.set_state(it.get_state())
    assert _step(again) is None
    with pytest.raises(ValueError, match="no last element"):
        again.provenance()
    following = next(again)
    assert _told(again.provenance()) == set(places_of(following))
    again.step = 6
    assert _step(again) == 6
    assert _told(again.provenance(2)) == set(places_of(elements[2]))
    with pytest.raises(ValueError, match="is at step 6"):
        again.step = 7
    with pytest.raises(IndexError, match="There is no step 1000"):
        again.provenance(1000)


def _step(it: Any) -> Any:
    return it.step  # A type checker would take it to be what was assigned, or None.


def test_a_restored_state_tells_the_step_if_positions_are_arithmetic() -> None:
    ds = source("a", 40).shuffle(seed=2).to_iter_dataset().batch(3)
    it = iter(ds)
    elements = list(itertools.islice(it, 5))
    again = iter(ds)
    again.set_state(it.get_state())
    assert again.step == 5
    assert _told(again.provenance()) == set(places_of(elements[4]))
    assert _told(again.provenance(1)) == set(places_of(elements[1]))
    with pytest.raises(IndexError, match="the pipeline has 14 steps"):
        again.provenance(14)


def test_only_the_records_of_the_step_are_read() -> None:
    class Counting(list[int]):
        reads = 0

        def __getitem__(self, index: Any) -> Any:
            Counting.reads += 1
            return super().__getitem__(index)

    data = Counting(range(10_000))
    it = iter(wg.MapDataset.source(data).shuffle(seed=1).to_iter_dataset().batch(4))
    Counting.reads = 0
    assert len(it.provenance(2000)) == 4
    assert Counting.reads < 20


def test_a_dataset_that_nobody_taught_says_how() -> None:
    class Twice(wg.IterDataset[int]):
        def __iter__(self) -> Any:
            return iter(self._parent)

    it = iter(Twice(source("a", 5).to_iter_dataset()).map(lambda x: x))
    next(it)
    with pytest.raises(NotImplementedError, match="only_chooses = True` in the class Twice"):
        it.provenance()
    Twice.only_chooses = True
    assert it.provenance()[0].index == 0


def test_a_source_that_is_read_in_order_counts_its_elements(tmp_path: Path) -> None:
    class Numbers(wg.IterDataset[int]):
        def __iter__(self) -> Any:
            return _Numbers()

    class _Numbers(wg.DatasetIterator[int]):
        position = 0

        def __next__(self) -> int:
            self.position += 1
            return self.position

        def get_state(self) -> dict[str, Any]:
            return {"position": self.position}

        def set_state(self, state: dict[str, Any]) -> None:
            self.position = state["position"]

    ds = Numbers().filter(lambda x: x % 2 == 0).batch(2)
    it = iter(ds)
    for _ in range(4):
        next(it)
    assert [origin.index for origin in it.provenance()] == [13, 15]
    assert [origin.index for origin in it.provenance(1)] == [5, 7]


def test_steps_are_checked() -> None:
    it = iter(source("a", 5).to_iter_dataset())
    with pytest.raises(ValueError, match="no last element"):
        it.provenance()
    with pytest.raises(ValueError, match="count from 0"):
        it.provenance(-1)
    with pytest.raises(TypeError, match="step"):
        it.provenance("3")  # type: ignore[arg-type]


@pytest.mark.parametrize("remainder", ["drop", "pad"])
@pytest.mark.parametrize("rows", [1, 2])
@pytest.mark.parametrize("host", [0, 1])
def test_the_lanes_of_a_host_tell_the_origins_of_its_rows(
    remainder: Any, rows: int, host: int
) -> None:
    ds = source("a", 37).shuffle(seed=1).to_iter_dataset().filter(lambda x: x % 4 > 0)
    shard = wg.sharding.ShardOptions(host, 2)
    elastic = X.ElasticIterator(ds, 4 * rows, shard, lanes=4, remainder=remainder, steps="count")
    for _ in range(2):
        it = iter(elastic)
        for element in it:
            batch, mask = element if remainder == "pad" else (element, [True] * len(element))
            told = [(id_of(one), one.row) for one in it.provenance()]
            assert told == [(int(x), row) for row, x in enumerate(batch) if mask[row]]


def test_elements_that_failed_do_not_shift_origins() -> None:
    def fail_on_some(element: int) -> int:
        if element % 7 == 3:
            raise ValueError(element)
        return element

    ds = source("a", 60).to_iter_dataset().map(fail_on_some).filter(lambda x: x % 2 > 0)
    it = iter(ds)
    found = []
    while True:
        try:
            found.append(next(it))
        except ValueError:
            continue
        except StopIteration:
            break
        assert id_of(it.provenance()[0]) == found[-1]
    assert [id_of(it.provenance(step)[0]) for step in range(len(found))] == found
    plain = iter(source("a", 60).map(fail_on_some).to_iter_dataset())
    with pytest.raises(ValueError, match="3"):
        plain.provenance(2)  # The step itself fails.


def _fails_now_and_then(x: int) -> int:
    if x % 7 == 3:
        raise ValueError("a broken record")
    return x


@pytest.mark.parametrize("num_workers", [0, 2, "auto"])
def test_failures_that_an_iterator_leaves_out_keep_their_origins_apart(num_workers: Any) -> None:
    ds: Any = wg.MapDataset.range(40).shuffle(seed=1).to_iter_dataset().map(_fails_now_and_then)
    ds = ds.on_error("skip")
    if num_workers:
        ds = ds.mp_prefetch(wg.MultiprocessingOptions(num_workers=num_workers))
    with iter(ds) as it:
        for element in it:
            assert [origin.index for origin in it.provenance()] == [element]
        assert len(it.errors()) == 6  # Asking for origins counts none of them again.


def _mark(error: Exception, record: wg.FailedRecord) -> int:
    return -1


@pytest.mark.parametrize("num_workers", [0, 2, "auto"])
def test_substitutes_of_a_map_dataset_have_origins(num_workers: Any) -> None:
    for policy in ("skip", "replace", _mark):
        ds: Any = wg.MapDataset.range(40).shuffle(seed=1).map(_fails_now_and_then).on_error(policy)
        whole = list(wg.MapDataset.range(40).shuffle(seed=1))
        ds = ds.to_iter_dataset()
        if num_workers:
            ds = ds.mp_prefetch(wg.MultiprocessingOptions(num_workers=num_workers))
        with iter(ds) as it:
            for step, element in enumerate(it):
                # What a function returns has the origin of the record that failed.
                expected = whole[step] if element == -1 else element
                assert [origin.index for origin in it.provenance()] == [expected]
            assert len(it.errors()) == 6
    stream = wg.MapDataset.range(9).to_iter_dataset().map(_fails_now_and_then).on_error(_mark)
    it = iter(stream)
    assert [[origin.index for origin in it.provenance()] for _ in it][2:5] == [[2], [], [4]]


def test_the_rows_of_a_host_of_bucket_have_origins() -> None:
    ds = wg.MapDataset.range(1, 40).shuffle(seed=1).to_iter_dataset()
    loaded = ds.bucket(
        lambda x: x % 9,
        [4, 8],
        batch_sizes=[4, 6],
        remainder="pad",
        shard_options=wg.sharding.ShardOptions(1, 2),
        load=lambda x: {"x": np.full(x % 9, x), "id": x},
    )
    it = iter(loaded)
    for batch in it:
        told = [(origin.index + 1, origin.row) for origin in it.provenance()]
        assert told == [(int(x), n) for n, x in enumerate(batch["id"]) if batch["mask"][n]]


def test_a_cache_on_disk_has_the_origins_of_what_it_keeps(tmp_path: Any) -> None:
    cached = wg.MapDataset.range(9).map(lambda x: 2 * x).cache(tmp_path / "cache")
    ds = cached.repeat(2).shuffle(seed=3).to_iter_dataset()
    for _ in range(2):  # From the functions, and then from the disk.
        with iter(ds) as it:
            for element in it:
                assert [2 * origin.index for origin in it.provenance()] == [element]
