"""Run: what `iter(ds)` returns, the iterator that the training loop reads from.

The stages of a pipeline change their positions one after the other while an element passes through
them. An exception from a signal handler can arrive in between and leave their positions
inconsistent ("torn"). The run recovers from it: it keeps a recent state of the pipeline (the
*anchor*) and the number of elements returned since. After an interruption it drops the torn stages,
opens new ones at the anchor, and skips those elements. So an iterator keeps its position.

If the last stage supports `put_back`, the run takes a chunk of elements at a time: about a
millisecond's worth, so that the consumer never waits long for elements that it does not need yet.
The stages are ahead of it by the rest of the chunk, put back when they are asked for a position.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import operator
import sys
import time
from collections.abc import Callable, Iterator
from threading import RLock, get_ident
from typing import Any

from wholegrain._core.interruption import is_interruption
from wholegrain._core.tracebacks import keep_user_frames
from wholegrain._core.types import S, State, T
from wholegrain._graph import anchors, epochs, nodes, run, tolerance, torch_workers, turns
from wholegrain._graph.anchors import Anchor
from wholegrain._graph.course import Course
from wholegrain._graph.iterator import DatasetIterator, closed_error
from wholegrain._graph.last_stage import LastStage
from wholegrain._graph.pace import Pace
from wholegrain._graph.turns import in_turn, moves_in_turn
from wholegrain._observe import visible
from wholegrain._observe.tracking import aims_of
from wholegrain.options import DatasetOptions

_NONE: Iterator[Any] = iter(())

_GRACE_S = 0.05
"""How long `close` waits for `next` in another thread, if there is no GIL: it may be quick."""

_TORN = -1
"""The value of `_limit` while the stages are torn."""

_CLOSED = -2
"""The value of `_limit` if all stages are closed, and not torn."""


class Run(LastStage[T]):
    """One run of a pipeline.

    Args:
        dataset: The last stage of the pipeline.
    """

    closes_when_dropped = False  # Dropping the run drops its stages, which close themselves.

    def __init__(self, dataset: Any) -> None:
        super().__init__()
        dataset, number, count = torch_workers.share(dataset)
        self.opened_from = self.observed_as = dataset
        options = run.gather_options(dataset) or DatasetOptions()
        self._context = run.RunContext(options, number, count, aims_of(options))
        self._context.account = tolerance.tally_of(dataset)
        self.observed = self._context.observed
        if self._context.account is not None:
            self.observed.failures = functools.partial(getattr, self._context.account, "total")
        self._closed = False
        self._ready: Iterator[T] = _NONE  # The rest of the last chunk.
        self._taken = 0  # The number of elements returned, plus those left in `_ready`.
        self._pace = Pace()
        self._limit = 1  # When `_taken` reaches this, the next anchor is due.
        self._anchor = Anchor(None, 0, time.perf_counter())
        self.course = Course(dataset, None, 0)
        self.user = 0  # The thread that is moving the stages.
        self.turn_lock = RLock()
        self._use(self._opened())
        visible.opened(self.observed)

    def _opened(self, context: run.RunContext | None = None) -> DatasetIterator[T]:
        """Return new stages that start at the first element."""
        try:
            with run.entered(context or self._context):
                output: DatasetIterator[T] = self.course.dataset.open()
        except BaseException:
            run.leave()  # An interruption may have kept `entered` from doing this.
            raise
        output.opened_from = self.opened_from
        return output

    def _use(self, output: DatasetIterator[T]) -> None:
        self._output = output
        self._parents = (output,)
        self.observed.be_output(self, output, self.opened_from)
        if self.observed.aims is not None:
            from wholegrain._graph.tracked_output import tracked  # Rarely used.

            self._output = tracked(output)
            self._parents = (self._output,)

    @property
    def handed_out(self) -> int:
        """How many elements the stages have handed out: clocks count those."""
        return self._taken

    # Elements.

    @turns.takes_turn
    def __next__(self) -> T:
        # On one line, so that neither a signal handler nor a tracer can run in between.
        for element in self._ready: return element  # fmt: skip  # noqa: E701
        thread = get_ident()
        while self.user:
            if turns.await_turn(self):
                raise turns.already_executing_error()
        self.user = thread
        # Another thread may have taken a chunk meanwhile.
        for element in self._ready: self.user = 0; return element  # fmt: skip  # noqa: E701, E702
        count = self._taken
        try:
            if count >= self._limit:
                self._settle()
            if not self._output.takes_back:
                element = self._output.__next__()
                self._check_open()  # Another thread may have closed stages that were reading.
                self._taken, self.user = count + 1, 0
                return element
            size, began = self._pace.count, time.perf_counter()
            elements = self._output.take(size)
            self._check_open()
            self._pace.note(self._output, elements, size, began)
            ready = iter(elements)
            element = next(ready)
            self._taken, self._ready = count + len(elements), ready
            if self._closed:  # By another thread, which could not know of this chunk.
                self._retract()
            self.user = 0
            return element
        except StopIteration:
            if self._closed:
                self._limit, self.user = _TORN, 0
                raise closed_error() from None
            self.observed.anchored(time.perf_counter())  # What follows is not the loop's time.
            self.user = 0
            raise
        except BaseException as error:
            # Torn until it is handled: an interruption in here must not replace and lose an error.
            limit = self._limit
            self._taken, self._ready, self._limit = count, _NONE, _TORN
            anchor = self._anchor
            if is_interruption(error):
                run.leave()
                limit = _TORN
            elif self._closed:
                self._limit, self.user = (limit if limit == _CLOSED else _TORN), 0
                raise closed_error() from None
            elif limit != _TORN:
                anchor, limit = self._new_anchor()
            keep_user_frames(error)
            # On one line, because the error will not be raised again after this anchor.
            self._anchor, self._limit, self.user = anchor, limit, 0; raise  # fmt: skip  # noqa: E702

    def _check_open(self) -> None:
        if self._closed:
            raise closed_error()

    def _settle(self) -> None:
        """Take the next anchor, or replace torn stages."""
        self._check_open()
        if self._limit == _TORN:
            self._reopen()
        else:
            self._anchor, self._limit = self._new_anchor()

    def _new_anchor(self) -> tuple[Anchor, int]:
        """Return the position of the stages, and the value of `_taken` to do so again at."""
        if self._anchor.state is None:  # The run started at the first element of the dataset.
            epochs.begun(self.opened_from)
        began = time.perf_counter()
        try:
            state = self._output.get_state()
        except Exception as error:
            if is_interruption(error):
                raise
            return self._anchor, sys.maxsize  # A user's iterator without states.
        if self._closed:  # By another thread: nobody knows where the stages stand.
            return self._anchor, _TORN
        now = time.perf_counter()
        steps = self._anchor.steps_to_next(self._taken, began, now)
        self.observed.anchored(now)
        return Anchor(state, self._taken, now), self._taken + steps

    # After an interruption.

    def note_abandoned(self) -> None:
        """Called if a method was interrupted where it could not recover."""
        self._retract()

    def _reopen(self) -> None:
        """Replace torn stages by new ones at the consumer's position."""
        self._drop_stages()
        output = self._opened()
        state, count, _ = self._anchor
        self._count_errors_from(state)
        if state is not None:
            output.set_state(copy.deepcopy(state))
        while count < self._taken and anchors.moves_past_element(output):
            count += 1
        self._use(output)
        self._limit = self._taken
        if self._closed:
            output.close()
            self._limit = _CLOSED

    def _drop_stages(self) -> None:
        """Close torn stages, so that they release their resources."""
        try:
            self._output.close()
        except Exception as error:
            if is_interruption(error):
                raise

    # The position.

    @turns.takes_turn
    def get_state(self) -> State:
        thread, is_inside = get_ident(), False  # Like `in_turn`, but faster.
        while self.user and not is_inside:
            is_inside = turns.await_turn(self)
        if is_inside:
            return self._state_inside()
        self.user = thread
        try:
            if self._limit == _TORN:
                state, count, _ = self._anchor
                if state is not None and count == self._taken:
                    return copy.deepcopy(state)
                self._reopen()
            return self._where_it_stands(self._output.get_state)
        except BaseException as error:
            if is_interruption(error):
                self._retract()
                run.leave()
            raise
        finally:
            self.user = 0

    def _state_inside(self) -> State:
        """Return the state in a signal handler, while this thread is moving the stages.

        They may stand anywhere, so the state is that of other stages.
        """
        state, count, _ = self._anchor
        wanted = self._taken - operator.length_hint(self._ready)
        if state is not None and count == wanted:
            return copy.deepcopy(state)
        output = self._opened(tolerance.uncounted(self._context))
        try:
            if state is not None:
                output.set_state(copy.deepcopy(state))
            while count < wanted and anchors.moves_past_element(output):
                count += 1
            return output.get_state()
        finally:
            output.close()

    def _where_it_stands(self, ask: Callable[[], S]) -> S:
        """Ask the stages for a position, as of the element that the consumer gets next."""
        rest = operator.length_hint(self._ready)
        if not rest:
            return ask()
        taken, ready, limit = self._taken, self._ready, self._limit
        self._taken, self._ready, self._limit = taken - rest, _NONE, _TORN
        self._output.put_back(rest)
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

    def _retract(self) -> int:
        """Take the elements back that the consumer has not got; return how many.

        The stages count as torn until they were moved back, too.
        """
        ready = self._ready
        rest = operator.length_hint(ready)
        self._taken, self._ready, self._limit = self._taken - rest, _NONE, _TORN
        late = rest - len([*ready])  # Another thread got these at the last moment.
        self._taken += late
        return rest - late

    @moves_in_turn
    def set_state(self, state: State) -> None:
        self.mend()
        dataset = self.course.dataset_for(state, self.opened_from)
        if dataset is not self.course.dataset:
            self._replace_stages(state, dataset)
        elif self._taken and anchors.may_fail_to_move(self.opened_from):
            self._replace_stages(state)
        else:
            if operator.length_hint(self._ready):
                # If the state is refused, the chunk stays: its functions must not run again.
                self._output.check_state(state)
            self._move(lambda: self._output.set_state(state), lambda: copy.deepcopy(state))

    def _replace_stages(self, state: Any, dataset: Any = None) -> None:
        """Go to a state with new stages, so the present ones keep their elements if it fails."""
        self._check_open()
        before = self.course
        if dataset is not None:
            self.course = before._replace(dataset=dataset)
        try:
            output = self._opened()
            with contextlib.ExitStack() as undo:
                undo.callback(output.close)
                output.set_state(state)
                undo.pop_all()
        except BaseException:
            self.course = before
            raise
        self._retract()
        self._drop_stages()
        self._use(output)
        anchor = Anchor(copy.deepcopy(state), self._taken, time.perf_counter())
        course, limit = self.course.from_anchor(anchor), self._taken + 1
        self._count_errors_from(state)
        self._anchor, self.course, self._limit, self.user = anchor, course, limit, 0

    @in_turn
    def check_state(self, state: State) -> None:
        self.mend()
        self._output.check_state(state)

    @in_turn
    def _get_next_index(self) -> int:
        self.mend()
        return self._where_it_stands(self._output._get_next_index)

    @moves_in_turn
    def _set_next_index(self, index: int) -> None:
        self.mend()
        self._move(
            lambda: self._output._set_next_index(index), self._output.get_state, may_tear=True
        )

    def mend(self) -> None:
        """Replace the stages if they are torn, so that they can be asked."""
        if self._limit == _TORN:
            self._reopen()

    @in_turn
    def set_weights(self, weights: Any, at_step: int | None = None) -> int:
        return nodes.set_mixture_weights(self, self._opened, weights, at_step)

    @in_turn
    def ask(self, question: Callable[[], S]) -> S:
        """Ask a stage for its position, as of the element that the consumer gets next."""
        return self._where_it_stands(question)

    @in_turn
    def move_stage(self, move: Callable[[], None]) -> None:
        """Move one of the stages. Those downstream drop what they have taken from it."""
        if rest := self._retract():
            self._output.put_back(rest)
        move()
        self._output.set_state(self._output.get_state())
        self._anchor, self._limit = self._new_anchor()
        self.course = self.course.from_anchor(self._anchor)

    @property
    def get_shard_states(self) -> Callable[[], Any]:
        """Returns the state of each interleaved dataset; only if the last stage has it."""
        self.mend()
        output: Any = self._output
        return functools.partial(self.ask, output.get_shard_states)

    def _move(
        self, move: Callable[[], None], anchor: Callable[[], State], may_tear: bool = False
    ) -> None:
        """Move the stages. If the move fails or is interrupted, the run keeps its position.

        Args:
            move: Moves them.
            anchor: Returns their state afterwards.
            may_tear: Whether stages may have moved if `move` fails.
        """
        self._check_open()
        before = self._limit
        try:
            if rest := self._retract():
                self._output.put_back(rest)
            move()
            new = Anchor(anchor(), self._taken, time.perf_counter())
            course, limit = self.course.from_anchor(new), self._taken + 1
            self._count_errors_from(new.state)
            self._anchor, self.course, self._limit, self.user = new, course, limit, 0
        except BaseException as error:
            if is_interruption(error):
                run.leave()
            elif may_tear:
                self._limit = _TORN
            else:
                self._limit = before  # A failed `set_state` has moved no stage.
            raise

    # Where it has begun.

    @property
    def recent(self) -> tuple[Anchor, int]:
        """A recent position, and how many elements the consumer has got."""
        return self._anchor, self._taken - operator.length_hint(self._ready)

    @moves_in_turn
    def change_course(self, course: Course) -> None:
        """Read another graph, from the position where `course` begins."""
        self.mend()
        self._replace_stages(course.state, course.dataset)

    # Other methods.

    @in_turn
    def start_prefetch(self) -> None:
        self._check_open()
        self.mend()
        try:
            self._output.start_prefetch()
        except BaseException as error:
            if is_interruption(error):
                self._limit = _TORN
                run.leave()
            raise

    def close(self) -> None:
        self._closed = True  # First, because `next` in another thread looks at this last.
        thread, user = get_ident(), None
        is_alone = self.turn_lock.acquire(timeout=_GRACE_S)
        while self.user and user is None:
            user = turns.user_of(self)
        if user is None and is_alone:
            self.user = thread
        else:
            user = user or thread
        limit = self._limit
        rest = self._retract()
        if user is None:
            if rest:
                self._output.put_back(rest)
            self._output.close()
            self._limit, self.user = (_TORN if limit == _TORN else _CLOSED), 0
        else:
            # Wakes up `next`. The stages stay torn: nobody knows how far it has moved them.
            self._output.close()
        if is_alone:
            self.turn_lock.release()

    @moves_in_turn
    def set_shard_states(self, shard_states: Any) -> None:
        """Go to the position at which each of the interleaved datasets has the given state."""
        self.mend()
        output: Any = self._output
        self._move(lambda: output.set_shard_states(shard_states), output.get_state)
