"""The clock for execution summaries, metrics and traces. It measures every call of a stage."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from wholegrain._core import events, tree
from wholegrain._core.elements import describe, nbytes
from wholegrain._core.log import logger
from wholegrain._observe.board import Board
from wholegrain._observe.observed import Observed
from wholegrain._observe.stage_clock import StageClock
from wholegrain.record import Record

Listener = Callable[[int, Sequence[Any]], None]

_KNOWN_SIZES = (str, bytes, bytearray, int, float, complex, type(None))


class BoardClock(StageClock):
    """Measures the own time of one stage, without the stages that it calls.

    Args:
        observed: The measurements of the run.
        dataset: The stage.
        board: Where the times are written.
        row: The row of the stage on the board.
        counts_bytes: Whether to record the sizes of its elements.
        listeners: Called with the time of each call in nanoseconds, and its elements.
        event: The name of the event in a trace, the name of the stage, and the category.
    """

    def __init__(
        self,
        observed: Observed,
        dataset: Any,
        board: Board,
        row: int,
        counts_bytes: bool,
        listeners: Sequence[Listener] = (),
        event: tuple[str, str, str] | None = None,
    ) -> None:
        super().__init__(observed, dataset)
        self._board = board
        self._row = row
        self._counts_bytes = counts_bytes
        self._listeners = listeners
        self._event = event
        self._is_described = False

    def start(self) -> Any:
        event = None
        if self._event is not None:
            name, stage, category = self._event
            event = events.begin(name, stage, self._row, category)
        return super().start(), event

    def stop(self, started: Any, elements: Sequence[Any]) -> None:
        begin, event = started
        events.end(event)
        spent = self.note(begin, elements)
        size = sum(map(_size, elements)) if self._counts_bytes else 0
        self._board.record(self._row, round(max(0.0, spent.own) * 1e9), len(elements), size)
        if not self._is_described:
            self._describe(elements)
        for listener in self._listeners:
            listener(round(spent.elapsed * 1e9), elements)

    def take_back(self, count: int) -> None:
        self._board.take_back(self._row, count)

    def _describe(self, elements: Sequence[Any]) -> None:
        for element in elements:
            if element is not None:
                self._is_described = True
                if self._counts_bytes:
                    _warn_of_unknown_sizes(element)
                self._board.describe(self._row, repr(describe(element)))
                return


def data_of(element: Any) -> Any:
    """Return the data of an element: of a `Record` its data, else the element itself."""
    return element.data if isinstance(element, Record) else element


def _size(element: Any) -> int:
    return nbytes(data_of(element))


def _warn_of_unknown_sizes(element: Any) -> None:
    """Warn once if an element contains an object of unknown size."""
    for leaf in tree.leaves(data_of(element)):
        if not hasattr(leaf, "nbytes") and not isinstance(leaf, _KNOWN_SIZES):
            _warn_of_type(type(leaf).__name__)


@functools.cache
def _warn_of_type(name: str) -> None:
    if _warn_of_type.cache_info().currsize == 0:
        logger().warning(
            "The memory that an element of type %s takes cannot be estimated: `memory usage` in"
            " the execution summary leaves it out.",
            name,
        )
