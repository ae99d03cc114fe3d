"""Packing: what becomes of elements that are longer than a row."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import wholegrain as wg
from wholegrain.experimental import BestFitPackIterDataset, FirstFitPackIterDataset
from wholegrain.testing import assert_equal_output_after_checkpoint

LENGTHS = [3, 25, 8, 10, 1, 40, 7, 9, 2, 11] * 5
ROW = 8


class Texts:
    def __len__(self) -> int:
        return len(LENGTHS)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"tokens": np.arange(LENGTHS[index]) + 1000 * (index + 1)}


def packed(kind: Any, overflow: Any) -> Any:
    ds = wg.MapDataset.source(Texts()).to_iter_dataset()
    return kind(ds, length_struct={"tokens": ROW}, num_packing_bins=4, seed=0, overflow=overflow)


def tokens_of(ds: Any) -> list[int]:
    rows = [row["tokens"][row["tokens_segment_ids"] > 0] for row in ds]
    return sorted(np.concatenate(rows).tolist())


@pytest.mark.parametrize("kind", [FirstFitPackIterDataset, BestFitPackIterDataset])
def test_each_policy_keeps_the_tokens_that_it_says(kind: Any) -> None:
    source = Texts()
    every = [source[index]["tokens"] for index in range(len(LENGTHS))]
    expected = {
        "split": every,
        "truncate": [tokens[:ROW] for tokens in every],
        "drop": [tokens for tokens in every if len(tokens) <= ROW],
    }
    for overflow, kept in expected.items():
        ds = packed(kind, overflow)
        assert tokens_of(ds) == sorted(np.concatenate(kept).tolist()), overflow
        assert_equal_output_after_checkpoint(ds)


def test_an_error_is_the_default() -> None:
    for arguments in ({}, {"overflow": "error"}):
        ds = FirstFitPackIterDataset(
            wg.MapDataset.source(Texts()).to_iter_dataset(),
            length_struct={"tokens": ROW},
            num_packing_bins=4,
            **arguments,  # type: ignore[arg-type]
        )
        with pytest.raises(ValueError, match="longer than a packed row"):
            list(ds)
    with pytest.raises(ValueError, match="`overflow` is"):
        packed(FirstFitPackIterDataset, "wrap")


def test_features_are_split_together() -> None:
    element = {"inputs": np.arange(10), "targets": np.arange(5), "name": "a"}
    ds = FirstFitPackIterDataset(
        wg.MapDataset.source([element]).to_iter_dataset(),
        length_struct={"inputs": 4, "targets": 2},
        num_packing_bins=8,
        meta_features=["name"],
        shuffle_bins=False,
        overflow="split",
    )
    rows = [(row["inputs"].tolist(), row["targets"].tolist(), row["name"]) for row in ds]
    assert rows == [
        ([0, 1, 2, 3], [0, 1], ["a"]),
        ([4, 5, 6, 7], [2, 3], ["a"]),
        ([8, 9, 0, 0], [4, 0], ["a"]),
    ]


@pytest.mark.parametrize("workers", [0, 1])
def test_the_report_tells_the_share_of_padding(workers: int) -> None:
    ds = packed(FirstFitPackIterDataset, "drop")
    if workers:
        ds = ds.mp_prefetch(wg.MultiprocessingOptions(num_workers=workers))
    it = iter(ds)
    rows = list(it)
    filled = sum(int((row["tokens_segment_ids"] > 0).sum()) for row in rows)
    share = it.report().stage("first_fit_pack").padding_share
    assert share == pytest.approx(1 - filled / (ROW * len(rows)))
