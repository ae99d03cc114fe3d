"""Functions that change elements in place, and an error behind them."""

import numpy as np
import numpy.typing as npt

import wholegrain as wg


class Counts:
    """A source whose elements are arrays of their own each time they are read."""

    def __len__(self) -> int:
        return 6

    def __getitem__(self, index: int) -> npt.NDArray[np.int64]:
        return np.array([index, 0])


def count(element: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    element[1] += 1
    return element


def fail_at_one(element: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    if element[0] == 1:
        raise KeyError("one")
    return element


def test_elements_behind_one_that_failed_went_through_each_stage_once() -> None:
    ds = wg.MapDataset.source(Counts()).to_iter_dataset().map(count).map(fail_at_one)
    it = iter(ds.batch(2, batch_fn=np.stack))
    found: list[object] = []
    while True:
        try:
            found.append(next(it).tolist())
        except KeyError:
            found.append("failed")
        except StopIteration:
            break
    assert found == ["failed", [[2, 1], [3, 1]], [[4, 1], [5, 1]]]
    assert it.get_state() == {"next_index": 6}
