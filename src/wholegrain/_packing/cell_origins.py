"""Origins of cells that are concatenated and split: each cell carries those of its element."""

from typing import Any

import numpy as np

from wholegrain._core.origins import Traced, spans_of
from wholegrain._core.types import NDArray
from wholegrain._packing.concat_split import ConcatSplitPlan, Row


def with_cell_origins(plan: ConcatSplitPlan, element: Traced) -> Row:
    """Return an element whose cells are pairs of a value and the origins of the element."""
    row = dict(element.value)
    for feature in plan.features:
        if not feature.is_meta and feature.name in row:
            values = np.atleast_1d(row[feature.name])
            dtype = [("value", values.dtype, values.shape[1:]), ("origins", object)]
            cells: NDArray[Any] = np.empty(len(values), dtype)
            cells["value"] = values
            cells["origins"].fill(element.origins)
            row[feature.name] = cells
    return row


def with_row_origins(plan: ConcatSplitPlan, row: Row) -> Traced:
    """Return a row of plain values, with the origins of its pieces."""
    members: dict[int, Any] = {}
    segments = {}
    for feature in plan.features:
        if feature.is_meta:
            continue
        cells = row[feature.name]
        numbers = segments[feature.name] = row[f"{feature.name}_segment_ids"]
        starts = np.flatnonzero(np.diff(numbers, prepend=0))
        row[feature.name] = values = np.ascontiguousarray(cells["value"])
        for start in starts[numbers[starts] > 0].tolist():
            members.setdefault(int(numbers[start]), cells["origins"][start])
            if feature.gets_bos:
                values[start] = plan.bos_token_id
    count = max(members, default=0)
    return Traced(row, spans_of(segments, [members.get(n, ()) for n in range(1, count + 1)]))
