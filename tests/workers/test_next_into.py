"""Batches are stacked where the consumer will read them, also before stages that only pass them."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import wholegrain as wg
from wholegrain._graph import run
from wholegrain._graph.auto_prefetch import _open_in_worker
from wholegrain._graph.shares import Shares
from wholegrain._graph.span_iterator import reading_spans

_OPTIONS = wg.experimental.DatasetOptions(filter_warn_threshold_ratio=None)


def _batches() -> wg.IterDataset[Any]:
    return wg.MapDataset.range(8).map(lambda n: np.full(9, n)).to_iter_dataset().batch(4)


def _opened(ds: Any) -> Any:
    """Open a pipeline as a worker does."""
    with run.entered(run.RunContext()):
        return ds.__iter__()


@pytest.mark.parametrize(
    "ds",
    [
        _batches(),
        wg.experimental.WithOptionsIterDataset(_batches(), _OPTIONS),
        _batches().seed(1),
        wg.experimental.WithOptionsIterDataset(_batches().seed(1), _OPTIONS),
    ],
    ids=["batch", "options", "seed", "both"],
)
def test_batches_pass_through_options_and_seeds_without_a_copy(ds: Any) -> None:
    given: list[npt.NDArray[Any]] = []

    def empty(shape: tuple[int, ...], dtype: Any) -> npt.NDArray[Any]:
        given.append(np.empty(shape, dtype))
        return given[-1]

    iterator = _opened(ds)
    for number in range(2):
        assert iterator.next_into(empty) is given[number]
        assert given[number][:, 0].tolist() == list(range(4 * number, 4 * number + 4))
    with pytest.raises(StopIteration):
        iterator.next_into(empty)


def test_a_parent_without_batches_gives_its_elements() -> None:
    ds = wg.experimental.WithOptionsIterDataset(wg.MapDataset.range(3).to_iter_dataset(), _OPTIONS)
    iterator = _opened(ds)
    assert [iterator.next_into(np.empty) for _ in range(3)] == [0, 1, 2]


_SIDE = 400  # An element has 160 kB, so a batch of four is worth a read of its own.


def _image(number: int) -> dict[str, Any]:
    return {"image": np.full((_SIDE, _SIDE), number, np.uint8), "label": number}


def _map_batches() -> wg.MapDataset[Any]:
    return wg.MapDataset.range(80).map(_image).batch(4)


class _Slots:
    """Memory that a worker gives to its pipeline."""

    def __init__(self) -> None:
        self.given: list[npt.NDArray[Any]] = []

    def empty(self, shape: tuple[int, ...], dtype: Any) -> npt.NDArray[Any]:
        self.given.append(np.empty(shape, dtype))
        return self.given[-1]

    def has(self, array: npt.NDArray[Any]) -> bool:
        return any(array is one for one in self.given)


_MAP_PIPELINES: dict[str, Callable[[], wg.MapDataset[Any]]] = {
    "batch": _map_batches,
    "shuffle": lambda: _map_batches().shuffle(seed=1),
    "repeat": lambda: _map_batches().repeat(2),
    "slice": lambda: _map_batches()[3:17],
    "seed": lambda: _map_batches().seed(3),
}


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("name", _MAP_PIPELINES)
def test_batches_of_a_map_dataset_are_stacked_in_their_slot(name: str, count: int) -> None:
    ds = _MAP_PIPELINES[name]().to_iter_dataset(wg.ReadOptions(0, 0))
    expected = list(ds)[::count]
    worker: Any = Shares(ds, count, False).open_in_worker(run.RunContext(), 0, count)
    slots = _Slots()
    stacked = 0
    for batch in expected:
        found = worker.next_into(slots.empty)
        np.testing.assert_equal(found, batch)
        stacked += slots.has(found["image"])
    assert stacked >= len(expected) - 2  # The first ones tell that batches are large.
    with pytest.raises(StopIteration):
        worker.next_into(slots.empty)


def test_auto_workers_stack_them_in_their_slot_too() -> None:
    ds = _map_batches().to_iter_dataset(wg.ReadOptions(0, 0))
    worker: Any = _open_in_worker(reading_spans(ds), run.RunContext(), 0, 1)
    slots = _Slots()
    found = []
    for start in (0, 10):
        worker.set_state(({"next_index": start}, 10, False, False))
        found += [worker.next_into(slots.empty) for _ in range(10)]
    for batch, expected in zip(found, ds, strict=True):
        np.testing.assert_equal(batch, expected)
    assert sum(slots.has(batch["image"]) for batch in found) >= 18


@pytest.mark.parametrize(
    "ds",
    [
        _map_batches().map(lambda batch: batch),
        wg.MapDataset.range(80).map(_image).batch(4, batch_fn=lambda elements: elements[0]),
        wg.MapDataset.range(80).map(_image),
    ],
    ids=["mapped", "batch_fn", "no batch"],
)
def test_other_elements_are_not_made_in_a_slot(ds: wg.MapDataset[Any]) -> None:
    assert not ds.stacks
    assert not hasattr(_opened(ds.to_iter_dataset()), "next_into")


def test_threads_read_ahead_in_their_own_memory() -> None:
    def slow(number: int) -> dict[str, Any]:
        time.sleep(0.001)
        return _image(number)

    ds = wg.MapDataset.range(80).map(slow).batch(4).to_iter_dataset(wg.ReadOptions(4, 8))
    iterator, slots = _opened(ds), _Slots()
    try:
        found = [iterator.next_into(slots.empty) for _ in range(20)]
    finally:
        iterator.close()
    assert [batch["label"].tolist() for batch in found] == np.arange(80).reshape(20, 4).tolist()
    assert all((batch["image"][:, 0, 0] == batch["label"]).all() for batch in found)


@pytest.mark.parametrize("workers", [1, 2, "auto"])
def test_an_error_in_a_batch_is_the_same_and_no_function_runs_twice(
    workers: Any, tmp_path: Path
) -> None:
    def fails(number: int) -> dict[str, Any]:
        with (tmp_path / str(number)).open("a") as calls:
            calls.write(".")
        if number in (21, 50):
            raise ValueError(f"{number} is no good")
        return _image(number)

    ds = wg.MapDataset.range(80).map(fails).batch(4).to_iter_dataset(wg.ReadOptions(0, 0))

    def walk(it: Any) -> list[str]:
        found = []
        for _ in range(100):
            try:
                found.append(str(next(it)["label"]))
            except StopIteration:
                break
            except ValueError as error:
                notes = [note for note in error.__notes__ if "raised this" not in note]
                found.append("\n".join([str(error), *notes]))
        it.close()
        return found

    found = walk(iter(ds.mp_prefetch(wg.MultiprocessingOptions(num_workers=workers))))
    calls = [(tmp_path / str(number)).read_text() for number in range(80)]
    assert set(calls) == {"."}
    assert found == walk(iter(ds))
    assert len(found) == 20
