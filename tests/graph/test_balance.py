"""`balance`: hosts have about the same work in every step."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import wholegrain as wg
from wholegrain.experimental import ElasticIterator
from wholegrain.sharding import ShardOptions

LENGTHS = np.random.default_rng(0).lognormal(5, 1, 2048).astype(int)


def cost_of(element: int) -> int:
    return int(LENGTHS[element])


def steps_of(ds: Any, hosts: int, lanes: int | None, batch: int = 64) -> list[list[list[int]]]:
    """Return the elements of each step and host."""
    columns = [
        [
            part.tolist()
            for part in ElasticIterator(ds, batch, ShardOptions(host, hosts), lanes=lanes)
        ]
        for host in range(hosts)
    ]
    return [list(step) for step in zip(*columns, strict=True)]


def unevenness(steps: list[list[list[int]]]) -> float:
    """Return by how much the slowest host of a step exceeds the mean, over all steps."""
    costs = np.array([[sum(map(cost_of, part)) for part in step] for step in steps])
    return float(costs.max(1).sum() / costs.mean(1).sum() - 1)


@pytest.mark.parametrize("lanes", [None, 8])
@pytest.mark.parametrize("cost", [cost_of, LENGTHS])
def test_the_hosts_of_a_step_have_even_costs(cost: Any, lanes: int | None) -> None:
    plain = wg.MapDataset.range(2048).seed(1).shuffle()
    hosts = 4
    ds = plain.balance(cost, batch_size=64, ways=lanes or hosts)
    before, after = steps_of(plain, hosts, lanes), steps_of(ds, hosts, lanes)
    assert unevenness(before) > 0.2
    assert unevenness(after) < 0.02
    rows = [row for step in after for part in step for row in part]
    assert sorted(rows) == list(range(2048))


def test_the_global_batches_do_not_depend_on_the_number_of_hosts() -> None:
    ds = wg.MapDataset.range(2048).seed(1).shuffle().balance(cost_of, batch_size=64, ways=8)

    def joined(hosts: int) -> list[list[int]]:
        return [[row for part in step for row in part] for step in steps_of(ds, hosts, 8)]

    assert joined(1) == joined(2) == joined(4)


@settings(max_examples=40)
@given(
    length=st.integers(1, 200),
    ways=st.integers(1, 4),
    rows=st.integers(1, 4),
    window=st.integers(1, 5),
    seed=st.integers(0, 99),
)
def test_an_epoch_has_every_element_once_in_every_way_of_reading(
    length: int, ways: int, rows: int, window: int, seed: int
) -> None:
    plain = wg.MapDataset.range(length).seed(seed).shuffle()
    ds = plain.balance(cost_of, batch_size=ways * rows, ways=ways, window=window)
    for epoch in range(2):
        places = range(epoch * length, (epoch + 1) * length)
        elements = [ds[place] for place in places]
        assert sorted(elements) == list(range(length))
        assert list(ds.getitems(np.array(places))) == elements
        size = ways * rows * window
        for start in range(0, length, size):  # Elements stay in their window.
            there = [plain[epoch * length + at] for at in range(start, min(start + size, length))]
            assert sorted(there) == sorted(elements[start : start + size])


def test_workers_and_restores_give_the_same_elements() -> None:
    ds = wg.MapDataset.range(500).balance(cost_of, batch_size=20, ways=4).to_iter_dataset()
    expected = list(ds)
    for workers in (2, "auto"):
        options = wg.MultiprocessingOptions(num_workers=workers)
        assert list(ds.mp_prefetch(options)) == expected
    it = iter(ds)
    assert [next(it) for _ in range(123)] == expected[:123]
    other = iter(ds)
    other.set_state(it.get_state())
    assert list(other) == expected[123:]


def test_wrong_arguments_are_refused() -> None:
    ds = wg.MapDataset.range(10)
    with pytest.raises(ValueError, match="positive multiple"):
        ds.balance(cost_of, batch_size=10, ways=4)
    with pytest.raises(TypeError, match="`cost` is a function"):
        ds.balance(3, batch_size=10, ways=5)  # type: ignore[arg-type]
