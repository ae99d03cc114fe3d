"""States that are damaged, or of another pipeline: refused, or taken for what they may be."""

import copy
import json
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import wholegrain as wg
from tests.checkpoint.mutations import mutations, some_of, text_mutations
from tests.checkpoint.pipelines import PIPELINES, WORKERS, R, loader, opened, options, read
from tests.sources.files import records, table, write_parquet, write_tfrecord
from wholegrain import experimental as X
from wholegrain._core.difference import difference

_END = "the end"


def as_json(state: Any) -> Any:
    """Return a state as a dict that was read from JSON."""
    return json.loads(state if isinstance(state, bytes) else json.dumps(state))


STATES = {name: as_json(opened(make(), 4).get_state()) for name, make in PIPELINES.items()}


def set_state(it: Any, state: Any) -> None:
    if isinstance(it.get_state(), bytes) and not isinstance(state, bytes):
        state = json.dumps(state, default=repr).encode()
    it.set_state(copy.deepcopy(state))


def following(it: Any) -> list[Any]:
    return [next(it, _END) for _ in range(3)]


def error_of(function: Callable[[], Any]) -> Exception | None:
    try:
        function()
    except Exception as error:
        return error
    return None


def check_unharmed(it: Any, states: list[Any]) -> int:
    """Give an iterator states that may be wrong; return how many were refused.

    Where one is refused, the iterator stands where it stood. Where one is taken, what follows
    are elements or a refusal, and the iterator is of use afterwards.
    """
    refused = 0
    good = as_json(it.get_state())
    expected = following(it)
    set_state(it, good)
    for state in states:
        error = error_of(lambda: set_state(it, state))  # noqa: B023
        if error is None:
            later = error_of(lambda: following(it))
            assert later is None or isinstance(later, ValueError), (state, later)
            set_state(it, good)
        else:
            refused += 1
            assert isinstance(error, ValueError), (state, error)
            assert len(str(error)) > 30, (state, error)
        assert difference(expected, following(it)) is None, state
        set_state(it, good)
    return refused


def check(pipeline: Any, steps: int, count: int | None = None) -> None:
    """Check what a pipeline makes of all changes of its state, or of so many of them."""
    it = opened(pipeline, steps)
    good = as_json(it.get_state())
    others = [{"next_index": 1}, good, *(list(good.values()) if isinstance(good, dict) else ())]
    states = mutations(good, others)
    chosen = list(states) if count is None else some_of(states, count, steps)
    refused = check_unharmed(it, [*chosen, *(s for s in STATES.values() if s != good)])
    assert refused > len(chosen) // 3
    it.close()


@pytest.mark.parametrize("steps", [0, 4])
@pytest.mark.parametrize("name", PIPELINES)
def test_a_changed_state_is_refused_and_the_iterator_stands_where_it_stood(
    name: str, steps: int
) -> None:
    check(PIPELINES[name](), steps, 1500)


def tokens(x: int) -> dict[str, Any]:
    return {"x": [x] * (1 + x % 3)}


PACKED: dict[str, Any] = {"length_struct": {"x": 4}, "num_packing_bins": 3}

MORE: dict[str, Callable[[], Any]] = {
    "many stages": lambda: X.WindowShuffleIterDataset(
        X.RebatchIterDataset(read().map(lambda x: x + 1).batch(2), 3), window_size=3, seed=2
    ).random_map(lambda x, rng: x + rng.random(), seed=2),
    "best fit": lambda: X.BestFitPackIterDataset(
        read(R(40).map(tokens)), **PACKED, seed=1, shuffle_bins=True
    ),
    "mix by index": lambda: wg.MapDataset.mix(
        [R(20), R(30).shuffle(seed=1)], [1, 2]
    ).to_iter_dataset(),
    "endless": lambda: R(9).shuffle(seed=3).repeat().batch(2).to_iter_dataset(),
    "flat map by index": lambda: read(X.FlatMapMapDataset(R(40), _Parts())),
    "zip of windows": lambda: X.ZipIterDataset(
        [X.WindowShuffleIterDataset(read(), window_size=4, seed=s) for s in range(2)]
    ),
    "mix of windows": lambda: wg.IterDataset.mix(
        {
            "a": X.WindowShuffleIterDataset(read(), window_size=4, seed=1),
            "b": X.RebatchIterDataset(read().batch(2), 3),
        }
    ),
    "windows interleaved": lambda: X.InterleaveIterDataset(
        [X.WindowShuffleIterDataset(read(R(9)), window_size=4, seed=s) for s in range(5)],
        cycle_length=3,
    ),
    "thread over a window": lambda: X.ThreadPrefetchIterDataset(
        X.WindowShuffleIterDataset(read(), window_size=4, seed=1), prefetch_buffer_size=3
    ),
    "elastic interleave": lambda: X.ElasticIterator(
        X.InterleaveIterDataset([read(R(n)) for n in (5, 7, 9)], cycle_length=2),
        2,
        wg.sharding.ShardOptions(0, 1),
    ),
    "loader of a shard": lambda: wg.DataLoader(
        data_source=range(40),
        sampler=wg.samplers.SequentialSampler(40, wg.sharding.ShardOptions(1, 3)),
        operations=[wg.transforms.Batch(2)],
    ),
}


class _Parts(wg.transforms.FlatMap):
    max_fan_out = 2

    def flat_map(self, element: int) -> list[int]:
        return [element] * (element % 3)


@pytest.mark.parametrize("name", MORE)
def test_so_it_is_where_stages_are_combined(name: str) -> None:
    check(MORE[name](), 3, 1500)


@pytest.mark.parametrize("compress", [False, True])
def test_so_it_is_in_tfrecord_files(compress: bool, tmp_path: Path) -> None:
    file = write_tfrecord(tmp_path / "a.tfrecord", records(20))
    if compress:
        file.write_bytes(zlib.compress(file.read_bytes()))
    check(X.TFRecordIterDataset(file), 4)
    it = opened(X.TFRecordIterDataset(file), 4)
    offset = it.get_state()["reader_offset"]
    check_unharmed(it, [{"reader_offset": offset + by} for by in range(-9, 10)])
    with pytest.raises(ValueError, match=r"no record of .*a\.tfrecord' starts at byte 7"):
        it.set_state({"reader_offset": 7})
    end = sum(16 + len(record) for record in records(20))
    it.set_state({"reader_offset": end})
    assert next(it, _END) == _END
    for beyond in (end + 1, end * 10):
        with pytest.raises(ValueError, match="no record of"):
            it.set_state({"reader_offset": beyond})


def test_so_it_is_in_parquet_files(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    files = [
        write_parquet(tmp_path / f"{n}.parquet", table({"x": list(range(10))})) for n in range(3)
    ]
    check(X.ParquetIterDataset(str(files[0])), 5)
    check(X.ParquetIterDataset([str(file) for file in files]), 5, 800)
    it = iter(X.ParquetIterDataset(str(files[0])))
    it.set_state({"row_group": 2, "index_within_row_group": 1})
    assert [row["x"] for row in it] == [9]
    for group, index in ((3, 0), (2, 3), (0, 5)):
        with pytest.raises(
            ValueError, match=rf"no row {index} in .*0\.parquet', row group {group}"
        ):
            it.set_state({"row_group": group, "index_within_row_group": index})


@pytest.mark.parametrize("name", WORKERS)
def test_so_it_is_with_worker_processes(name: str) -> None:
    check(WORKERS[name](), 4, 150)


def test_so_it_is_with_any_number_of_worker_processes() -> None:
    check(read().map(abs).batch(2).mp_prefetch(wg.MultiprocessingOptions("auto")), 4, 150)
    check(loader("auto"), 4, 150)


@pytest.mark.parametrize("name", ["loader", "loader with a flat map"])
def test_bytes_of_a_loader_that_were_changed_are_refused(name: str) -> None:
    it = opened(PIPELINES[name](), 4)
    texts = list(text_mutations(it.get_state(), 600, 1))
    assert check_unharmed(it, texts) > 300
    with pytest.raises(ValueError, match=r"the text that `get_state` returned.*utf-8"):
        it.set_state(b"\xff\xfe")
    with pytest.raises(ValueError, match=r"the text that `get_state` returned.*Expecting value"):
        it.set_state(b"[1, nothing]")


def test_a_loaders_record_of_another_shard_is_noticed() -> None:
    it = opened(MORE["loader of a shard"](), 1)
    state = as_json(it.get_state())
    assert state["last_seen_indices"] == {"0": 4}
    for seen in (3, 5, 6):
        with pytest.raises(ValueError, match=f"cannot have seen the record at {seen}.*every 3th"):
            it.set_state({**state, "last_seen_indices": {"0": seen}})
    it.set_state({**state, "last_seen_indices": {"0": 7}})


def test_the_state_of_another_number_of_workers_says_so() -> None:
    window: Any = X.WindowShuffleIterDataset(read(), window_size=6, seed=1)
    with opened(window.mp_prefetch(options(2)), 3) as two:
        state = as_json(two.get_state())
    message = "taken with 2 workers, but here are 3"
    with (
        opened(window.mp_prefetch(options(3)), 3) as three,
        pytest.raises(ValueError, match=message),
    ):
        three.set_state(state)
    with pytest.raises(ValueError, match="is not one of WindowShuffleDatasetIterator: it lacks"):
        iter(window).set_state(state)


class _Counting(wg.DatasetIterator[Any]):
    """Stands between two stages and counts how often a state is checked."""

    checks = 0

    def __init__(self, parent: Any) -> None:
        super().__init__(parent)

    def __next__(self) -> Any:
        return next(self._parent)

    def get_state(self) -> Any:
        return self._parent.get_state()

    def set_state(self, state: Any) -> None:
        self._parent.set_state(state)

    def check_state(self, state: Any) -> None:
        type(self).checks += 1
        self._parent.check_state(state)


class _CountingDataset(wg.IterDataset[Any]):
    def __init__(self, parent: Any) -> None:
        super().__init__(parent)

    def __iter__(self) -> Any:
        return _Counting(self._parent.__iter__())


def test_a_state_is_checked_as_often_however_many_stages_there_are() -> None:
    counts = []
    for stages in (1, 10):
        ds: Any = _CountingDataset(read())
        for _ in range(stages):
            ds = X.LimitIterDataset(ds, 30)
        it = opened(ds, 3)
        _Counting.checks = 0
        it.set_state(it.get_state())
        counts.append(_Counting.checks)
    assert counts[0] == counts[1]
