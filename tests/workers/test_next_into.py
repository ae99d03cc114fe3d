"""Batches are stacked where the consumer will read them, also before stages that only pass them."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import wholegrain as wg
from wholegrain._graph import run

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
