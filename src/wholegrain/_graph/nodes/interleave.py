"""Interleaves several datasets, a few of which are open at a time."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from wholegrain._core.difference import show
from wholegrain._core.errors import takes_place
from wholegrain._core.types import State, T
from wholegrain._core.whole_number import whole_count
from wholegrain._graph import run
from wholegrain._graph.iter_dataset import IterDataset
from wholegrain._graph.iterator import (
    DatasetIterator,
    StageIterator,
    check_state_of,
    closed_error,
    run_ahead,
)
from wholegrain._graph.kinds import AnyDataset, IterNode
from wholegrain._graph.map_dataset import MapDataset
from wholegrain._graph.open_ahead import OpenAhead, close_all
from wholegrain._observe import outline
from wholegrain._read.waiting import Probe
from wholegrain._state import interleave
from wholegrain._state.spec import CheckpointSpec
from wholegrain._state.validate import copy_state


class InterleaveIterDataset(IterNode[T]):
    """One element of each of `cycle_length` datasets in turn.

    A dataset that ends is replaced by the next one when its turn comes again. If reading blocks,
    threads read the open datasets ahead and open the next ones in advance. That never changes the
    order.

    Args:
        datasets: A sequence of datasets, or a MapDataset whose elements are datasets. The latter
            creates each dataset when it is needed.
        cycle_length: How many datasets are open at a time.
        num_make_iter_threads: How many threads may open datasets ahead.
        make_iter_buffer_size: How many datasets may be opened ahead.
        iter_buffer_size: How many elements of each dataset may be read ahead.
    """

    opens_later = True
    checkpoint = CheckpointSpec(
        fixed=("cycle_length",),
        free=("num_make_iter_threads", "make_iter_buffer_size", "iter_buffer_size"),
        inputs="datasets",
    )

    def __init__(
        self,
        datasets: Sequence[AnyDataset[T]] | MapDataset[AnyDataset[T]],
        *,
        cycle_length: int,
        num_make_iter_threads: int = 1,
        make_iter_buffer_size: int = 1,
        iter_buffer_size: int = 1,
    ) -> None:
        super().__init__()
        _check_datasets(datasets)
        cycle_length = whole_count("cycle_length", cycle_length)
        if cycle_length <= 0:
            raise ValueError(
                "`InterleaveIterDataset` needs at least one dataset open, but got"
                f" cycle_length={cycle_length}."
            )
        self._datasets = datasets
        self._cycle_length = cycle_length
        self._num_make_iter_threads = num_make_iter_threads
        self._make_iter_buffer_size = make_iter_buffer_size
        self._iter_buffer_size = iter_buffer_size

    def open(self) -> DatasetIterator[T]:
        return InterleaveDatasetIterator(self, run.current())

    @property
    def datasets(self) -> Sequence[Any] | MapDataset[Any]:
        return self._datasets

    @property
    def cycle_length(self) -> int:
        return min(self._cycle_length, len(self._datasets))

    def set_slice(self, sl: slice, sequential_slice: bool = False) -> None:
        """Keep a part of the datasets. This shards a worker's copy."""
        del sequential_slice  # Whole datasets are distributed in both cases.
        self._datasets = self._datasets[sl]

    def open_dataset(self, number: int, context: run.RunContext) -> DatasetIterator[T] | None:
        """Return an iterator of one of the datasets; None if it is missing."""
        dataset = self._datasets[number]
        if dataset is None:
            return None
        options = context.options.merge(run.gather_options(dataset))
        with run.entered(context.but(options=options)):
            iterator: DatasetIterator[T] = dataset.__iter__()
        if iterator.moves_at_end and not isinstance(dataset, MapDataset):
            # When the iterator ends, the state to keep is the one of its last element.
            return run_ahead(iterator, 0)
        return iterator

    def run_ahead(self, iterator: DatasetIterator[T]) -> DatasetIterator[T]:
        """Return an iterator of the same elements, which threads read ahead."""
        if iterator.reads_ahead or not self._iter_buffer_size:
            return iterator
        return run_ahead(iterator, self._iter_buffer_size)

    @property
    def always_runs_ahead(self) -> bool:
        """Whether threads are used even if reading does not block."""
        return False

    @property
    def make_ahead(self) -> tuple[int, int]:
        """How many datasets are opened ahead, and by how many threads."""
        return self._make_iter_buffer_size, self._num_make_iter_threads

    @property
    def _element_spec(self) -> Any:
        first: Any = self._datasets[0]
        return first._element_spec

    def _label(self) -> str:
        return f"interleave ({outline.counted(len(self.datasets), 'dataset')})"

    def __str__(self) -> str:
        return (
            f"InterleaveIterDataset([{len(self._datasets)} datasets],"
            f" cycle_length={self._cycle_length})"
        )


def _check_datasets(datasets: Any) -> None:
    if not hasattr(datasets, "__len__") or not hasattr(datasets, "__getitem__"):
        raise TypeError(
            "`InterleaveIterDataset` takes a list of datasets, or a MapDataset whose elements are"
            f" datasets, but got {outline.label(datasets)}."
        )
    for dataset in datasets if isinstance(datasets, (list, tuple)) else ():
        if not isinstance(dataset, (IterDataset, MapDataset)):
            raise TypeError(
                f"`InterleaveIterDataset` takes datasets, but one of them is {show(dataset)}."
                " `MapDataset.source(...)` makes a dataset of a list or a source."
            )


class InterleaveDatasetIterator(StageIterator[T]):
    """A position in each open dataset, and one in the cycle.

    Each position in the cycle ("slot") holds an iterator, or the last state of one that has ended.
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
        self._num_open_ahead, num_threads = dataset.make_ahead
        self._opener: OpenAhead[T] = OpenAhead(
            lambda number: dataset.open_dataset(number, context), num_threads
        )
        # Open iterators that are in no slot: `set_state` reuses them.
        self._idle: dict[int, DatasetIterator[T]] = {}
        self._clear()

    def _clear(self) -> None:
        self._probe = Probe()
        self._running = False  # Whether threads or workers have been started.
        self._slots: list[DatasetIterator[T] | None] = [None] * self._cycle_length
        self._numbers: list[int] = []  # Which dataset each slot holds, or held last.
        self._last_states: list[State | None] = [None] * self._cycle_length
        self._next_slot = 0
        self._next_dataset = 0
        self._future_states: dict[int, State] = {}
        self._ended_datasets: set[int] = set()  # Datasets that have ended and are not opened.

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
                except BaseException as error:
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
        """Take an element, and measure whether that blocked."""
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
        """Wrap the iterator to run ahead if reading blocks, and start it if the others run."""
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

    def _fill_slot(self, slot: int) -> None:
        """Open the next dataset that is not missing in a slot."""
        while self._next_dataset < self._num_datasets:
            number = self._next_dataset
            self._next_dataset += 1
            if number in self._ended_datasets:
                continue
            iterator = self._opener.open(number)
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
            # Store it unwrapped first: if starting fails now, it can be started later.
            self._slots[slot] = iterator
            self._slots[slot] = self._started(iterator)
            if self._closed:  # Another thread closed the iterator and may have missed this slot.
                self._drop()
                raise closed_error()
            if self._running:
                last = min(self._next_dataset + self._num_open_ahead, self._num_datasets)
                ahead = set(range(self._next_dataset, last)) - self._ended_datasets
                self._opener.start(sorted(ahead))
            return

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
        for iterator in filter(None, self._slots):
            iterator.start_prefetch()

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
        none_left = self._next_dataset >= self._num_datasets
        # Neither a comprehension nor `None in slots`, because each adds calls to every state.
        for iterator in self._slots:
            if iterator is None:
                slot = len(states)
                exhausted[slot] = int(none_left or slot < len(self._numbers))
                states.append(copy_state(self._last_states[slot]))
            else:
                states.append(iterator.get_state())
        future_states, ended = self._future_states, self._ended_datasets
        return interleave.interleave_state(
            self._next_slot,
            self._next_dataset,
            self._numbers.copy(),
            states,
            exhausted,
            copy_state(future_states) if future_states else None,
            sorted(ended) if ended and max(ended) >= self._next_dataset else None,
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
            self._clear()
            if before is not None:
                self._move_to(before)
            raise
        finally:
            self._close_idle()
            self._opener.drop()

    def _set_aside(self) -> None:
        """Move the iterators from their slots to `_idle`, where they stay open."""
        for number, iterator in zip(self._numbers, self._slots, strict=False):
            if iterator is not None:
                self._idle[number] = iterator

    def _close_idle(self) -> None:
        idle, self._idle = self._idle, {}
        close_all(idle.values())

    def _move_to(self, state: State) -> None:
        self._clear()
        cycle = interleave.parsed(state)
        self._next_slot, self._next_dataset = cycle.next_slot, cycle.next_dataset
        self._numbers = cycle.numbers
        self._future_states = cycle.future_states
        self._ended_datasets = cycle.ended_datasets
        for slot, (number, slot_state, has_ended) in enumerate(cycle.slots):
            if has_ended or slot_state is None:
                self._last_states[slot] = copy_state(slot_state)
                continue
            iterator = self._idle.pop(number, None)
            if iterator is None:
                iterator = self._opener.open(number)
            self._slots[slot] = iterator
            if iterator is not None:
                # Not `go_to`: `check_state` skipped datasets that were not open.
                iterator.set_state(slot_state)
                self._slots[slot] = self._started(iterator)

    def tell_report(self) -> None:
        for iterator in filter(None, [*self._slots, *self._idle.values()]):
            iterator.tell_report()

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
        """Close all iterators that are open or being opened."""
        with contextlib.ExitStack() as stack:  # If one of them raises, the others are closed too.
            stack.callback(self._opener.drop)
            stack.callback(self._close_idle)
            stack.callback(close_all, [it for it in self._slots if it is not None])
            self._slots[:] = [None] * self._cycle_length

    def close(self) -> None:
        if self._closed:
            return
        with contextlib.suppress(Exception):  # An interruption may have left it torn.
            self._closed_state = self._state()
        self._closed = True
        self._opener.close()
        self._drop()

    def __del__(self) -> None:
        if hasattr(self, "_opener") and self._opener.has_threads:
            self.close()

    def __str__(self) -> str:
        return (
            f"InterleaveDatasetIterator([{self._num_datasets} datasets],"
            f" cycle_length={self._cycle_length})"
        )
