"""Lanes, and the shares of workers, with elements that carry their origins; run in this process."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from wholegrain._core.mask import with_mask
from wholegrain._core.origins import Traced, join_rows, split_rows
from wholegrain._core.types import NDArray
from wholegrain._graph.iter_dataset import IterDataset
from wholegrain._graph.lane_steps import LaneStepsIterDataset
from wholegrain._graph.lanes import LanesIterDataset
from wholegrain._graph.shares import Shares
from wholegrain._graph.tracing import Tracer


class TracedLanes(LanesIterDataset[Any]):
    """Lanes, or the shares of workers, interleaved."""

    def __init__(
        self, parent: IterDataset[Any], lanes: int, sequential: bool, tracer: Tracer
    ) -> None:
        super().__init__(parent, lanes, sequential)
        self._tracer = tracer

    @property
    def shares(self) -> Shares[Any]:
        return _TracedShares(self._parent, self._num_workers, self._sequential, self._tracer)


class _TracedShares(Shares[Any]):
    """The shares of a pipeline, each traced by itself: a share is made from a plain pipeline."""

    def __init__(self, whole: Any, count: int, sequential: bool, tracer: Tracer) -> None:
        super().__init__(whole, count, sequential)
        self._tracer = tracer

    def share(self, number: int) -> IterDataset[Any]:
        return self._tracer(super().share(number))  # type: ignore[no-any-return]


def traced_steps(dataset: LaneStepsIterDataset, tracer: Tracer) -> Any:
    """Return the steps over lanes. Origins are rows of one more array, as in `rebatch`."""
    return _TracedSteps(dataset, tracer).map(functools.partial(_of_step, dataset.steps.pads))


class _TracedSteps(LaneStepsIterDataset):
    def __init__(self, dataset: LaneStepsIterDataset, tracer: Tracer) -> None:
        super().__init__(dataset.parents[0], dataset.steps._replace(rows=1), None)
        self.steps = dataset.steps
        self._tracer = tracer

    @property
    def shares(self) -> Shares[Any]:
        return _SharesWithRows(self._parent, self.steps.lanes, self.steps.rows, self._tracer)


class _SharesWithRows(_TracedShares):
    def __init__(self, whole: Any, count: int, rows: int, tracer: Tracer) -> None:
        super().__init__(whole, count, False, tracer)
        self._rows = rows

    def share(self, number: int) -> IterDataset[Any]:
        return super().share(number).map(_batch_of_lane if self._rows > 1 else _element_of_lane)


def _element_of_lane(element: Traced) -> tuple[Any, NDArray[Any]]:
    member: NDArray[Any] = np.empty((), object)
    member[()] = element.origins, element.rows or 1
    return element.value, member


def _batch_of_lane(batch: Traced) -> tuple[Any, NDArray[Any]]:
    return split_rows(batch, batch.rows or 1)


def _of_step(pads: bool, step: Any) -> Traced:
    if not pads:
        return join_rows(step)
    (value, members), mask = step
    # Rows that are repeated where elements are missing come from no record.
    real = [
        (own if is_row else (), rows) for (own, rows), is_row in zip(members, mask, strict=True)
    ]
    array: NDArray[Any] = np.empty(len(real), object)
    array[:] = real
    return join_rows((with_mask(value, mask), array))
