"""MapDataset.shard: parts of the same length for all processes."""

import itertools
import logging
from typing import Any

import pytest

import wholegrain as wg
from tests.graph.tools import R
from wholegrain import testing
from wholegrain.sharding import ShardOptions


def shards(ds: Any, count: int, remainder: Any) -> list[Any]:
    return [ds.shard(ShardOptions(index, count), remainder) for index in range(count)]


@pytest.mark.parametrize("count", [1, 2, 3, 7])
@pytest.mark.parametrize("length", [0, 1, 6, 10])
def test_all_parts_have_the_same_length(
    length: int, count: int, caplog: pytest.LogCaptureFixture
) -> None:
    ds = R(length)
    with caplog.at_level(logging.WARNING):
        dropped = [list(part) for part in shards(ds, count, "drop")]
    rest = length % count
    assert (f"{rest} of {length} elements are dropped" in caplog.text) == bool(rest)
    assert {len(part) for part in dropped} == {length // count}
    assert sorted(itertools.chain(*dropped)) == list(range(length - rest))
    padded = [list(part) for part in shards(ds, count, "pad")]
    assert {len(part) for part in padded} == {-(-length // count)}
    assert sorted(x for part in padded for x, mask in part if mask) == list(range(length))
    assert {x for part in padded for x, mask in part if not mask} <= {length - 1}
    kept = [list(part) for part in shards(ds, count, "keep")]
    assert sorted(itertools.chain(*kept)) == list(range(length))


def test_epochs_of_a_padded_shard_follow_those_of_the_data() -> None:
    ds = R(10).shuffle(seed=1)
    part = shards(ds, 4, "pad")[3]
    whole = list(ds.repeat(2))
    twice = list(part.repeat(2))
    assert [x for x, _ in twice] == [whole[n] for n in (3, 7, 9, 13, 17, 19)]
    assert [bool(mask) for _, mask in twice] == [True, True, False] * 2
    testing.check_map_dataset(part)


def test_dicts_get_a_key() -> None:
    ds = R(3).map(lambda x: {"x": x})
    first, second = shards(ds, 2, "pad")
    assert list(first) == [{"x": 0, "mask": True}, {"x": 2, "mask": True}]
    assert list(second) == [{"x": 1, "mask": True}, {"x": 2, "mask": False}]
    with pytest.raises(ValueError, match="have that key already"):
        list(shards(R(3).map(lambda x: {"mask": x}), 2, "pad")[0])


def test_what_cannot_be_even_is_refused() -> None:
    with pytest.raises(ValueError, match=r"different numbers of elements.*steps=\"count\""):
        R(9).filter(bool).shard(ShardOptions(0, 2))
    with pytest.raises(ValueError, match='"drop", "pad" or "keep", but got \'wrap\''):
        shards(R(9), 2, "wrap")
    with pytest.raises(TypeError, match="shard_options"):
        R(9).shard(2)
    endless: Any = R(9).repeat().shard(ShardOptions(1, 2))
    assert [endless[n] for n in range(5)] == [1, 3, 5, 7, 0]
    assert isinstance(endless, wg.MapDataset)
    padded: Any = R(9).repeat().shard(ShardOptions(1, 2), "pad")
    assert [padded[n] for n in range(5)] == [(x, True) for x in (1, 3, 5, 7, 0)]
