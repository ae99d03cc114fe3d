"""Reads some records of a source as missing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from wholegrain._core.failure import Failure, PartlyFailed
from wholegrain._core.tolerated import Tolerated, note_single
from wholegrain._core.types import Indices, T
from wholegrain._graph.kinds import OneParentMapNode
from wholegrain._graph.map_dataset import MapDataset
from wholegrain._state.spec import CheckpointSpec


class QuarantineMapDataset(OneParentMapNode[T]):
    """The records of a source, without some of them, which are never read.

    Args:
        parent: The source.
        records: The indices of the records that are missing.
    """

    keeps_size = True
    gives_place = True
    checkpoint = CheckpointSpec(free=("records",), position="parent")

    def __init__(self, parent: MapDataset[Any], records: Sequence[int]) -> None:
        super().__init__(parent)
        self._records = np.unique(np.asarray(records, np.int64))

    @property
    def sparse(self) -> bool:
        return True

    def getitem(self, index: int) -> T | None:
        position = index % len(self.parent)
        at = int(np.searchsorted(self._records, position))
        if at < len(self._records) and self._records[at] == position:
            note_single(Tolerated())
            return None
        return self.parent.getitem(index)

    def getitems(self, indices: Indices) -> Sequence[T | None]:
        is_missing = np.isin(indices % len(self.parent), self._records)
        if not is_missing.any():
            return self.parent.getitems(indices)
        read = iter(self.parent.getitems(indices[~is_missing]))
        # A Failure, and not None, so that `on_error("replace")` downstream replaces it.
        return PartlyFailed(
            [
                Failure(Tolerated(), self, int(index)) if missing else next(read)
                for index, missing in zip(indices, is_missing.tolist(), strict=True)
            ]
        )

    def _label(self) -> str:
        return f"quarantine ({len(self._records)} records)"

    def _about(self, name: str) -> str:
        return f"{name}: these records are not read."

    def __str__(self) -> str:
        return f"QuarantineMapDataset(records={len(self._records)})"
