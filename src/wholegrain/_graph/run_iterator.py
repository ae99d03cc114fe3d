"""Run: what `iter(ds)` returns, the iterator that the training loop reads from.

The stages of a pipeline change their positions one after the other while an element passes
through them, so an exception that arrives in between, out of a signal handler, leaves them torn.
No order of statements in the stages could avoid that. The run does: it knows a recent state of
the pipeline (the *anchor*) and how many elements it has handed out since. After an interruption
it throws the torn stages away, opens new ones at the anchor, and moves past those elements. So
an interrupted iterator stands where it stood.
"""

from __future__ import annotations

import copy
import sys
import time
from collections.abc import Callable
from typing import Any

from wholegrain._core.interruption import is_interruption
from wholegrain._core.tracebacks import keep_user_frames
from wholegrain._core.types import State, T
from wholegrain._graph import epochs, run, tracking
from wholegrain._graph.iterator import DatasetIterator, closed_error
from wholegrain._graph.timed import with_clocks, without_clocks
from wholegrain.options import DatasetOptions

_REPLAY_S = 10e-3
"""About how long making the elements again may take that came after the anchor."""

_ANCHOR_SHARE = 0.005
"""Which share of the time taking anchors may cost."""

_MOST_REPLAYED = 4096

_TORN = -1
"""The limit of a run whose stages cannot be used as they are."""


class _OfLastStage:
    """An attribute that a run has if its last stage has it.

    `__getattr__` would serve all of them, but slows down every attribute of the run.
    """

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        if instance is None:
            return self
        instance.mend()
        return getattr(instance._output, self._name)


class Run(DatasetIterator[T]):
    """One run of a pipeline.

    Args:
        dataset: The last stage of the pipeline.
    """

    closes_when_dropped = False  # With it go its stages.

    def __init__(self, dataset: Any) -> None:
        super().__init__()
        self.opened_from = self.observed_as = dataset
        options = run.gather_options(dataset) or DatasetOptions()
        self._context = run.RunContext(options=options, watch=tracking.begin(dataset, options))
        self.observed = self._context.observed
        self._closed = False
        self._count = 0  # How many elements were handed out.
        self._limit = 1  # After so many the next anchor is taken.
        # A state, None for the beginning, and how many elements had been handed out there.
        self._anchor: tuple[State | None, int] = (None, 0)
        self._anchored_at = time.perf_counter()
        self._use(self._opened())

    def _opened(self) -> DatasetIterator[T]:
        """Return new stages, at the beginning."""
        try:
            with run.entered(self._context) as context:
                dataset, watch = self.opened_from, context.watch
                output = dataset.open() if watch is None else watch.open(dataset)
        except BaseException:
            run.leave()  # An interruption may have come before that was done.
            raise
        output.opened_from = dataset
        return output

    def _use(self, output: DatasetIterator[T]) -> None:
        self._output = output
        self._parents = (output,)
        self.observed.be_output(self, output, self.opened_from)

    def link(self, change: Callable[[Any], Any]) -> None:
        self._output = change(self._output)

    def set_clocks(self, on: bool) -> None:
        """Have clocks around all stages, or around none."""
        self.link(with_clocks if on else without_clocks)

    @property
    def handed_out(self) -> int:
        """How many elements were handed out."""
        return self._count

    # Elements.

    def __next__(self) -> T:
        count = self._count
        try:
            if count >= self._limit:
                self._settle()
            element = self._output.__next__()
            self._count = count + 1
            return element
        except StopIteration:
            if self._closed:
                raise closed_error() from None  # By another thread, meanwhile.
            raise
        except BaseException as error:
            if is_interruption(error):
                self._count, self._limit = count, _TORN
                run.leave()
            elif self._closed:
                raise closed_error() from None
            else:
                self._limit = min(self._limit, 0)  # It has a place of its own.
            keep_user_frames(error)
            raise

    def _settle(self) -> None:
        """Take the next anchor, or get stages that work."""
        if self._closed:
            raise closed_error()
        if self._limit == _TORN:
            self._reopen()
        else:
            self._take_anchor()

    def _take_anchor(self) -> None:
        """Remember where the stages stand, and choose when to do so again."""
        if self._anchor[0] is None:  # The first element was that of the dataset.
            epochs.begun(self.opened_from)
        began = time.perf_counter()
        try:
            state = self._output.get_state()
        except Exception as error:
            if is_interruption(error):
                raise
            self._limit = sys.maxsize  # The iterator of a user who needs no states.
            return
        now = time.perf_counter()
        interval = max(_REPLAY_S, (now - began) / _ANCHOR_SHARE)
        elapsed = max(now - self._anchored_at, 1e-9)
        since = max(1, self._count - self._anchor[1])
        step = max(1, min(_MOST_REPLAYED, 2 * since, int(since * interval / elapsed)))
        self._anchor, self._anchored_at = (state, self._count), now
        self._limit = self._count + step
        self.observed.anchored(now)

    # After an interruption.

    def _reopen(self) -> None:
        """Replace torn stages by new ones that stand where the consumer is."""
        self._drop_stages()
        output = self._opened()
        state, count = self._anchor
        if state is not None:
            output.set_state(copy.deepcopy(state))
        while count < self._count and _moves_past_element(output):
            count += 1
        self._use(output)
        self._limit = self._count
        if self._closed:
            output.close()

    def _drop_stages(self) -> None:
        """Close stages that an interruption has torn, so that nothing they hold stays."""
        try:
            self._output.close()
        except Exception as error:
            if is_interruption(error):
                raise

    # The position.

    def get_state(self) -> State:
        if self._limit == _TORN:
            state, count = self._anchor
            if state is not None and count == self._count:
                return copy.deepcopy(state)
            self._reopen()
        return self._output.get_state()

    def set_state(self, state: State) -> None:
        self.mend()
        self._move(lambda: self._output.set_state(state), lambda: copy.deepcopy(state))

    def check_state(self, state: State) -> None:
        self.mend()
        self._output.check_state(state)

    def _get_next_index(self) -> int:
        self.mend()
        return self._output._get_next_index()

    def _set_next_index(self, index: int) -> None:
        self.mend()
        self._move(lambda: self._output._set_next_index(index), self._output.get_state)

    def mend(self) -> None:
        """Have stages that can be asked, also if they were torn."""
        if self._limit == _TORN:
            self._reopen()

    def note_moved(self) -> None:
        """Take note that a stage was brought somewhere else directly."""
        self._take_anchor()

    def _move(self, move: Callable[[], None], anchor: Callable[[], State]) -> None:
        """Go elsewhere, or stay: a move that fails or is interrupted has not begun."""
        if self._closed:
            raise closed_error()
        limit, self._limit = self._limit, _TORN
        try:
            move()
            self._anchored_at = time.perf_counter()
            self._anchor, self._limit = (anchor(), self._count), self._count + 1
        except BaseException as error:
            if is_interruption(error):
                run.leave()
            else:
                self._limit = limit  # The stages have seen to it that none has moved.
            raise

    # What else can be asked of a run.

    def start_prefetch(self) -> None:
        if self._closed:
            raise closed_error()
        self.mend()
        try:
            self._output.start_prefetch()
        except BaseException as error:
            if is_interruption(error):
                self._limit = _TORN
                run.leave()
            raise

    def close(self) -> None:
        self._closed = True
        # Until all of them are closed, no stage can be relied on.
        limit, self._limit = self._limit, _TORN
        self._output.close()
        self._limit = limit

    @property
    def reads_ahead(self) -> bool:
        return self._output.reads_ahead

    @property
    def is_within_chunk(self) -> bool:  # type: ignore[override]
        return self._output.is_within_chunk

    @property
    def moves_at_end(self) -> bool:
        return self._output.moves_at_end

    # What users may ask of the last stage, where it is of that kind.
    worker_count = _OfLastStage()
    set_worker_count = _OfLastStage()
    get_packed_batch_size_bytes = _OfLastStage()
    get_shard_states = _OfLastStage()

    def set_shard_states(self, shard_states: Any) -> None:
        """Go to where each of the interleaved datasets has the given state."""
        self.mend()
        output: Any = self._output
        self._move(lambda: output.set_shard_states(shard_states), output.get_state)

    def report(self) -> Any:
        return self._output.report()

    def get_report(self) -> Any:
        return self._output.get_report()

    def catch_up(self) -> None:
        self._output.catch_up()

    def progress(self) -> Any:
        return self._output.progress()

    def __str__(self) -> str:
        return str(self._output)


def _moves_past_element(output: DatasetIterator[Any]) -> bool:
    """Read an element again that was handed out before; return False where there is none."""
    while True:
        try:
            next(output)
        except StopIteration:
            return False
        except Exception as error:
            if is_interruption(error):
                raise
            continue  # It was raised before, too.
        return True
