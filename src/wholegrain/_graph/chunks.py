"""Chunks in which each element is read exactly once; elements that fail become Failures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from wholegrain._core.errors import add_stage_note
from wholegrain._core.failure import Failure, PartlyFailed, can_be_recorded, raise_once
from wholegrain._core.tolerated import replaced, with_element

Step = Callable[..., Any]
"""`step(results, elements, *more)` appends one result per element and raises if one fails."""


def for_each(
    step: Step,
    stage: Any,
    indices: Any,
    elements: Any,
    *more: Any,
    which: Callable[[BaseException], Any] | None = None,
) -> list[Any]:
    """Return the results of a step for all elements of a chunk, with Failures where it fails.

    A step appends each result as soon as it has it. After an exception, the number of results
    therefore says which element failed, and processing continues with the next one. The step is
    not called for elements that are already Failures: they keep their position.

    Args:
        step: Processes the elements one after the other.
        stage: The dataset that runs the step.
        indices: The indices of the elements in that dataset.
        elements: The chunk.
        more: Further sequences, with one item per element.
        which: Returns the stage that raised an exception, if that may differ from `stage`.
    """
    results: list[Any] = []
    if type(elements) is not PartlyFailed:
        try:
            step(results, elements, *more)
            if len(results) == len(elements):
                return results
            raise StopIteration  # The function raised it, and `map` treated it as the end.
        except BaseException as error:
            _record(error, results, stage, indices, which)
    return _go_on(results, step, stage, indices, elements, *more, which=which)


def after_failure(
    error: BaseException, results: list[Any], step: Step, stage: Any, elements: Sequence[Any]
) -> PartlyFailed:
    """Return the results of a step that raised `error` after it had appended `results`."""
    positions = range(len(elements))
    _record(error, results, stage, positions, None)
    return _go_on(results, step, stage, positions, elements)


def _go_on(
    results: list[Any],
    step: Step,
    stage: Any,
    indices: Any,
    elements: Any,
    *more: Any,
    which: Callable[[BaseException], Any] | None = None,
) -> PartlyFailed:
    """Continue a step that has produced `results`, and return all of its results."""
    failed = PartlyFailed(results)
    while (start := len(failed)) < len(elements):
        stop = len(elements)
        if type(elements) is PartlyFailed:
            stop = elements.next_failure(start)
            if stop == start:
                if replaced(elements[start]):
                    _replace(failed, step, stage, indices, elements, *more, which=which)
                else:
                    failed.append(elements[start])
                continue
        try:
            step(failed, elements[start:stop], *[column[start:stop] for column in more])
            if len(failed) < stop:
                raise StopIteration
        except BaseException as error:
            _record(error, failed, stage, indices, which)
    return failed


def _replace(
    results: list[Any],
    step: Step,
    stage: Any,
    indices: Any,
    elements: Any,
    *more: Any,
    which: Callable[[BaseException], Any] | None = None,
) -> None:
    """Run a step for an element that replaces a failed one, which stays noted."""
    at = len(results)
    made: list[Any] = []
    try:
        step(made, [elements[at].error.element], *[column[at : at + 1] for column in more])
        if not made:
            raise StopIteration
        results.append(with_element(elements[at], made[0]))
    except BaseException as error:
        _record(error, results, stage, indices, which)


def _record(
    error: BaseException,
    results: list[Any],
    stage: Any,
    indices: Any,
    which: Callable[[BaseException], Any] | None,
) -> None:
    """Record an exception at the position of the element that raised it."""
    if not can_be_recorded(error):
        raise error
    position = len(results)
    if which is not None:
        stage = which(error)
    results.append(Failure(error, stage, int(indices[position])))
    if isinstance(error, StopIteration) and not getattr(stage, "parents", True):
        # The source has ended, so no elements follow.
        results.extend(results[-1:] * (len(indices) - position - 1))


def read_bulk(reader: Any, method: str, positions: list[int], stage: Any, indices: Any) -> Any:
    """Read a chunk with one call of a method. If that fails, read the elements one by one.

    If no element then fails with the same error, that error is raised before the first element.

    Args:
        reader: A source or a dataset.
        method: The name of its method that reads the elements at many positions.
        positions: The positions to read.
        stage: The dataset that reads.
        indices: The indices of the elements in that dataset.
    """
    try:
        elements = getattr(reader, method)(positions)
    except BaseException as error:
        if not can_be_recorded(error):
            raise
        return read_after(error, reader.__getitem__, positions, stage, indices)
    if len(elements) != len(positions):
        raise ValueError(
            f"`{type(reader).__name__}.{method}` was asked for {len(positions)} elements, but"
            f" returned {len(elements)}. It has to return one for each index, in that order."
        )
    # Extending a list by an array would add to the array instead.
    return elements if type(elements) in (list, PartlyFailed) else list(elements)


def read_after(
    error: BaseException, read_one: Callable[[int], Any], positions: Any, stage: Any, indices: Any
) -> Any:
    """Read the elements of a chunk one by one, after reading it as a whole failed."""
    elements = read_singly(read_one, positions, stage, indices)
    if not any(type(one) is Failure for one in elements):
        raise_once(_as_transient(error, stage, indices))
    return elements


def _as_transient(error: BaseException, stage: Any, indices: Any) -> BaseException:
    if isinstance(error, StopIteration):
        stopped = RuntimeError(f"{stage} raised StopIteration for a chunk, but has elements in it.")
        stopped.__cause__ = error
        return stopped
    add_stage_note(
        error,
        f"This happened in {stage}, which read {len(indices)} elements by one call. Read one by one"
        " none of them failed; they follow.",
    )
    return error


def read_singly(read_one: Callable[[int], Any], positions: Any, stage: Any, indices: Any) -> Any:
    """Read a chunk with one call per element."""
    return for_each(lambda out, some: out.extend(map(read_one, some)), stage, indices, positions)


def raise_failure(failure: Failure) -> NoReturn:
    """Raise the exception that a Failure recorded."""
    _raise_in(failure.stage, failure.at, failure.error.with_traceback(failure.traceback))


def _raise_in(self: Any, index: int, error: BaseException) -> NoReturn:
    # `add_read_note` finds the stage in the traceback by the names of these arguments.
    raise error
