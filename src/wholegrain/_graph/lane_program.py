"""The iterator in a worker that runs several lanes."""

from __future__ import annotations

import functools
import pickle
from collections import deque
from collections.abc import Callable
from typing import Any

from wholegrain._core.types import State
from wholegrain._graph import run
from wholegrain._graph.iterator import DatasetIterator
from wholegrain._graph.open_ahead import close_all
from wholegrain._graph.shares import Shares
from wholegrain._graph.timed import worker_output
from wholegrain._observe.tracking import set_up_worker
from wholegrain._workers.messages import COUNTER
from wholegrain._workers.remote_lanes import LANE_END


class LanesIterator(DatasetIterator[Any]):
    """An element of each lane in turn; `RemoteLanes` describes its states.

    Args:
        open_lane: Returns a new iterator of a lane.
    """

    def __init__(self, open_lane: Callable[[int], DatasetIterator[Any]]) -> None:
        super().__init__()
        self._open_lane = open_lane
        self._lanes: dict[int, DatasetIterator[Any]] = {}
        self._turns: deque[int] = deque()
        self._last: DatasetIterator[Any] | None = None  # None after the end of a lane.

    def __next__(self) -> Any:
        return self.next_into(None)

    def next_into(self, empty: Any) -> Any:
        """Return the next element, in memory from `empty` if the pipeline can write into it."""
        turns = self._turns
        if not turns:
            raise StopIteration
        iterator = self._last = self._lanes[turns[0]]
        fill = None if empty is None else getattr(iterator, "next_into", None)
        try:
            element = next(iterator) if fill is None else fill(empty)
        except StopIteration:
            self._lanes.pop(turns.popleft()).close()
            self._last = None
            return LANE_END
        except BaseException:
            turns.rotate(-1)
            raise
        turns.rotate(-1)
        return element

    def get_state(self) -> State:
        return LANE_END if self._last is None else self._last.get_state()  # type: ignore[return-value]

    def set_state(self, state: Any) -> None:
        lanes, self._lanes = self._lanes, {}
        self._turns = deque()
        for lane, wire_state in state:
            iterator = None if wire_state is None else lanes.pop(lane, None)
            if iterator is None:
                iterator = self._open_lane(lane)
            self._lanes[lane] = iterator
            if wire_state is not None:
                iterator.set_state(state_from_wire(wire_state))
        close_all(lanes.values())
        self._turns.extend(lane for lane, _ in state)

    def link(self, change: Callable[[Any], Any]) -> None:
        self._lanes = {lane: change(iterator) for lane, iterator in self._lanes.items()}

    def close(self) -> None:
        close_all(self._lanes.values())


def state_from_wire(wire_state: int | bytes) -> State:
    """Return the state of a lane."""
    if isinstance(wire_state, int):
        return {COUNTER: wire_state}
    return pickle.loads(wire_state)  # type: ignore[no-any-return]


def open_in_worker(
    shares: Shares[Any], context: run.RunContext, number: int, count: int
) -> DatasetIterator[Any]:
    """Return the iterator of a worker; its lanes come with its first state.

    Args:
        shares: The lanes.
        context: The context of the run.
        number: Which worker this is.
        count: How many workers there are.
    """
    set_up_worker(number)
    lanes = LanesIterator(functools.partial(_open_lane, shares, context))
    return worker_output(lanes, context.observed, shares)


def _open_lane(shares: Shares[Any], context: run.RunContext, lane: int) -> DatasetIterator[Any]:
    iterator: DatasetIterator[Any] = shares.open(lane, context)
    context.observed.ids.add_share(iterator.opened_from, shares.parents[0])
    return iterator
