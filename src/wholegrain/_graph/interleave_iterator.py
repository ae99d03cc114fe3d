"""A position in several datasets that are read in turn."""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from wholegrain._core.errors import takes_place
from wholegrain._core.types import State, T
from wholegrain._graph import run
from wholegrain._graph.iterator import DatasetIterator, StageIterator, check_state_of, closed_error
from wholegrain._read.waiting import Probe
from wholegrain._state import interleave
from wholegrain._state.validate import copy_state

if TYPE_CHECKING:
    from concurrent.futures import Future, ThreadPoolExecutor

    from wholegrain._graph.nodes.interleave import InterleaveIterDataset


class InterleaveDatasetIterator(StageIterator[T]):
    """A position in each open dataset, and the place in the cycle.

    A place in the cycle ("slot") holds an iterator, or the last state of one that has ended.
    """

    def __init__(self, dataset: InterleaveIterDataset[T], context: run.RunContext) -> None:
        super().__init__()
        self._dataset = dataset
        self._context = context
        self._num_datasets = len(dataset.datasets)
        self._cycle_length = dataset.cycle_length
        self._closed = False
        self._closed_state: State | None = None
        self._ahead = dataset.always_runs_ahead
        self._running = False  # Whether threads or workers have been started.
        self._opening: dict[int, Future[DatasetIterator[T] | None]] = {}
        self._opener: ThreadPoolExecutor | None = None
        # Open, but in no slot: `set_state` takes from here what is open already.
        self._idle: dict[int, DatasetIterator[T]] = {}
        self._clear()

    def _clear(self) -> None:
        self._probe = Probe()
        self._running = False
        self._slots: list[DatasetIterator[T] | None] = [None] * self._cycle_length
        self._numbers: list[int] = []  # Which dataset each slot has, or had last.
        self._last_states: list[State | None] = [None] * self._cycle_length
        self._next_slot = 0
        self._next_dataset = 0
        self._future_states: dict[int, State] = {}
        self._ended_datasets: set[int] = set()  # Not to be opened, because they are at an end.

    # Elements.

    def __next__(self) -> T:
        slots = self._slots
        while True:
            slot = self._next_slot
            iterator = slots[slot] if slots else None
            if iterator is not None:
                try:
                    probed = self._probe.due()
                    element = self._probe_next(iterator) if probed else next(iterator)
                except StopIteration:
                    self._end_slot(slot)
                    self._next_slot = (slot + 1) % self._cycle_length
                    continue
                except Exception as error:
                    if takes_place(error):
                        self._next_slot = (slot + 1) % self._cycle_length
                    raise
                slot += 1
                self._next_slot = slot if slot < self._cycle_length else 0
                return element
            if self._closed:
                raise closed_error()
            if self._ahead and not self._running:
                with self._context.observed.starting():
                    self.start_prefetch()
            elif self._next_dataset < self._num_datasets:
                self._fill_slot(slot)
            elif all(it is None for it in slots):
                raise StopIteration
            else:
                self._next_slot = (slot + 1) % self._cycle_length

    def _probe_next(self, iterator: DatasetIterator[T]) -> T:
        """Take an element and see whether that had to wait."""
        if self._ahead:
            if not self._running:
                self.start_prefetch()
            return next(iterator)
        self._probe.begin()
        element = next(iterator)
        if self._probe.waited():
            self._ahead = self._running = True
            self._slots[:] = [it if it is None else self._started(it) for it in self._slots]
        return element

    def _started(self, iterator: DatasetIterator[T]) -> DatasetIterator[T]:
        """Return the iterator run ahead, if that is wanted; and started, if the rest is."""
        if self._ahead:
            iterator = self._dataset.run_ahead(iterator)
            if self._running:
                iterator.start_prefetch()
        return iterator

    def _end_slot(self, slot: int) -> None:
        iterator = self._slots[slot]
        if iterator is not None:
            self._last_states[slot] = iterator.get_state()
            iterator.close()
            self._slots[slot] = None

    # Opening.

    def _fill_slot(self, slot: int) -> None:
        """Open the next dataset that there is in a slot."""
        while self._next_dataset < self._num_datasets:
            number = self._next_dataset
            self._next_dataset += 1
            if number in self._ended_datasets:
                continue
            iterator = self._open(number)
            if iterator is None:
                continue
            state = self._future_states.pop(number, None)
            if state is not None:
                iterator.set_state(state)
            if slot < len(self._numbers):
                self._numbers[slot] = number
            else:
                self._numbers.append(number)
            self._last_states[slot] = None
            # First as it is: if it cannot be started now, it is read and started later.
            self._slots[slot] = iterator
            self._slots[slot] = self._started(iterator)
            self._check_not_closed()
            self._open_ahead()
            return

    def _open(self, number: int) -> DatasetIterator[T] | None:
        future = self._opening.pop(number, None)
        if future is not None:
            return future.result()
        return self._dataset.open_dataset(number, self._context)

    def _check_not_closed(self) -> None:
        """Raise if another thread has closed this iterator, which may have missed a slot."""
        if self._closed:
            self._drop()
            raise closed_error()

    def _open_ahead(self) -> None:
        count, threads = self._dataset.make_ahead
        if not self._running or not threads or not count:
            return
        last = min(self._next_dataset + count, self._num_datasets)
        for number in range(self._next_dataset, last):
            if number not in self._opening and number not in self._ended_datasets:
                if self._opener is None:
                    from concurrent.futures import ThreadPoolExecutor  # Few need it.

                    self._opener = ThreadPoolExecutor(threads, "wholegrain-open")
                self._opening[number] = self._opener.submit(
                    self._dataset.open_dataset, number, self._context
                )

    def _fill_slots(self) -> None:
        """Open datasets in the slots that never had one."""
        for slot in range(len(self._numbers), self._cycle_length):
            self._fill_slot(slot)

    def start_prefetch(self) -> None:
        if self._closed:
            raise closed_error()
        if self._running:
            return
        self._fill_slots()
        if not self._ahead:
            self._ahead = True
            self._slots[:] = [it if it is None else self._started(it) for it in self._slots]
        self._running = True
        for iterator in self._slots:
            if iterator is not None:
                iterator.start_prefetch()

    # The position.

    def get_state(self) -> State:
        if self._closed_state is not None:
            return copy_state(self._closed_state)  # type: ignore[no-any-return]
        if len(self._numbers) < self._cycle_length:
            self._fill_slots()
        return self._state()

    def _state(self) -> State:
        """Return the state; slots without a number have not been opened yet."""
        states: list[State | None] = []
        has_ended = False
        # Neither a comprehension nor `None in slots`: each is a call or two more for a state.
        for iterator in self._slots:
            if iterator is None:
                has_ended = True
                states.append(copy_state(self._last_states[len(states)]))
            else:
                states.append(iterator.get_state())
        future_states, ended = self._future_states, self._ended_datasets
        return interleave.interleave_state(
            self._next_slot,
            self._next_dataset,
            self._numbers.copy(),
            states,
            self._exhausted() if has_ended else [0] * len(states),
            copy_state(future_states) if future_states else None,
            sorted(ended) if ended and max(ended) >= self._next_dataset else None,
        )

    def _exhausted(self) -> list[int]:
        """Return for each slot whether its dataset has ended, and no other takes its place."""
        none_left = self._next_dataset >= self._num_datasets
        return [
            int(iterator is None and (none_left or slot < len(self._numbers)))
            for slot, iterator in enumerate(self._slots)
        ]

    def check_state(self, state: State) -> None:
        numbers, states = interleave.checked(state, self, self._num_datasets, self._cycle_length)
        in_use = dict(zip(self._numbers, self._slots, strict=False))
        for number, slot_state in zip(numbers, states, strict=False):
            if (iterator := in_use.get(number)) is not None and slot_state is not None:
                check_state_of(iterator, slot_state)

    def set_state(self, state: State) -> None:
        self.check_state(state)
        self.go_to(state)  # Which goes back by itself, and need not open anything for that.

    def go_to(self, state: State) -> None:
        if self._closed:
            raise closed_error()
        before = self._state() if self._numbers else None
        self._set_aside()
        try:
            self._move_to(state)
        except Exception:
            self._set_aside()
            self._clear()
            if before is not None:
                self._move_to(before)
            raise
        finally:
            self._close_idle()
            self._drop_opening()

    def _set_aside(self) -> None:
        """Take the iterators out of their slots, but keep them open."""
        for number, iterator in zip(self._numbers, self._slots, strict=False):
            if iterator is not None:
                self._idle[number] = iterator

    def _close_idle(self) -> None:
        """Close what is open and not needed."""
        idle, self._idle = self._idle, {}
        _close_all(idle.values())

    def _move_to(self, state: State) -> None:
        self._clear()
        numbers = [operator.index(number) for number in state["iterators_in_use_indices"]]
        states, ended = state["iterators_in_use_states"], state["exhausted"]
        self._numbers = numbers
        self._next_slot = operator.index(state["next_index_in_cycle"])
        self._next_dataset = operator.index(state["next_index_in_datasets"])
        self._future_states = {
            int(number): copy_state(future)
            for number, future in state.get("future_states", {}).items()
        }
        self._ended_datasets = set(map(int, state.get("ended_datasets", ())))
        for slot, (number, slot_state, has_ended) in enumerate(
            zip(numbers, states, ended, strict=False)
        ):
            if has_ended or slot_state is None:
                self._last_states[slot] = copy_state(slot_state)
                continue
            iterator = self._idle.pop(number, None)
            if iterator is None:
                iterator = self._open(number)
            self._slots[slot] = iterator
            if iterator is not None:
                # Not by `check_state`, if it was not open.
                iterator.set_state(slot_state)
                self._slots[slot] = self._started(iterator)

    def tell_report(self) -> None:
        for iterator in [*self._slots, *self._idle.values()]:
            if iterator is not None:
                iterator.tell_report()

    def link(self, change: Callable[[Any], Any]) -> None:
        self._slots[:] = [None if it is None else change(it) for it in self._slots]

    def progress(self) -> Any:
        return self._next_slot, [None if it is None else it.progress() for it in self._slots]

    def get_shard_states(self) -> list[State]:
        """Return for each dataset whether it has ended, and its state."""
        self._fill_slots()
        shards: list[State] = []
        in_use = {number: slot for slot, number in enumerate(self._numbers)}
        for number in range(self._num_datasets):
            slot = in_use.get(number)
            iterator = None if slot is None else self._slots[slot]
            ended = number < self._next_dataset or number in self._ended_datasets
            if iterator is not None:
                shards.append({"exhausted": 0, "state": iterator.get_state()})
            elif not ended and number in self._future_states:
                state = copy_state(self._future_states[number])
                shards.append({"exhausted": 0, "state": state})
            else:
                shards.append({"exhausted": int(ended), "state": self._start_state(number)})
        return shards

    def _start_state(self, number: int) -> State | None:
        iterator = self._dataset.open_dataset(number, self._context)
        if iterator is None:
            return None
        state = iterator.get_state()
        iterator.close()
        return state

    def set_shard_states(self, shard_states: Sequence[Mapping[str, Any]]) -> None:
        """Go to where each dataset has the given state."""
        active = [n for n, shard in enumerate(shard_states) if not shard["exhausted"]]
        ended = [n for n, shard in enumerate(shard_states) if shard["exhausted"]]
        in_cycle = active[: self._cycle_length]
        fill = ended[: self._cycle_length - len(in_cycle)]
        later = active[self._cycle_length :]
        self.set_state(
            interleave.interleave_state(
                0,
                max(in_cycle, default=self._num_datasets - 1) + 1,
                in_cycle + fill,
                [shard_states[n]["state"] for n in in_cycle + fill],
                [0] * len(in_cycle) + [1] * len(fill),
                {n: shard_states[n]["state"] for n in later},
                ended,
            )
        )

    def _get_next_index(self) -> int:
        self._check_one_dataset()
        state = self.get_state()["iterators_in_use_states"][0]
        if self._slots[0] is not None:
            return self._slots[0]._get_next_index()
        # It has ended or is closed: another iterator knows how far it came.
        iterator = self._dataset.open_dataset(0, self._context)
        if iterator is None:
            return 0
        if state is not None:
            iterator.set_state(state)
        index = iterator._get_next_index()
        iterator.close()
        return index

    def _set_next_index(self, index: int) -> None:
        self._check_one_dataset()
        if self._closed:
            raise closed_error()
        if self._slots[0] is None:
            self._next_dataset = 0
            self._fill_slot(0)
        if self._slots[0] is not None:
            self._slots[0]._set_next_index(index)

    def _check_one_dataset(self) -> None:
        if self._num_datasets != 1:
            raise NotImplementedError(
                f"{self} cannot say how many elements it produced: the datasets may end at"
                " different times."
            )

    def _drop(self) -> None:
        """Close all that is open, or being opened."""
        with contextlib.ExitStack() as stack:  # If one of them raises, the others are closed too.
            stack.callback(self._drop_opening)
            stack.callback(self._close_idle)
            stack.callback(_close_all, [it for it in self._slots if it is not None])
            self._slots[:] = [None] * self._cycle_length

    def _drop_opening(self) -> None:
        opening, self._opening = self._opening, {}
        for future in opening.values():
            if not future.cancel():
                future.add_done_callback(_close_opened)

    def close(self) -> None:
        if self._closed:
            return
        with contextlib.suppress(Exception):  # It may have been interrupted at any point.
            self._closed_state = self._state()
        self._closed = True
        opener, self._opener = self._opener, None
        if opener is not None:
            opener.shutdown(wait=False, cancel_futures=True)
        self._drop()

    def __del__(self) -> None:
        if getattr(self, "_opener", None) is not None:
            self.close()

    def __str__(self) -> str:
        return (
            f"InterleaveDatasetIterator([{self._num_datasets} datasets],"
            f" cycle_length={self._cycle_length})"
        )


def _close_all(iterators: Iterable[DatasetIterator[Any]]) -> None:
    with contextlib.ExitStack() as stack:
        for iterator in iterators:
            stack.callback(iterator.close)


def _close_opened(future: Future[Any]) -> None:
    if not future.cancelled() and future.exception() is None and future.result() is not None:
        future.result().close()
