"""Notices pipelines that throw most of their data away."""

import time
import weakref
from typing import Any

from wholegrain._core.log import logger
from wholegrain.options import DatasetOptions

WINDOW = 1000
_SECONDS_BETWEEN_WARNINGS = 60.0


class DropWatch:
    """Counts elements that were dropped, in windows of 1000 that were seen.

    Args:
        stage: What to name in a message.
        options: With the shares at which to warn and to raise.
    """

    def __init__(self, stage: Any, options: DatasetOptions) -> None:
        self._stage = weakref.ref(stage)  # Which holds this: a cycle would delay its end.
        self._warn_ratio = options.filter_warn_threshold_ratio
        self._raise_ratio = options.filter_raise_threshold_ratio
        self._seen = 0
        self._dropped = 0
        self._warned_at = float("-inf")

    @property
    def raises(self) -> bool:
        """Whether a window can end in an error."""
        return bool(self._raise_ratio)

    @property
    def left_in_window(self) -> int:
        """How many elements complete the window."""
        return WINDOW - self._seen

    def see(self, seen: int, dropped: int) -> None:
        """Count elements, up to the end of the window; there, raise or warn."""
        self._seen += seen
        self._dropped += dropped
        if self._seen >= WINDOW:
            self._judge()

    def _judge(self) -> None:
        ratio = self._dropped / self._seen
        seen, self._seen, self._dropped = self._seen, 0, 0
        if self._raise_ratio and ratio >= self._raise_ratio:
            raise ValueError(self._message(ratio, seen))
        now = time.monotonic()
        if (
            self._warn_ratio
            and ratio >= self._warn_ratio
            and now - self._warned_at >= _SECONDS_BETWEEN_WARNINGS
        ):
            self._warned_at = now
            logger().warning("%s", self._message(ratio, seen))

    def _message(self, ratio: float, seen: int) -> str:
        return (
            f"Transformation {self._stage()} skipped {100 * ratio:.2f} % of the last seen {seen}"
            " elements. Is that what the filter should do? If so, store the data already"
            " filtered: reading only to drop costs time. `DatasetOptions` sets the thresholds."
        )
