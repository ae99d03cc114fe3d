"""`bucket`: batches of similar lengths, in a fixed set of shapes."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import wholegrain as wg
from wholegrain.sharding import ShardOptions
from wholegrain.testing import assert_equal_output_after_checkpoint


class Texts:
    """Elements of given lengths, whose tokens name them."""

    def __init__(self, lengths: list[int]) -> None:
        self._lengths = lengths

    def __len__(self) -> int:
        return len(self._lengths)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"tokens": np.full(self._lengths[index], index + 1), "id": index}


def texts(lengths: list[int]) -> wg.IterDataset[dict[str, Any]]:
    return wg.MapDataset.source(Texts(lengths)).to_iter_dataset()


def model(lengths: list[int], boundaries: list[int], sizes: list[int], remainder: str) -> Any:
    """Return the ids of each batch, and its width."""
    held: list[list[int]] = [[] for _ in boundaries]
    batches = []
    for index, length in enumerate(lengths):
        bucket = next(at for at, limit in enumerate(boundaries) if length <= limit)
        held[bucket].append(index)
        if len(held[bucket]) == sizes[bucket]:
            batches.append((held[bucket], boundaries[bucket]))
            held[bucket] = []
    if remainder != "drop":
        batches += [(rest, boundaries[at]) for at, rest in enumerate(held) if rest]
    return batches


def ids_of(batch: Any) -> list[int]:
    ids = batch["id"]
    return (ids[batch["mask"]] if "mask" in batch else ids).tolist()  # type: ignore[no-any-return]


LENGTHS = st.lists(st.integers(0, 12), max_size=200)


@settings(max_examples=30)
@given(
    lengths=LENGTHS,
    sizes=st.tuples(st.integers(1, 6), st.integers(1, 6), st.integers(1, 4)),
    remainder=st.sampled_from(["drop", "keep", "pad"]),
    stop=st.integers(0, 40),
)
def test_batches_equal_the_model_after_a_restore_anywhere(
    lengths: list[int], sizes: tuple[int, int, int], remainder: Any, stop: int
) -> None:
    boundaries = [3, 7, 12]
    ds = texts(lengths).bucket("tokens", boundaries, sizes, pad_value=0, remainder=remainder)
    it = iter(ds)
    batches, states = [], [it.get_state()]
    for batch in it:
        batches.append(batch)
        states.append(it.get_state())
    expected = model(lengths, boundaries, list(sizes), remainder)
    assert [(ids_of(batch), batch["tokens"].shape[1]) for batch in batches] == expected
    for batch in batches:
        for row, (tokens, index) in enumerate(zip(batch["tokens"], batch["id"], strict=True)):
            if "mask" in batch and not batch["mask"][row]:
                assert not tokens.any()
                continue
            assert tokens.tolist() == [index + 1] * lengths[index] + [0] * (
                len(tokens) - lengths[index]
            )
    if remainder != "keep":
        shapes = {(size, limit) for size, limit in zip(sizes, boundaries, strict=True)}
        assert {batch["tokens"].shape for batch in batches} <= shapes
    at = min(stop, len(batches))
    other = iter(ds)
    other.set_state(json.loads(json.dumps(states[at])))
    assert other.get_state() == states[at]
    rest = list(other)
    assert [ids_of(batch) for batch in rest] == [ids_of(batch) for batch in batches[at:]]


def test_a_resume_is_exact_everywhere() -> None:
    lengths = np.random.default_rng(0).integers(1, 100, 400).tolist()
    ds = texts(lengths).bucket("tokens", [20, 50, 100], budget=400)
    assert_equal_output_after_checkpoint(ds)


@pytest.mark.parametrize("remainder", ["drop", "pad"])
@pytest.mark.parametrize("hosts", [2, 4])
def test_all_hosts_have_the_same_shapes_at_the_same_steps(hosts: int, remainder: Any) -> None:
    lengths = np.random.default_rng(1).integers(1, 64, 301).tolist()
    loaded: list[int] = []

    def load(element: dict[str, Any]) -> dict[str, Any]:
        loaded.append(element["id"])
        return element

    def parts(count: int) -> list[list[Any]]:
        options = [ShardOptions(host, count) for host in range(count)]
        return [
            list(
                texts(lengths).bucket(
                    "tokens", [16, 64], [16, 8], remainder=remainder, shard_options=one, load=load
                )
            )
            for one in options
        ]

    (whole,) = parts(1)
    loaded.clear()
    columns = parts(hosts)
    if remainder == "drop":
        assert sorted(loaded) == sorted(i for batch in whole for i in batch["id"].tolist())
    for step, batch in zip(zip(*columns, strict=True), whole, strict=True):
        assert len({part["tokens"].shape for part in step}) == 1
        for key in batch:
            joined = np.concatenate([part[key] for part in step])
            np.testing.assert_array_equal(joined, batch[key])


def test_a_state_of_two_hosts_goes_on_with_four() -> None:
    lengths = np.random.default_rng(2).integers(1, 64, 500).tolist()

    def host(index: int, count: int) -> Any:
        ds = texts(lengths).bucket(
            "tokens", [16, 64], [16, 8], shard_options=ShardOptions(index, count)
        )
        return iter(ds)

    pair, alone = [host(index, 2) for index in range(2)], host(0, 1)
    for it in (*pair, alone):
        for _ in range(9):
            next(it)
    assert pair[0].get_state() == pair[1].get_state() == alone.get_state()
    four = [host(index, 4) for index in range(4)]
    for it in four:
        it.set_state(pair[0].get_state())
    for batch in alone:
        joined = np.concatenate([next(it)["tokens"] for it in four])
        np.testing.assert_array_equal(joined, batch["tokens"])


def test_elements_that_fail_are_raised_once_also_after_a_restore() -> None:
    lengths = [3, 99, 5, 2, 99, 4, 3, 3, 1, 2] * 20

    def use(element: Any) -> Any:
        if element["id"] % 17 == 0:
            raise OSError("broken")
        return element

    ds = texts(lengths).map(use).bucket("tokens", [3, 9], [4, 3])

    def run(it: Any) -> list[Any]:
        events: list[Any] = []
        while True:
            try:
                events.append(next(it)["id"].tolist())
            except StopIteration:
                return events
            except (OSError, ValueError) as error:
                events.append(type(error).__name__)

    expected = run(iter(ds))
    assert expected.count("OSError") == 12
    assert expected.count("ValueError") == 38
    for stop in range(0, len(expected), 7):
        it = iter(ds)
        for event in expected[:stop]:
            if isinstance(event, str):
                with pytest.raises((OSError, ValueError)):
                    next(it)
            else:
                next(it)
        other = iter(ds)
        other.set_state(it.get_state())
        assert run(other) == expected[stop:]


def test_rows_are_padded_to_the_longest_of_the_batch() -> None:
    ds = texts([2, 3, 1, 7]).bucket("tokens", [4, 8], 2, pad_to_boundary=False, remainder="keep")
    assert [batch["tokens"].shape for batch in ds] == [(2, 3), (1, 1), (1, 7)]


def test_pad_values_by_key_and_plain_arrays() -> None:
    ds = texts([2, 4]).bucket("tokens", [4], 2, pad_value={"tokens": -1})
    (batch,) = ds
    assert batch["tokens"].tolist() == [[1, 1, -1, -1], [2, 2, 2, 2]]
    arrays = wg.MapDataset.source([np.ones(2), np.ones(3)]).to_iter_dataset()
    (stacked,) = arrays.bucket(len, [4], budget=8)
    assert stacked.tolist() == [[1, 1, 0, 0], [1, 1, 1, 0]]


def test_the_report_tells_the_share_of_padding() -> None:
    it = iter(texts([2, 4, 3, 4]).bucket("tokens", [4], 2))
    list(it)
    report = it.report()
    assert report.stage("bucket").padding_share == pytest.approx(3 / 16)
    assert "18.8% of the cells of bucket(4) are padding." in str(report)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"boundaries": [4, 2], "batch_sizes": 2}, "increasing"),
        ({"boundaries": [], "batch_sizes": 2}, "increasing"),
        ({"boundaries": [4]}, "either"),
        ({"boundaries": [4], "batch_sizes": 2, "budget": 8}, "either"),
        ({"boundaries": [4, 8], "batch_sizes": [2]}, "each of the 2"),
        ({"boundaries": [4, 8], "budget": 7}, "at least 8"),
        ({"boundaries": [4], "batch_sizes": 2, "remainder": "raise"}, "remainder"),
        (
            {"boundaries": [4], "batch_sizes": 3, "shard_options": ShardOptions(0, 2)},
            "multiple of shard_count",
        ),
        (
            {
                "boundaries": [4],
                "batch_sizes": 2,
                "remainder": "keep",
                "shard_options": ShardOptions(0, 2),
            },
            "different sizes",
        ),
    ],
)
def test_wrong_arguments_are_refused(arguments: Any, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        texts([1, 2]).bucket("tokens", **arguments)


def test_an_element_longer_than_the_last_boundary_is_an_error_that_names_it() -> None:
    with pytest.raises(ValueError, match="has length 9, but the last boundary"):
        list(texts([9]).bucket("tokens", [4], 2))
