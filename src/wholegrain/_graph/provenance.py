"""Where the elements of a run come from, computed from its positions."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from wholegrain._core.interruption import is_interruption
from wholegrain._core.origins import Origin, Traced
from wholegrain._core.types import State
from wholegrain._core.whole_number import whole_number
from wholegrain._graph import run as runs
from wholegrain._graph.course import Course
from wholegrain._graph.dataset import upstream
from wholegrain._graph.error_rules import rules_of
from wholegrain._graph.iterator import DatasetIterator
from wholegrain._graph.journals import has_journal, with_journals
from wholegrain._graph.steps import steps_of
from wholegrain._graph.tolerance import Collector
from wholegrain._graph.tracing import Tracer, UnknownPositionError
from wholegrain._state.steered import STEERED, is_steered
from wholegrain.options import DatasetOptions


class Place(NamedTuple):
    """A position of a pipeline, and the number of elements from there to the one that is meant."""

    state: State | None
    """The position; None for the first element."""

    ahead: int

    is_exact: bool = False
    """Whether the position is that of the element itself, even if that fails."""

    counts_failed: bool = False
    """Whether `ahead` counts elements that fail, too."""


def origins_of(run: Any, step: int | None) -> list[Origin]:
    """Return the origins of an element of a run; see `DatasetIterator.provenance`."""
    traced = traced_element(run, step)
    return [] if traced is None else list(traced.origins)


def traced_element(run: Any, step: int | None) -> Traced | None:
    """Return an element of a run, with its origins; None if it is a missing element.

    It is computed again, in this process. The run does not move.
    """
    dataset = run.opened_from
    place = place_of_last(run) if step is None else place_of_step(run, checked_step(step))
    traced, worker = Tracer(dataset)(dataset), run.worker
    try:
        element: Traced | None = _element_at(traced, place, worker)
    except UnknownPositionError as unknown:
        # A source in the middle of its elements cannot number them, so it has to read them all.
        if step is None and (now := step_of(run)) is not None:
            step = now - 1
        if step is None:
            raise ValueError(
                f"{unknown} cannot number its elements in the middle of a run, and nobody knows how"
                " many came before. Set `it.step` to the step of the restored position."
            ) from None
        element = _element_at(traced, Place(_beginning(run), step), worker)
    except StopIteration:
        raise IndexError(f"There is no step {step}: the pipeline ends before it.") from None
    return element


def checked_step(step: Any) -> int:
    """Return a step as an int; raise if it is negative."""
    number = whole_number("step", step)
    if number < 0:
        raise ValueError(f"Steps count from 0, but got step={number}.")
    return number


def place_of_last(run: Any) -> Place:
    """Return where the last element that a run returned can be read again."""
    course, (anchor, got) = run.course, run.recent
    if is_steered(course.state):
        return place_of_step(run, run.get_state()[STEERED]["step"] - 1)
    if got == course.taken:
        steps = None if course.state is None else steps_of(run.opened_from)
        step = None if steps is None or course.state is None else steps.step_of(course.state)
        if not step:
            raise nothing_yet()
        return place_of_step(run, step - 1)
    is_near = course.taken <= anchor.taken < got and _saves_all(run.opened_from)
    known = anchor if is_near else course
    return Place(known.state, got - 1 - known.taken)


def _saves_all(dataset: Any) -> bool:
    """Return whether elements that stages hold are part of states."""
    return not any(getattr(stage, "loses_held", False) for stage in upstream(dataset))


def nothing_yet() -> ValueError:
    """Return the error of a run that has no last element."""
    return ValueError(
        "There is no last element: nothing has been read since the iterator was made or restored."
        " `it.provenance(step)` tells where any step comes from."
    )


def place_of_step(run: Any, step: int) -> Place:
    """Return where an element of a run can be read again, by its step."""
    if step < 0:
        raise nothing_yet()
    place = place_before(run, step)
    steps = steps_of(run.opened_from)
    if steps is not None and step == steps.total:
        raise no_step(step, steps.total)
    return place


def no_step(step: int, total: int) -> IndexError:
    """Return the error about a step after the last one."""
    return IndexError(f"There is no step {step}: the pipeline has {total} steps.")


def place_before(run: Any, step: int) -> Place:
    """Return the closest position at or before a step that is known; it may be at the end."""
    steps = steps_of(run.opened_from)
    if steps is not None:
        if step > steps.total:
            raise no_step(step, steps.total)
        near, state = steps.state_near(step)
        return Place(state, step - near, is_exact=near == step, counts_failed=True)
    course, (anchor, _) = run.course, run.recent
    known = [Place(_beginning(run), step)]
    if getattr(run.opened_from, "steps_before", 0):
        known = []  # Step 0 is in the middle of a pipeline without end.
    if is_steered(course.state):
        states: list[Any] = [course.state, anchor.state]
        known += [Place(one["parent"], step - one[STEERED]["step"]) for one in states]
    elif (first := _first_step(run)) is not None:
        known.append(Place(course.state, step - first))
        if counts_failed(run.opened_from):
            told = _told_by(run.opened_from, anchor.state)
            if told is not None:
                known.append(Place(anchor.state, step - told))
        elif _saves_all(run.opened_from):
            known.append(Place(anchor.state, step - first - (anchor.taken - course.taken)))
    known = [place for place in known if place.ahead >= 0]
    if not known:
        raise ValueError(
            f"Step {step} comes before the positions that this run knows. An epoch of a pipeline"
            " without end begins anywhere: restore an earlier state of it."
        )
    closest = min(known, key=lambda place: place.ahead)
    return closest._replace(counts_failed=counts_failed(run.opened_from))


def _beginning(run: Any) -> State | None:
    """Return the position of the first element; None if nothing has to be known about it."""
    stages = upstream(run.opened_from)
    if not any(getattr(stage, "keeps_journal", False) for stage in stages):
        return None
    state: Any = run.get_state()
    if not has_journal(state):
        return None
    state = state["parent"] if is_steered(state) else state
    return with_journals(start_of(run.opened_from), state)  # type: ignore[no-any-return]


def _first_step(run: Any) -> int | None:
    course: Course = run.course
    if course.state is None:
        return 0
    told = _told_by(run.opened_from, course.state)
    return course.step if told is None else told


def _told_by(dataset: Any, state: State | None) -> int | None:
    """Return the step of a state of which the last stage keeps count."""
    tell: Callable[[Any], int] | None = getattr(dataset, "step_in", None)
    return None if tell is None or state is None else tell(state)


def counts_failed(dataset: Any) -> bool:
    """Return whether an element that fails is a step of a pipeline, too."""
    return hasattr(dataset, "step_in") or steps_of(dataset) is not None


def step_of(run: Any) -> int | None:
    """Return the step that a run returns next; None if that is not known."""
    state: Any = run.get_state()
    if is_steered(state):
        return int(state[STEERED]["step"])
    steps = steps_of(run.opened_from)
    if steps is not None and (step := steps.step_of(state)) is not None:
        return step
    if (told := _told_by(run.opened_from, state)) is not None:
        return told
    first, (_, got) = _first_step(run), run.recent
    return None if first is None else first + got - run.course.taken


def start_of(dataset: Any) -> State:
    """Return the state of a pipeline before its first element."""
    with opened(dataset, None) as iterator:
        return iterator.get_state()


@contextlib.contextmanager
def opened(
    dataset: Any, state: State | None, worker: tuple[int, int] = (0, 1)
) -> Iterator[DatasetIterator[Any]]:
    """Open the stages of a graph at a position, in this process and apart from any run.

    Args:
        dataset: The last stage.
        state: The position; None for the first element.
        worker: The share that the graph is, and the number of shares: they have random numbers.
    """
    # A filter that drops many elements was reported already.
    options = DatasetOptions(filter_warn_threshold_ratio=None, filter_raise_threshold_ratio=None)
    context = runs.RunContext(options, *worker)
    if rules := rules_of(dataset):
        context.account = Collector(rules, defers=False)  # Neither limits nor logs them again.
    with runs.entered(context):
        iterator: DatasetIterator[Any] = dataset.open()
    try:
        if state is not None:
            iterator.set_state(copy.deepcopy(state))
        yield iterator
    finally:
        iterator.close()


def _element_at(traced: Any, place: Place, worker: tuple[int, int]) -> Any:
    with opened(traced, place.state, worker) as iterator:
        left = place.ahead
        while True:
            try:
                element = next(iterator)
            except (StopIteration, UnknownPositionError):
                raise
            except Exception as error:
                is_it = place.is_exact or (place.counts_failed and not left)
                if is_interruption(error) or is_it:
                    raise
                left -= place.counts_failed
                continue
            if not left:
                return element
            left -= 1
