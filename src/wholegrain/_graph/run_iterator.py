"""Run: what `iter(ds)` returns, the iterator that the training loop reads from.

The stages of a pipeline change their positions one after the other while an element passes through
them. An exception from a signal handler can arrive in between and leave their positions
inconsistent ("torn"), and no order of statements in the stages could prevent that. The run recovers
from it: it keeps a recent state of the pipeline (the *anchor*) and the number of elements returned
since. After an interruption it drops the torn stages, opens new ones at the anchor, and skips those
elements. An interrupted iterator therefore keeps its position.

If the last stage supports `put_back`, the run takes a chunk of elements at a time: about a
millisecond's worth, so that the consumer never waits long for elements that it does not need yet.
Returning an element from the chunk then costs one call. The stages are ahead of the consumer by the
rest of the chunk; it is put back while they are asked for a position.
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
"""About how long it may take to compute the elements since the anchor again."""

_ANCHOR_SHARE = 0.005
"""The share of the run's time that taking anchors may cost."""

_MOST_REPLAYED = 1 << 16

_CHUNK_S = 1e-3
"""How long computing a chunk may take: user functions run ahead of the consumer by this much."""

_LARGEST_CHUNK = 128
"""Larger chunks save nothing, and would take long if elements suddenly became slow."""

_CHUNK_BYTES = 1 << 18
"""How much memory a chunk may take."""

_NONE: Iterator[Any] = iter(())

_TORN = -1
"""The value of `_limit` while the stages are torn."""


class _OfLastStage:
    """An attribute that a run has if its last stage has it.

    `__getattr__` would serve all such names, but slows down every attribute access of the run.
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

    closes_when_dropped = False  # Dropping the run drops its stages, which close themselves.

    def __init__(self, dataset: Any) -> None:
        super().__init__()
        self.opened_from = self.observed_as = dataset
        options = run.gather_options(dataset) or DatasetOptions()
        self._context = run.RunContext(options=options, watch=tracking.begin(dataset, options))
        self.observed = self._context.observed
        self._closed = False
        self._ready: Iterator[T] = _NONE  # The rest of the last chunk.
        self._taken = 0  # The number of elements returned, plus those left in `_ready`.
        self._at_once = 1  # The size of the next chunk.
        self._most_at_once = _LARGEST_CHUNK
        self._limit = 1  # When `_taken` reaches this, the next anchor is due.
        # A state (None for the beginning) and the value of `_taken` at that state.
        self._anchor: tuple[State | None, int] = (None, 0)
        self._anchored_at = time.perf_counter()
        self._use(self._opened())

    def _opened(self) -> DatasetIterator[T]:
        """Return new stages that start at the first element."""
        try:
            with run.entered(self._context) as context:
                dataset, watch = self.opened_from, context.watch
                output = dataset.open() if watch is None else watch.open(dataset)
        except BaseException:
            run.leave()  # An interruption may have kept `entered` from doing this.
            raise
        output.opened_from = dataset
        return output

    def _use(self, output: DatasetIterator[T]) -> None:
        self._output = output
        self._parents = (output,)
        # A tracked run has to see each element pass, so it takes no chunks.
        self._takes_chunks = self._context.watch is None and output.takes_back
        self.observed.be_output(self, output, self.opened_from)

    def link(self, change: Callable[[Any], Any]) -> None:
        self._output = change(self._output)

    def set_clocks(self, on: bool) -> None:
        """Add clocks around all stages, or remove them."""
        self.link(with_clocks if on else without_clocks)

    @property
    def handed_out(self) -> int:
        """How many elements the stages have handed out: clocks count those."""
        return self._taken

    # Elements.

    def __next__(self) -> T:
        # On one line, so that neither a signal handler nor a tracer can run in between.
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
                raise closed_error() from None  # Another thread has closed it meanwhile.
            self.observed.anchored(time.perf_counter())  # What follows is not the loop's time.
            raise
        except BaseException as error:
            # Torn until it is handled: an interruption in here must not replace and lose an error.
            limit = self._limit
            self._taken, self._ready, self._limit = count, _NONE, _TORN
            if is_interruption(error):
                run.leave()
                limit = _TORN
            elif self._closed:
                self._limit = limit
                raise closed_error() from None
            keep_user_frames(error)
            self._limit = min(limit, 0)  # The position after a failure is an anchor.
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
        """Take the next anchor, or replace torn stages."""
        if self._closed:
            raise closed_error()
        if self._limit == _TORN:
            self._reopen()
        else:
            self._take_anchor()

    def _take_anchor(self) -> None:
        """Save the state of the stages, and choose when to do so again."""
        if self._anchor[0] is None:  # The run started at the first element of the dataset.
            epochs.begun(self.opened_from)
        began = time.perf_counter()
        try:
            state = self._output.get_state()
        except Exception as error:
            if is_interruption(error):
                raise
            self._limit = sys.maxsize  # A user's iterator without states cannot be anchored.
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
        """Replace torn stages by new ones at the consumer's position."""
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
        """Close torn stages, so that they release their resources."""
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
        """Ask the stages for a position, as of the element that the consumer gets next."""
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
        """Move the stages back to the consumer's position. They count as torn until they moved."""
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
        """Replace the stages if they are torn, so that they can be asked."""
        if self._limit == _TORN:
            self._reopen()

    def note_moved(self) -> None:
        """Take a new anchor, after a stage was moved without the run."""
        self._taken, self._ready = self._taken - operator.length_hint(self._ready), _NONE
        self._take_anchor()

    def _move(self, move: Callable[[], None], anchor: Callable[[], State]) -> None:
        """Move the stages. If the move fails or is interrupted, the run keeps its position."""
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
                self._limit = limit  # A failed `set_state` has moved no stage.
            raise

    # Other methods.

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
        # Until all stages are closed, treat them as torn.
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

    # Attributes of the last stage, if it has them.
    worker_count = _OfLastStage()
    set_worker_count = _OfLastStage()
    get_packed_batch_size_bytes = _OfLastStage()
    get_shard_states = _OfLastStage()

    def set_shard_states(self, shard_states: Any) -> None:
        """Go to the position at which each of the interleaved datasets has the given state."""
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
    """Read an element again that was returned before; return False if there is none."""
    while True:
        try:
            next(output)
        except StopIteration:
            return False
        except Exception as error:
            if is_interruption(error):
                raise
            continue  # The same error was raised before the interruption, too.
        return True
