"""The clock around a stage for an execution summary, metrics and traces: it measures all calls."""

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
    """Measures one stage, without those that it calls.

    Args:
        observed: What is seen of the run.
        dataset: The stage.
        board: Where the times go.
        row: The place of the stage there.
        counts_bytes: Whether the sizes of its elements are wanted.
        listeners: Called with how long it took to get some elements, and those.
        event: What to call the stage in a trace, its name, and of what category it is.
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
    """Return what an element of a loader's pipeline carries."""
    return element.data if isinstance(element, Record) else element


def _size(element: Any) -> int:
    return nbytes(data_of(element))


def _warn_of_unknown_sizes(element: Any) -> None:
    """Say once that an element holds something whose size cannot be told."""
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
