"""Run: what `iter(ds)` returns, the iterator that the training loop reads from.

The stages of a pipeline change their positions one after the other while an element passes
through them, so an exception that arrives in between, out of a signal handler, leaves them torn.
No order of statements in the stages could avoid that. The run does: it knows a recent state of
the pipeline (the *anchor*) and how many elements it has handed out since. After an interruption
it throws the torn stages away, opens new ones at the anchor, and moves past those elements. So
an interrupted iterator stands where it stood.

Where the last stage takes elements back, the run takes a chunk of them at a time: about a
millisecond's worth, so that nobody waits for elements that are not needed yet. Handing one out then
costs a call and no more. The stages are ahead of the consumer by what is left of the chunk, and put
it back while they are asked for a position.
"""

from __future__ import annotations

import copy
import operator
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

from wholegrain._core.elements import nbytes
from wholegrain._core.interruption import is_interruption
from wholegrain._core.tracebacks import keep_user_frames
from wholegrain._core.types import S, State, T
from wholegrain._graph import epochs, run, tracking
from wholegrain._graph.iterator import DatasetIterator, closed_error
from wholegrain._graph.timed import with_clocks, without_clocks
from wholegrain.options import DatasetOptions

_REPLAY_S = 10e-3
"""About how long making the elements again may take that came after the anchor."""

_ANCHOR_SHARE = 0.005
"""Which share of the time taking anchors may cost."""

_MOST_REPLAYED = 1 << 16

_CHUNK_S = 1e-3
"""How long making a chunk may take: so far the stages' functions run ahead of the consumer."""

_LARGEST_CHUNK = 128
"""Larger ones save nothing, and would take long where elements get slow all at once."""

_CHUNK_BYTES = 1 << 18
"""How much memory a chunk may take."""

_NONE: Iterator[Any] = iter(())

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
        self._ready: Iterator[T] = _NONE  # What is left of the chunk that was taken last.
        self._taken = 0  # How many elements were handed out, or are ready to be.
        self._at_once = 1  # So many elements are taken at a time.
        self._most_at_once = _LARGEST_CHUNK
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
        # Who watches a run sees each element pass.
        self._takes_chunks = self._context.watch is None and output.takes_back
        self.observed.be_output(self, output, self.opened_from)

    def link(self, change: Callable[[Any], Any]) -> None:
        self._output = change(self._output)

    def set_clocks(self, on: bool) -> None:
        """Have clocks around all stages, or around none."""
        self.link(with_clocks if on else without_clocks)

    @property
    def handed_out(self) -> int:
        """How many elements the stages have handed out: clocks count those."""
        return self._taken

    # Elements.

    def __next__(self) -> T:
        # On one line: no signal handler, and no tracer, comes in between.
        for element in self._ready: return element  # fmt: skip  # noqa: E701
        count = self._taken
        try:
            if count >= self._limit:
                self._settle()
            if not self._takes_chunks:
                element = self._output.__next__()
                self._taken = count + 1
                return element
            return self._next_of_chunk(count)
        except StopIteration:
            if self._closed:
                raise closed_error() from None  # By another thread, meanwhile.
            raise
        except BaseException as error:
            if is_interruption(error):
                self._taken, self._ready, self._limit = count, _NONE, _TORN
                run.leave()
            elif self._closed:
                raise closed_error() from None
            else:
                self._limit = min(self._limit, 0)  # It has a place of its own.
            keep_user_frames(error)
            raise

    def _next_of_chunk(self, count: int) -> T:
        """Take the next chunk, and return its first element."""
        at_once = self._at_once
        began = time.perf_counter()
        elements = self._output.take(at_once)
        seconds = time.perf_counter() - began
        if not elements:
            raise StopIteration
        if seconds > _CHUNK_S:
            self._at_once = max(1, int(len(elements) * _CHUNK_S / seconds))
        elif at_once < self._most_at_once and seconds < _CHUNK_S / 4:
            if 4 * at_once * nbytes(elements[0]) > _CHUNK_BYTES:
                self._most_at_once = at_once
            else:
                self._at_once = min(4 * at_once, self._most_at_once)
        ready = iter(elements)
        element = next(ready)
        self._taken, self._ready = count + len(elements), ready
        return element

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
        since = max(1, self._taken - self._anchor[1])
        step = max(1, min(_MOST_REPLAYED, 2 * since, int(since * interval / elapsed)))
        self._anchor, self._anchored_at = (state, self._taken), now
        self._limit = self._taken + step
        self.observed.anchored(now)

    # After an interruption.

    def _reopen(self) -> None:
        """Replace torn stages by new ones that stand where the consumer is."""
        self._drop_stages()
        output = self._opened()
        state, count = self._anchor
        if state is not None:
            output.set_state(copy.deepcopy(state))
        while count < self._taken and _moves_past_element(output):
            count += 1
        self._use(output)
        self._limit = self._taken
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
            if state is not None and count == self._taken:
                return copy.deepcopy(state)
            self._reopen()
        return self._where_it_stands(self._output.get_state)

    def _where_it_stands(self, ask: Callable[[], S]) -> S:
        """Ask the stages for a position, at the element that the consumer gets next."""
        rest = operator.length_hint(self._ready)
        if not rest:
            return ask()
        taken, ready, limit = self._taken, self._ready, self._limit
        self._put_back(rest)
        is_interrupted = False
        try:
            return ask()
        except BaseException as error:
            is_interrupted = is_interruption(error)
            raise
        finally:
            if not is_interrupted:
                self._output.pass_over(rest)
                self._taken, self._ready, self._limit = taken, ready, limit

    def _put_back(self, count: int) -> None:
        """Have the stages stand where the consumer does; until that is settled, they are torn."""
        self._taken, self._ready, self._limit = self._taken - count, _NONE, _TORN
        if count:
            self._output.put_back(count)

    def set_state(self, state: State) -> None:
        self.mend()
        if operator.length_hint(self._ready):
            # A state that is refused leaves the chunk as it is: its functions must not run again.
            self._output.check_state(state)
        self._move(lambda: self._output.set_state(state), lambda: copy.deepcopy(state))

    def check_state(self, state: State) -> None:
        self.mend()
        self._output.check_state(state)

    def _get_next_index(self) -> int:
        self.mend()
        return self._where_it_stands(self._output._get_next_index)

    def _set_next_index(self, index: int) -> None:
        self.mend()
        self._move(lambda: self._output._set_next_index(index), self._output.get_state)

    def mend(self) -> None:
        """Have stages that can be asked, also if they were torn."""
        if self._limit == _TORN:
            self._reopen()

    def note_moved(self) -> None:
        """Take note that a stage was brought somewhere else directly."""
        self._taken, self._ready = self._taken - operator.length_hint(self._ready), _NONE
        self._take_anchor()

    def _move(self, move: Callable[[], None], anchor: Callable[[], State]) -> None:
        """Go elsewhere, or stay: a move that fails or is interrupted has not begun."""
        if self._closed:
            raise closed_error()
        limit = self._limit
        try:
            self._put_back(operator.length_hint(self._ready))
            move()
            self._anchored_at = time.perf_counter()
            self._anchor, self._limit = (anchor(), self._taken), self._taken + 1
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
        limit = self._limit
        self._put_back(operator.length_hint(self._ready))
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
        self.mend()
        # Elements that the consumer has not got yet are not counted.
        return self._where_it_stands(self._output.report)

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
