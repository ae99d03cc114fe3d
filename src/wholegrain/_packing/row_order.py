"""The order in which the rows of a packed batch are returned."""

from typing import Any, NamedTuple

import numpy as np

from wholegrain._packing.packed_batch import PackedBatch


class RowOrder(NamedTuple):
    """The order in which the rows of packed batches are returned.

    Attributes:
        seed: Selects the permutations.
        shuffle: Whether to permute the rows.
        group_by_feature: A feature of the rows by whose mean value they are sorted first, such as
            an epoch number, so that shuffling does not mix epochs.
    """

    seed: int
    shuffle: bool
    group_by_feature: str | None

    def of(self, batch: PackedBatch, first: int) -> list[int]:
        """Return the rows of a batch in output order.

        Args:
            batch: The packed rows.
            first: How many rows were returned before this batch.
        """
        rows = range(batch.num_rows)
        if not self.shuffle:
            return list(rows)
        permuted: list[int] = np.random.default_rng(self.seed + first).permuted(rows).tolist()
        if self.group_by_feature is None:
            return permuted
        means = [_mean_of_distinct(batch.row(row)[self.group_by_feature]) for row in rows]
        return sorted(rows, key=lambda row: (means[row], permuted[row]))


def _mean_of_distinct(values: Any) -> float:
    """Return the mean of the distinct values without zero, which is padding."""
    distinct = np.unique(values)
    count = np.count_nonzero(distinct)
    mean = distinct.sum() / count if count else 0.0
    return 0.0 if np.isnan(mean) else float(mean)
