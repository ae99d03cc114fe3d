"""Rows of different lengths, padded and stacked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from wholegrain._core import elements, tree
from wholegrain._core.types import NDArray


def padded_batch(
    rows: Sequence[Any], lengths: Sequence[int], width: int, count: int, pad_value: Any
) -> Any:
    """Stack rows; arrays with the length of their row are padded to `width` cells.

    Args:
        rows: Trees of arrays and scalars.
        lengths: The length of each row.
        width: The length of all rows of the batch.
        count: How many rows the batch has; those that are missing are padding.
        pad_value: The value of empty cells: one for all, or a dict with one for each key.
    """
    first = rows[0]
    if isinstance(pad_value, Mapping):
        if not isinstance(first, Mapping):
            raise TypeError(
                "`pad_value` has a value for each key, but elements are no dicts:"
                f" {elements.describe(first)}."
            )
        return {
            key: padded_batch(
                [row[key] for row in rows], lengths, width, count, pad_value.get(key, 0)
            )
            for key in first
        }
    return tree.zip_leaves(lambda leaves: _stacked(leaves, lengths, width, count, pad_value), rows)


def _stacked(
    leaves: Sequence[Any], lengths: Sequence[int], width: int, count: int, pad_value: Any
) -> NDArray[Any]:
    arrays = [np.asarray(leaf) for leaf in leaves]
    first = arrays[0]
    if not all(
        array.ndim and len(array) == length for array, length in zip(arrays, lengths, strict=True)
    ):
        batch = np.full((count, *first.shape), pad_value if first.dtype.kind in "biufc" else 0)
        batch = batch.astype(first.dtype)
        for at, array in enumerate(arrays):
            batch[at] = array
        return batch
    batch = np.full((count, width, *first.shape[1:]), pad_value, first.dtype)
    for at, array in enumerate(arrays):
        batch[at, : len(array)] = array
    return batch
