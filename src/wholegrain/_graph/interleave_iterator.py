"""Reads interleaved datasets in turn."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from wholegrain._core.errors import takes_place, taking_no_place
from wholegrain._core.interruption import suppress_errors
from wholegrain._core.types import State, T
from wholegrain._graph import run
from wholegrain._graph.interleaving import Reading, Upcoming
from wholegrain._graph.iterator import (
    DatasetIterator,
    StageIterator,
    check_state_of,
    closed_error,
)
from wholegrain._graph.open_ahead import close_all
from wholegrain._read.waiting import Probe
from wholegrain._state import interleave
from wholegrain._state.validate import copy_state


class InterleaveDatasetIterator(StageIterator[T]):
    """A position in each open dataset, and one in the cycle.

    Each position in the cycle ("slot") holds an iterator, or the last state of one that has ended.

    Args:
        dataset: The `InterleaveIterDataset`.
        context: The run that it belongs to.
    """

    def __init__(self, dataset: Any, context: run.RunContext) -> None:
        super().__init__()
        self._dataset = dataset
        self._context = context
        self._closed = False
        self._closed_state: State | None = None
        self._reading = Reading(dataset.always_runs_ahead, dataset.cycle_length)
        self._upcoming: Upcoming[T] = Upcoming(
            lambda number: dataset.open_dataset(number, context),
            len(dataset.datasets),
            dataset.make_ahead,
        )
        # Open iterators that are in no slot: `set_state` reuses them.
        self._idle: dict[int, DatasetIterator[T]] = {}
        self._clear(dataset.cycle_length)

    def _clear(self, cycle_length: int) -> None:
        self._running = False  # Whether threads or workers have been started.
        self._reading.probe = Probe()  # It is due at once, and then starts them all.
        self._slots: list[DatasetIterator[T] | None] = [None] * cycle_length
        self._numbers: list[int] = []  # Which dataset each slot holds, or held last.
        self._last_states: list[State | None] = [None] * cycle_length
        # For each slot the elements, last first, that were read for its next turns and put back.
        self._ready: list[list[T]] = [[] for _ in range(cycle_length)]
        self._given: list[T] = []  # What the last `take` of whole rounds has returned.
        self._next_slot = 0
        self._upcoming.start_over()

    @property
    def _num_datasets(self) -> int:
        return self._upcoming.count

    @property
    def _cycle_length(self) -> int:
        return len(self._slots)

    def __next__(self) -> T:
        slots = self._slots
        while True:
            slot = self._next_slot
            iterator = slots[slot] if slots else None
            if iterator is not None:
                try:
                    ready = self._ready[slot]
                    if ready:
                        iterator.pass_over(1)
                        element = ready.pop()
                    elif self._reading.probe.due():
                        element = self._probe_read(slot, iterator)
                    else:
                        element = self._read(slot, iterator)
                except StopIteration:
                    self._end_slot(slot)
                    self._next_slot = (slot + 1) % self._cycle_length
                    continue
                except BaseException as error:
                    if takes_place(error):
                        self._next_slot = (slot + 1) % self._cycle_length
                    raise
                slot += 1
                self._next_slot = slot if slot < len(slots) else 0
                return element
            if self._closed:
                raise closed_error()
            if self._reading.ahead and not self._running:
                with self._context.observed.starting():
                    self.start_prefetch()
            elif self._upcoming.are_left:
                self._fill_slot(slot)
            elif all(it is None for it in slots):
                raise StopIteration
            else:
                self._next_slot = (slot + 1) % self._cycle_length

    @property
    def takes_back(self) -> bool:
        """Whether a whole round is ready. Then `take` can return it, and `put_back` works."""
        return bool(self._ready) and all(self._ready)

    def take(self, count: int) -> list[T]:
        rounds = count // len(self._slots) if self.takes_back else 0
        if not rounds:
            return super().take(count)
        rounds = min(rounds, min(map(len, self._ready)))
        columns = [ready[: -rounds - 1 : -1] for ready in self._ready]
        for slot, ready in enumerate(self._ready):
            self._in(slot).pass_over(rounds)
            del ready[-rounds:]
        first = self._next_slot
        ordered = columns[first:] + columns[:first]
        self._given = list(itertools.chain.from_iterable(zip(*ordered, strict=True)))
        return self._given.copy()

    def put_back(self, count: int) -> None:
        for _ in range(count):
            self._next_slot = slot = (self._next_slot or len(self._slots)) - 1
            self._in(slot).put_back(1)
            self._ready[slot].append(self._given.pop())

    def pass_over(self, count: int) -> None:
        for _ in range(count):
            slot = self._next_slot
            self._in(slot).pass_over(1)
            self._given.append(self._ready[slot].pop())
            self._next_slot = (slot + 1) % len(self._slots)

    def _in(self, slot: int) -> DatasetIterator[T]:
        return self._slots[slot]  # type: ignore[return-value]

    def _read(self, slot: int, iterator: DatasetIterator[T]) -> T:
        """Take an element. If several can be read at a time, keep the others for later turns."""
        reading = self._reading
        if reading.ahead or not iterator.takes_back:
            if self._running:  # It may not be started yet, because something was kept.
                self._slots[slot] = iterator = self._started(iterator)
            return next(iterator)
        # As many as the dataset before it has left, so that whole rounds become ready.
        left = len(self._ready[slot - 1])
        elements = reading.pace.take(iterator, left + 1 if left else reading.pace.count)
        if not elements:
            raise StopIteration
        if len(elements) > 1:
            iterator.put_back(len(elements) - 1)
            self._ready[slot] = elements[:0:-1]
        return elements[0]

    def _probe_read(self, slot: int, iterator: DatasetIterator[T]) -> T:
        """Take an element, and measure whether that blocked."""
        reading = self._reading
        if reading.ahead:
            if not self._running:
                self.start_prefetch()
            return self._read(slot, iterator)
        reading.probe.begin()
        element = self._read(slot, iterator)
        if reading.probe.waited():
            reading.ahead = self._running = True
            with suppress_errors():  # The element is read already. They are started again later.
                self._start_slots()
        return element

    def _start_slots(self) -> None:
        """Let the open datasets read ahead. Elements that were read for a slot come first."""
        for slot, (iterator, ready) in enumerate(zip(self._slots, self._ready, strict=True)):
            if iterator is not None and not ready and not self._given:
                self._slots[slot] = self._started(iterator)

    def _started(self, iterator: DatasetIterator[T]) -> DatasetIterator[T]:
        """Wrap the iterator to run ahead if reading blocks, and start it if the others run."""
        if self._reading.ahead:
            iterator = self._dataset.run_ahead(iterator)
            if self._running:
                with taking_no_place():
                    iterator.start_prefetch()
        return iterator

    def _end_slot(self, slot: int) -> None:
        iterator = self._slots[slot]
        if iterator is not None:
            self._last_states[slot] = iterator.get_state()
            iterator.close()
            self._slots[slot] = None

    def _fill_slot(self, slot: int) -> None:
        """Open the next dataset that is not missing in a slot."""
        opened = self._upcoming.open_next()
        if opened is None:
            return
        number, iterator = opened
        if slot < len(self._numbers):
            self._numbers[slot] = number
        else:
            self._numbers.append(number)
        self._last_states[slot] = None
        # Store it unwrapped first: if starting fails now, it can be started later.
        self._slots[slot] = iterator
        self._slots[slot] = self._started(iterator)
        if self._closed:  # Another thread closed the iterator and may have missed this slot.
            self._drop()
            raise closed_error()
        if self._running:
            self._upcoming.open_ahead()

    def _fill_slots(self) -> None:
        """Open datasets in the slots that never had one."""
        for slot in range(len(self._numbers), self._cycle_length):
            self._fill_slot(slot)

    def start_prefetch(self) -> None:
        if self._closed:
            raise closed_error()
        if self._running:
            return
        with taking_no_place():
            self._fill_slots()
            self._reading.ahead = self._running = True
            self._start_slots()

    def get_state(self) -> State:
        if self._closed_state is not None:
            return copy_state(self._closed_state)  # type: ignore[no-any-return]
        if len(self._numbers) < self._cycle_length:
            self._fill_slots()
        return self._state()

    def _state(self) -> State:
        """Return the state. Slots without a number have not been opened yet."""
        states: list[State | None] = []
        exhausted = [0] * self._cycle_length  # 1 if the slot's dataset ended and none follows.
        upcoming = self._upcoming
        for iterator in self._slots:
            if iterator is None:
                slot = len(states)
                exhausted[slot] = int(not upcoming.are_left or slot < len(self._numbers))
                states.append(copy_state(self._last_states[slot]))
            else:
                states.append(iterator.get_state())
        return interleave.interleave_state(
            self._next_slot,
            upcoming.next,
            self._numbers.copy(),
            states,
            exhausted,
            upcoming.states(),
            upcoming.ended(),
        )

    def check_state(self, state: State) -> None:
        numbers, states = interleave.checked(state, self, self._num_datasets, self._cycle_length)
        in_use = dict(zip(self._numbers, self._slots, strict=False))
        for number, slot_state in zip(numbers, states, strict=False):
            if (iterator := in_use.get(number)) is not None and slot_state is not None:
                check_state_of(iterator, slot_state)

    def set_state(self, state: State) -> None:
        self.check_state(state)
        self.go_to(state)  # It restores the old position by itself, without opening anything.

    def go_to(self, state: State) -> None:
        if self._closed:
            raise closed_error()
        before = self._state() if self._numbers else None
        self._set_aside()
        try:
            self._move_to(state)
        except Exception:
            self._set_aside()
            self._clear(self._cycle_length)
            if before is not None:
                self._move_to(before)
            raise
        finally:
            self._close_idle()
            self._upcoming.opener.drop()

    def _set_aside(self) -> None:
        """Move the iterators from their slots to `_idle`, where they stay open."""
        for number, iterator in zip(self._numbers, self._slots, strict=False):
            if iterator is not None:
                self._idle[number] = iterator

    def _close_idle(self) -> None:
        idle, self._idle = self._idle, {}
        close_all(idle.values())

    def _move_to(self, state: State) -> None:
        self._clear(self._cycle_length)
        cycle = interleave.parsed(state)
        self._upcoming.go_to(cycle)
        self._next_slot, self._numbers = cycle.next_slot, cycle.numbers
        for slot, (number, slot_state, has_ended) in enumerate(cycle.slots):
            if has_ended or slot_state is None:
                self._last_states[slot] = copy_state(slot_state)
                continue
            iterator = self._idle.pop(number, None)
            if iterator is None:
                iterator = self._upcoming.opener.open(number)
            self._slots[slot] = iterator
            if iterator is not None:
                # Not `go_to`: `check_state` skipped datasets that were not open.
                iterator.set_state(slot_state)
                self._slots[slot] = self._started(iterator)

    def tell_report(self) -> None:
        for iterator in filter(None, [*self._slots, *self._idle.values()]):
            iterator.tell_report()

    def describe_workers(self) -> list[str]:
        return [s for i in (*self._slots, *self._idle.values()) if i for s in i.describe_workers()]

    def link(self, change: Callable[[Any], Any]) -> None:
        self._slots[:] = [None if it is None else change(it) for it in self._slots]

    def progress(self) -> Any:
        return self._next_slot, [None if it is None else it.progress() for it in self._slots]

    def get_shard_states(self) -> list[State]:
        """Return for each dataset its state and whether it has ended."""
        shards = interleave.states_of_datasets(self.get_state(), self._num_datasets)
        for number, shard in enumerate(shards):
            if shard["state"] is None:
                shard["state"] = self._ask_another(number, None, lambda it: it.get_state())
        return shards

    def set_shard_states(self, shard_states: Sequence[Mapping[str, Any]]) -> None:
        """Go to the position at which each dataset has the given state."""
        self.set_state(interleave.state_from_datasets(shard_states, self._cycle_length))

    def _ask_another(
        self, number: int, state: State | None, question: Callable[[DatasetIterator[T]], Any]
    ) -> Any:
        """Ask a new iterator of a dataset; return None if the dataset is missing."""
        iterator = self._dataset.open_dataset(number, self._context)
        if iterator is None:
            return None
        with contextlib.closing(iterator):
            if state is not None:
                iterator.set_state(state)
            return question(iterator)

    def _get_next_index(self) -> int:
        self._check_one_dataset()
        state = self.get_state()["iterators_in_use_states"][0]
        if self._slots[0] is not None:
            return self._slots[0]._get_next_index()
        # The iterator has ended or is closed, so ask a new one how far it had come.
        return self._ask_another(0, state, lambda it: it._get_next_index()) or 0

    def _set_next_index(self, index: int) -> None:
        self._check_one_dataset()
        if self._closed:
            raise closed_error()
        if self._slots[0] is None:
            self._upcoming.next = 0
            self._fill_slot(0)
        self._ready[0] = []
        if self._slots[0] is not None:
            self._slots[0]._set_next_index(index)

    def _check_one_dataset(self) -> None:
        if self._num_datasets != 1:
            raise NotImplementedError(
                f"{self} cannot say how many elements it produced: the datasets may end at"
                " different times."
            )

    def _drop(self) -> None:
        """Close all iterators that are open or being opened."""
        with contextlib.ExitStack() as stack:  # If one of them raises, the others are closed too.
            stack.callback(self._upcoming.opener.drop)
            stack.callback(self._close_idle)
            stack.callback(close_all, [it for it in self._slots if it is not None])
            self._slots[:] = [None] * self._cycle_length

    def close(self) -> None:
        if self._closed:
            return
        with suppress_errors():  # An interruption may have left it torn.
            self._closed_state = self._state()
        self._closed = True
        self._upcoming.opener.close()
        self._drop()

    def __del__(self) -> None:
        if hasattr(self, "_upcoming") and self._upcoming.opener.has_threads:
            self.close()

    def __str__(self) -> str:
        return (
            f"InterleaveDatasetIterator([{self._num_datasets} datasets],"
            f" cycle_length={self._cycle_length})"
        )
