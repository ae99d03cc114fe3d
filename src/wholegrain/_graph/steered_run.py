"""Steering a run: going to a step, leaving steps out, and a digest of all elements.

A run that does this reads another graph, with one more stage at the end. Its state contains that of
the pipeline, and the steps and the digest next to it. Other runs and their states do not change.
"""

from __future__ import annotations

import operator
from typing import Any

from wholegrain._core import digest
from wholegrain._core.errors import takes_place
from wholegrain._core.failure import can_be_recorded
from wholegrain._core.types import State, T
from wholegrain._graph import provenance
from wholegrain._graph.iterator import DatasetIterator, TransformIterator, go_to_state_of
from wholegrain._graph.kinds import OneParentIterNode
from wholegrain._graph.steps import Steps, steps_of
from wholegrain._state.steered import STEERED, is_steered
from wholegrain._state.validate import part_of, shortened, wrong_state

Ranges = list[list[int]]


class SteeredIterDataset(OneParentIterNode[T]):
    """A pipeline without some of its steps, and with a digest of its elements."""

    def open(self) -> DatasetIterator[T]:
        parent = self._parent
        failed = provenance.counts_failed(parent)
        return SteeredIterator(
            parent.__iter__(), steps_of(parent), digester_of(parent), counts_failed=failed
        )


def digester_of(dataset: Any) -> digest.InOrder:
    """Return what computes the digests of a pipeline."""
    return getattr(dataset, "digester", None) or digest.InOrder()


class SteeredIterator(TransformIterator[T]):
    """A position in a pipeline, by its step.

    Args:
        parent: The iterator of the pipeline.
        steps: Its positions, if they are arithmetic.
        digester: Computes its digest.
        counts_failed: Whether an element that fails is a step, too.
    """

    def __init__(
        self,
        parent: DatasetIterator[T],
        steps: Steps | None,
        digester: digest.InOrder,
        *,
        counts_failed: bool,
    ) -> None:
        super().__init__(parent)
        self._steps = steps
        self._digester = digester
        self._counts_failed = counts_failed
        self._step = 0
        self._skipped: Ranges = []
        self._digest: Any = None

    @property
    def steps_taken(self) -> int:
        """How many steps were taken."""
        return self._step

    def __next__(self) -> T:
        for start, stop in self._skipped:
            if start <= self._step < stop:
                self._pass_to(stop)
        try:
            element: T = next(self.parent)
        except Exception as error:
            failed = can_be_recorded(error) and _is_failed_element(error)
            if failed and self._counts_failed:
                self._step += 1
            raise
        if self._digest is None:
            self._step += 1
            return element
        # Both change in one line, so that an interruption changes neither or both of them.
        running = self._digester.after(self._digest, element)
        self._digest, self._step = running, self._step + 1
        return element

    def _pass_to(self, step: int) -> None:
        """Go to a later step; at most to the end."""
        if self._steps is not None:
            near, state = self._steps.state_near(step)
            if near > self._step:
                go_to_state_of(self.parent, state)
                self._step = near
            if near == self._steps.total:
                return
        while self._step < step:
            try:
                next(self.parent)
            except Exception as error:
                # An element that fails may be why its step is left out.
                if not can_be_recorded(error) or not _is_failed_element(error):
                    raise
                if not self._counts_failed:
                    continue
            self._step += 1

    def get_state(self) -> State:
        return steered(self.parent.get_state(), self._step, self._skipped, self._digest)

    def check_state(self, state: State) -> None:
        about = part_of(state, STEERED, self)
        if not (
            isinstance(about, dict)
            and isinstance(about.get("step"), int)
            and _are_ranges(about.get("skipped"))
            and (about.get("digest") is None or self._digester.is_running(about["digest"]))
        ):
            raise wrong_state(self, f"its part {STEERED!r} is {shortened(about)}")
        self.check_parts(state, "parent")

    def go_to(self, state: State) -> None:
        about = state[STEERED]
        go_to_state_of(self.parent, state["parent"])
        self._step = operator.index(about["step"])
        self._skipped = [list(one) for one in about["skipped"]]
        self._digest = about.get("digest")


def _is_failed_element(error: Exception) -> bool:
    return takes_place(error) and not isinstance(error, StopIteration)


def steered(state: Any, step: int, skipped: Ranges, running: Any) -> State:
    """Return the state of a run that is steered."""
    about = {"step": step, "skipped": [list(one) for one in skipped], "digest": running}
    return {STEERED: about, "parent": state}


def _are_ranges(given: Any) -> bool:
    return isinstance(given, (list, tuple)) and all(
        isinstance(one, (list, tuple)) and len(one) == 2 and all(isinstance(n, int) for n in one)
        for one in given
    )


def as_steered(run: Any, method: str) -> State:
    """Return the state of a run as that of a steered one."""
    state: Any = run.get_state()
    if is_steered(state):
        return state  # type: ignore[no-any-return]
    step = provenance.step_of(run)
    if step is None:
        raise ValueError(
            f"`{method}` needs to know the step, but the restored state does not tell how many"
            " elements come before it: there are filters or similar stages. Set it first, for"
            " example `it.step = 1000`."
        )
    return steered(state, step, [], None)


def change(run: Any, state: State) -> None:
    """Let a run go on with a state, which says what is skipped and whether there is a digest."""
    dataset = run.course.dataset
    if not is_steered(run.course.state):
        dataset = SteeredIterDataset(run.opened_from)
    run.change_course(run.course._replace(dataset=dataset, state=state))


def skip(run: Any, steps: Any) -> None:
    """Leave steps out; see `DatasetIterator.skip`."""
    if not (isinstance(steps, range) and steps.step == 1 and steps.start >= 0):
        raise ValueError(
            f"`skip` takes a range of steps, such as `range(41_300, 41_340)`, but got {steps!r}."
        )
    if not len(steps):
        return
    state = as_steered(run, "skip")
    about = state[STEERED]
    about["skipped"] = _merged([*about["skipped"], [steps.start, steps.stop]])
    change(run, state)


def _merged(ranges: Ranges) -> Ranges:
    """Return the same steps as sorted ranges that do not touch."""
    merged: Ranges = []
    for start, stop in sorted(ranges):
        if merged and start <= merged[-1][1]:
            merged[-1][1] = max(merged[-1][1], stop)
        else:
            merged.append([start, stop])
    return merged


def running_digest(run: Any) -> str:
    """Return the digest of all elements since the first call; see `DatasetIterator.digest`."""
    state = as_steered(run, "digest")
    about, digester = state[STEERED], digester_of(run.opened_from)
    if about["digest"] is None:
        about["digest"] = digester.start()
        change(run, state)
    return digester.total(about["digest"])


def set_step(run: Any, step: Any) -> None:
    """Say at which step a run is; see `DatasetIterator.step`."""
    step = provenance.checked_step(step)
    known = provenance.step_of(run)
    if known not in (None, step):
        raise ValueError(
            f"The run is at step {known}, so `it.step` cannot be set to {step}. `it.seek({step})`"
            " goes there."
        )
    _, got = run.recent
    first = step - (got - run.course.taken)
    if first < 0:
        raise ValueError(f"{step - first} elements were read since the restore: more than {step}.")
    run.course = run.course._replace(step=first)


def _read_past(run: Any, count: int, counts_failed: bool) -> None:
    while count:
        try:
            next(run)
        except Exception as error:
            if not can_be_recorded(error) or not _is_failed_element(error):
                raise
            count -= counts_failed
        else:
            count -= 1


def seek(run: Any, step: Any) -> None:
    """Go to a step; see `DatasetIterator.seek`."""
    step, known = provenance.checked_step(step), provenance.step_of(run)
    before: Any = run.get_state()
    about = before[STEERED] if is_steered(before) else None
    if about is not None and about["digest"] is not None:
        raise ValueError(
            "The run has a digest, which is that of all elements in order: it cannot go to another"
            " step. Make another iterator."
        )
    place = provenance.place_before(run, step)
    state = provenance.start_of(run.opened_from) if place.state is None else place.state
    try:
        run.set_state(state)
        run.course = run.course._replace(step=step - place.ahead)
        _read_past(run, place.ahead, place.counts_failed)
        if about is not None:
            run.set_state(steered(run.get_state(), step, about["skipped"], None))
    except BaseException as error:
        run.set_state(before)
        run.course = run.course._replace(step=known)
        if isinstance(error, StopIteration):
            raise IndexError(f"There is no step {step}: the pipeline ends before it.") from None
        raise
