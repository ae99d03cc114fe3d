"""The order in which the rows of a packed batch are returned."""

from typing import Any

import numpy as np

from wholegrain._packing.packed_batch import PackedBatch


def row_order(
    batch: PackedBatch, *, seed: int, shuffle: bool, group_by_feature: str | None
) -> list[int]:
    """Return the rows of `batch` in output order.

    Args:
        batch: The packed rows.
        seed: Selects the permutation.
        shuffle: Whether to permute the rows.
        group_by_feature: A feature of the rows by whose mean value they are sorted first, such as
            an epoch number, so that shuffling does not mix epochs.
    """
    rows = range(batch.num_rows)
    if not shuffle:
        return list(rows)
    permuted: list[int] = np.random.default_rng(seed).permuted(rows).tolist()
    if group_by_feature is None:
        return permuted
    means = [_mean_of_distinct(batch.row(row)[group_by_feature]) for row in rows]
    return sorted(rows, key=lambda row: (means[row], permuted[row]))


def _mean_of_distinct(values: Any) -> float:
    """Return the mean of the distinct values without zero, which is padding."""
    distinct = np.unique(values)
    count = np.count_nonzero(distinct)
    mean = distinct.sum() / count if count else 0.0
    return 0.0 if np.isnan(mean) else float(mean)
