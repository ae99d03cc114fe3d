"""Detects pipelines that drop most of their elements, or all of them forever."""

import time
import weakref
from collections.abc import Sequence
from typing import Any

from wholegrain._core.log import logger
from wholegrain._graph import fusion
from wholegrain._graph.dataset import upstream
from wholegrain.options import DatasetOptions

WINDOW = 1000
_SECONDS_BETWEEN_WARNINGS = 60.0

_PATIENCE = 10_000
"""An infinite pipeline may drop this many elements in a row, and two whole epochs."""

_PATIENCE_IF_EPOCHS_DIFFER = 1_000_000
"""The same for functions that receive random numbers or indices: 100 epochs."""


class DropWatch:
    """Counts dropped elements in windows of 1000 elements.

    An infinite pipeline that drops a whole epoch would never return an element, so it raises.
    Two epochs' worth of consecutive elements always contain every element of an epoch.

    Args:
        stage: The stage that messages name.
        options: Contains the ratios at which to warn and to raise.
    """

    errors: Any = None
    """Counts elements that failed and were tolerated, where a MapDataset is read."""

    def __init__(self, stage: Any, options: DatasetOptions) -> None:
        # Weak, because the stage holds this object: a cycle would delay its collection.
        self._stage = weakref.ref(stage)
        self._warn_ratio = options.filter_warn_threshold_ratio
        self._raise_ratio = options.filter_raise_threshold_ratio
        self._seen = 0
        self._dropped = 0
        self._dropped_in_a_row = 0
        self._warned_at = float("-inf")

    @property
    def raises(self) -> bool:
        """Whether a window can raise even if elements were kept."""
        return bool(self._raise_ratio)

    @property
    def left_in_window(self) -> int:
        """How many more elements complete the window."""
        return WINDOW - self._seen

    def see(self, seen: int, dropped: int) -> None:
        """Count elements up to the end of the window, and raise or warn there."""
        self._seen += seen
        self._dropped += dropped
        if self._seen >= WINDOW:
            self._judge()

    def see_kept(self, count: int) -> None:
        """Count elements of which none was dropped; they may span several windows."""
        while count >= (left := self.left_in_window):
            self.see(left, 0)
            count -= left
        self._seen += count

    def see_each(self, chunk: Sequence[Any]) -> tuple[ValueError | None, int]:
        """Count elements of a chunk until too many are dropped; return the error and the count."""
        count = 0
        while count < len(chunk):
            part = chunk[count : count + self.left_in_window]
            count += len(part)
            try:
                self.see(len(part), sum(element is None for element in part))
            except ValueError as error:
                return error, count
        return None, count

    def _judge(self) -> None:
        ratio = self._dropped / self._seen
        seen, self._seen, self._dropped = self._seen, 0, 0
        if self._raise_ratio and ratio >= self._raise_ratio:
            raise ValueError(self._message(ratio, seen))
        self._dropped_in_a_row = self._dropped_in_a_row + seen if ratio == 1.0 else 0
        if self._dropped_in_a_row >= _PATIENCE:
            self._check_hope()
        now = time.monotonic()
        if (
            self._warn_ratio
            and ratio >= self._warn_ratio
            and now - self._warned_at >= _SECONDS_BETWEEN_WARNINGS
        ):
            self._warned_at = now
            logger().warning("%s", self._message(ratio, seen))

    def _check_hope(self) -> None:
        """Raise if no more elements can follow."""
        dataset = getattr(self._stage(), "opened_from", None)
        period = getattr(dataset, "_period", None)
        if period is None:
            return
        patience = max(_PATIENCE, 2 * period)
        if not all(getattr(node, "_repeats_itself", False) for node in upstream(dataset)):
            patience = max(_PATIENCE_IF_EPOCHS_DIFFER, 100 * period)
        dropped = self._dropped_in_a_row
        if dropped < patience:
            return
        self._dropped_in_a_row = 0
        raise ValueError(
            f"An infinite pipeline yields no elements: the last {dropped} were all dropped, and"
            f" it repeats every {period} elements. {self._advice(dataset)}"
        )

    def _message(self, ratio: float, seen: int) -> str:
        stage = self._stage()
        advice = self._advice(getattr(stage, "opened_from", None))
        return (
            f"Transformation {stage} skipped {100 * ratio:.2f} % of the last seen {seen}"
            f" elements. {advice} `DatasetOptions` sets the thresholds."
        )

    def _advice(self, dataset: Any) -> str:
        """Describe which stage drops elements, and what to do."""
        stage = self._stage()
        filters, maps = [str(stage)], []
        if not hasattr(stage, "parent") and dataset is not None:
            # It reads by index: filters and maps upstream drop elements.
            nodes = upstream(dataset.parents[0])
            filters = [str(node) for node in nodes if getattr(node, "kind", "") == fusion.FILTER]
            maps = [str(node) for node in nodes if hasattr(node, "apply_to")]
        if maps and not dataset.parents[0].sparse:
            return (
                f"There is no filter, but {' or '.join(maps)} returned None, which drops an"
                " element. Check that the function returns its result."
            )
        return (
            f"Check that the filter ({' or '.join(filters)}) is right. If it is, store the filtered"
            " data instead, because reading elements to drop them wastes time."
        )
