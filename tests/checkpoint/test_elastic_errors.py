"""`on_error` in an ElasticIterator: the same global batches for any number of hosts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import wholegrain as wg
from tests.graph.failing import Broken, FailsFor
from wholegrain.experimental import ElasticIterator
from wholegrain.sharding import ShardOptions

BROKEN = frozenset({3, 57, 58, 59, 100})
BAD = BROKEN | {0, 60}


def hosts(policy: Any, count: int, workers: int, batch: int = 8) -> list[Any]:
    ds = wg.MapDataset.source(Broken(128, BROKEN)).map(FailsFor(0, 60)).on_error(policy)
    options = wg.MultiprocessingOptions(num_workers=workers) if workers else None
    return [
        ElasticIterator(
            ds,
            batch,
            ShardOptions(host, count),
            lanes=4,
            steps="count" if policy == "skip" else None,
            multiprocessing_options=options,
        )
        for host in range(count)
    ]


def global_batches(policy: Any, count: int, workers: int, batch: int = 8) -> list[list[int]]:
    columns = [list(host) for host in hosts(policy, count, workers, batch)]
    return [np.concatenate(step).tolist() for step in zip(*columns, strict=True)]


@pytest.mark.parametrize("batch", [4, 8])
@pytest.mark.parametrize("policy", ["skip", "replace"])
def test_global_batches_do_not_depend_on_hosts_or_workers(policy: Any, batch: int) -> None:
    expected = global_batches(policy, 1, 0, batch)
    rows = [row for step in expected for row in step]
    if policy == "skip":
        assert len(set(rows)) == len(rows)
        assert not BAD & set(rows)
        # Lanes take turns; each leaves its own failed rows out.
        lanes = [[x for x in range(lane, 128, 4) if x not in BAD] for lane in range(4)]
        per = batch // 4
        steps = min(len(lane) for lane in lanes) // per
        model = [
            [row for lane in lanes for row in lane[per * step : per * (step + 1)]]
            for step in range(steps)
        ]
        assert expected == model
    else:
        assert len(rows) == 128
    assert global_batches(policy, 2, 0, batch) == expected
    assert global_batches(policy, 2, 2, batch) == expected


@pytest.mark.parametrize("workers", [0, 2])
def test_a_state_of_two_hosts_goes_on_with_one_and_the_counts_with_it(workers: int) -> None:
    expected = global_batches("replace", 1, 0)
    pair = hosts("replace", 2, workers)
    for _ in range(9):
        for host in pair:
            next(host)
    assert {record.index for host in pair for record in host.errors()} == {0, 3, 57, 58, 59, 60}
    states = [host.get_state() for host in pair]
    merged = {**states[0], "lane_states": states[0]["lane_states"] | states[1]["lane_states"]}
    (alone,) = hosts("replace", 1, workers)
    alone.set_state(merged)
    assert [batch.tolist() for batch in alone] == expected[9:]
    assert [record.index for record in alone.errors()] == [100]
