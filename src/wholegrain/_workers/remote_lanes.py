"""A worker that runs several lanes of a pipeline, and sends an element of each in turn."""

from collections import deque
from collections.abc import Iterable
from typing import Any

from wholegrain._core.errors import takes_place
from wholegrain._workers.backend import Backend
from wholegrain._workers.pickling import dumps
from wholegrain._workers.program import Program
from wholegrain._workers.remote import RemoteIterator

LANE_END = "wholegrain: this lane has ended"
"""The element, and the state, that stand for the end of a lane."""

_WIRE_END = dumps(LANE_END)

LaneStates = dict[int, int | bytes]
"""The state of each lane after its last element, as it is sent; lanes at their start have none."""


class _Turns:
    """Whose turn it is, and where each lane stands.

    Lanes take turns, and a lane that has ended has none.
    """

    def __init__(self, states: LaneStates, lanes: Iterable[int] = ()) -> None:
        self.states = states
        self.lanes = deque(lanes)
        self.taken = 0

    def note(self, wire_state: int | bytes) -> bool:
        """Note the state after an element of the first lane; return whether that lane goes on."""
        self.taken += 1
        if wire_state == _WIRE_END:
            self.lanes.popleft()
            return False
        self.states[self.lanes[0]] = wire_state
        self.lanes.rotate(-1)
        return True

    def assignment(self) -> list[tuple[int, int | bytes | None]]:
        """Return the lanes in the order of their turns, each with its state."""
        return [(lane, self.states.get(lane)) for lane in self.lanes]


class RemoteLanes(RemoteIterator[Any]):
    """Iterates over the lanes of one worker.

    The state of the program's iterator after each element is that of the element's lane alone, and
    its `set_state` takes a list of lanes, in the order of their turns, each with its state. This
    side knows whose turn it is, because both sides follow the same rule: lanes take turns, and a
    lane that has ended has none.

    Args:
        program: The program of the worker.
        worker_index: Passed to the program's factory, and named in errors.
        worker_count: Passed to the program's factory, and named in errors.
        states: The states of all lanes. They are updated as elements are handed out.
        buffer_size: How many finished elements should be ready.
        min_shm_size: Elements with fewer bytes of arrays are sent in messages, not in slots.
        worker_init_fn: Called with index and count in the process.
        backend: Starts the worker.
    """

    def __init__(
        self,
        program: Program,
        worker_index: int,
        worker_count: int,
        states: LaneStates,
        *,
        buffer_size: int,
        min_shm_size: int,
        worker_init_fn: Any,
        backend: Backend,
    ) -> None:
        super().__init__(
            program,
            worker_index,
            worker_count,
            buffer_size=buffer_size,
            initial_state=None,
            min_shm_size=min_shm_size,
            worker_init_fn=worker_init_fn,
            backend=backend,
        )
        self._turns = _Turns(states)

    def assign(self, lanes: Iterable[int]) -> None:
        """Let the worker run these lanes from their states on, in the order of their turns."""
        self._turns.lanes = deque(lanes)
        self.set_state(self._turns.assignment())

    @property
    def turns_taken(self) -> int:
        """How many elements, errors and ends of lanes were handed out."""
        return self._turns.taken

    @property
    def memory_bytes(self) -> int | None:
        """The memory of the worker, if it is known."""
        return None if self._connection is None else self._connection.handle.memory_bytes()

    def next_of(self, lane: int) -> Any:
        """Return the next element of the lane whose turn it is; StopIteration if it has ended."""
        assert self._turns.lanes[0] == lane
        try:
            element = next(self)
        except StopIteration:
            raise RuntimeError(f"{self._name} has ended before its lane {lane}.") from None
        except BaseException as error:
            if takes_place(error) and self._cursor:
                self._turns.note(self._current.wire_states[self._cursor - 1])
            raise
        if self._turns.note(self._current.wire_states[self._cursor - 1]):
            return element
        raise StopIteration

    def _state_to_resume(self) -> bytes | None:
        # Elements that have arrived but were not handed out are not made again.
        turns = _Turns(dict(self._turns.states), self._turns.lanes)
        for wire_state in self._current.wire_states[self._cursor :]:
            turns.note(wire_state)
        return dumps(turns.assignment())
