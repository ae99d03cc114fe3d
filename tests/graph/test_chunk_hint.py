"""How many elements should be read together follows from how many datasets they come from."""

from typing import Any

import numpy as np
import pytest

import wholegrain as wg
from tests.graph.tools import R


def test_each_component_of_a_mixture_should_have_several() -> None:
    ten = wg.MapDataset.mix([R(100) for _ in range(10)])
    assert R(5).shuffle(seed=1).chunk_hint == 1
    assert ten.chunk_hint >= 100
    assert ten.shuffle(seed=1).map(abs).chunk_hint == ten.chunk_hint
    assert wg.MapDataset.mix([ten, ten]).chunk_hint == 2 * ten.chunk_hint
    assert ten.batch(50).chunk_hint < ten.chunk_hint


@pytest.mark.parametrize("batch_size", [None, 3, 40])
def test_mixtures_of_many_give_what_they_give_one_by_one(batch_size: int | None) -> None:
    parts = [R(1000 * i, 1000 * i + 40).shuffle(seed=i).repeat() for i in range(300)]
    ds: Any = wg.MapDataset.mix(parts, [1 + i % 5 for i in range(300)])
    if batch_size is not None:
        ds = ds.batch(batch_size)
    it = iter(ds.to_iter_dataset())
    for index in range(3000):
        assert np.array_equal(next(it), ds[index])
        if index % 100 == 0:
            assert it.get_state() == {"next_index": index + 1}
    it.close()
