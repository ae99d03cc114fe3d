"""Which part of the data a process reads."""

import dataclasses
import itertools
import logging

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import wholegrain as wg
from wholegrain.sharding import NoSharding, ShardByJaxProcess, ShardOptions, even_split


def test_options_print_themselves_with_their_class_as_states_hold_them() -> None:
    assert repr(ShardOptions(1, 3)) == (
        "ShardOptions(shard_index=1, shard_count=3, drop_remainder=False)"
    )
    assert repr(NoSharding()) == "NoSharding(shard_index=0, shard_count=1, drop_remainder=False)"


def test_options_are_values_of_their_class() -> None:
    assert ShardOptions(1, 3) == ShardOptions(1, 3, False)
    assert hash(ShardOptions(1, 3)) == hash(ShardOptions(1, 3))
    assert NoSharding() == NoSharding()
    assert NoSharding() != ShardOptions(0, 1)
    assert isinstance(NoSharding(), ShardOptions)
    with pytest.raises(dataclasses.FrozenInstanceError):
        NoSharding().shard_index = 1  # type: ignore[misc]


@pytest.mark.parametrize(
    ("index", "count", "message"),
    [
        (0, 0, "at least one shard.*shard_count=0"),
        (5, -1, "at least one shard"),
        (3, 3, r"from 0 to shard_count - 1 = 2.*shard_index=3"),
        (-1, 3, "shard_index=-1"),
        (np.int64(3), np.int64(3), "shard_index=3"),
    ],
)
def test_shards_that_do_not_exist_are_refused(index: int, count: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ShardOptions(index, count)


def test_numpy_integers_are_named_like_others() -> None:
    options = ShardOptions(np.int64(1), np.int32(2))  # type: ignore[arg-type]
    assert repr(options) == repr(ShardOptions(1, 2))
    with pytest.raises(TypeError, match=r"`shard_count` has to be a whole number, but got 2\.0"):
        ShardOptions(1, 2.0)  # type: ignore[arg-type]


def test_one_jax_process_has_all_of_the_data() -> None:
    options = ShardByJaxProcess(drop_remainder=True)
    assert (options.shard_index, options.shard_count, options.drop_remainder) == (0, 1, True)
    assert repr(options).startswith("ShardByJaxProcess(shard_index=0")


@given(num_examples=st.integers(0, 200), count=st.integers(1, 20), drop=st.booleans())
def test_shards_are_contiguous_and_differ_by_at_most_one(
    num_examples: int, count: int, drop: bool
) -> None:
    logging.disable(logging.WARNING)
    try:
        parts = [even_split(num_examples, ShardOptions(i, count, drop)) for i in range(count)]
    finally:
        logging.disable(logging.NOTSET)
    assert parts[0][0] == 0
    assert all(one[1] == next_one[0] for one, next_one in itertools.pairwise(parts))
    sizes = [end - start for start, end in parts]
    assert max(sizes) - min(sizes) <= (0 if drop else 1)
    assert sizes == sorted(sizes, reverse=True)
    left_out = num_examples - sum(sizes)
    assert left_out == (num_examples % count if drop else 0)


def test_a_dropped_remainder_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "wholegrain"):
        wg.sharding.even_split(9, ShardOptions(0, 3, drop_remainder=True))
        assert not caplog.records
        wg.sharding.even_split(10, ShardOptions(0, 3, drop_remainder=True))
    assert "1 of 10 examples belong to no shard" in caplog.text
