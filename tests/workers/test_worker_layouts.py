"""Layouts of elements that could not be sent."""

import threading
from typing import Any

import pytest

import wholegrain as wg


@pytest.mark.parametrize("workers", [1, "auto"])
def test_an_element_after_one_that_cannot_be_sent_arrives(workers: Any) -> None:
    def element(number: int) -> Any:
        return [{"a": threading.Lock()}, 5, {"a": "x"}][number]

    ds = wg.MapDataset.range(3).map(element).to_iter_dataset()
    it = iter(ds.mp_prefetch(wg.MultiprocessingOptions(num_workers=workers)))
    with pytest.raises(Exception, match="pickle"):
        next(it)
    assert list(it) == [5, {"a": "x"}]
    it.close()
