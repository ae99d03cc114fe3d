"""Iterable nodes and iterators that call a user's function for each element of their parent."""

from __future__ import annotations

import abc
import operator
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, NoReturn

from wholegrain._core.failure import Failure, can_be_recorded
from wholegrain._core.names import transform_name
from wholegrain._core.origins import TracedCall
from wholegrain._core.types import State, T
from wholegrain._graph import fusion
from wholegrain._graph.iterator import DatasetIterator, TransformIterator, go_to_state_of
from wholegrain._graph.kinds import OneParentIterNode, spec_after
from wholegrain._graph.pace import Inputs
from wholegrain._graph.user_functions import method_or_function
from wholegrain._state import workers

if TYPE_CHECKING:
    from wholegrain._graph.tracing import Tracer


class FunctionIterNode(OneParentIterNode[T]):
    """An iterable node that calls a user's function for each element."""

    takes: ClassVar[tuple[str, str]]
    """The class of `transforms` whose objects it takes, and the method that is called."""

    element_argument: ClassVar[int] = 0
    """Which argument of the function is the element."""

    def __init__(self, parent: Any, transform: Any) -> None:
        super().__init__(parent)
        self.function_of(transform)  # Raise here, not when the first element is read.
        self._transform = transform

    @classmethod
    def function_of(cls, transform: Any) -> Callable[..., Any]:
        """Return the function to call."""
        return method_or_function(transform, *cls.takes)

    def _traced(self, tracer: Tracer) -> Any:
        traced = tracer.passing(self)
        traced._transform = self._traced_function(self.function_of(self._transform))
        return traced

    def _traced_function(self, function: Callable[..., Any]) -> Callable[..., Any]:
        return TracedCall(function, self.element_argument)

    @property
    def _element_spec(self) -> Any:
        return spec_after(self._transform, self._parent)

    def __str__(self) -> str:
        return f"{type(self).__name__}(transform={transform_name(self._transform)})"


class FunctionIterator(TransformIterator[T]):
    """An iterator that calls a user's function for each element of its parent.

    It reads chunks if its parent supports `put_back`. The function is called once per element.
    """

    def __init__(self, parent: DatasetIterator[Any], transform: Any) -> None:
        super().__init__(parent)
        self._transform = transform
        self._chunks = parent.takes_back
        self._inputs = Inputs()

    @property
    def takes_back(self) -> bool:
        return self._chunks

    def raise_explained(self, failure: Failure) -> NoReturn:
        """Raise, with a note, the function's exception for an element that was passed over."""
        error = failure.error.with_traceback(failure.traceback)
        try:
            self.explain(error, self._transform)
            raise error
        finally:
            del error, failure  # Their traceback refers to this frame: break the cycle.

    def forget_read(self) -> None:
        """Drop what was read ahead of the position."""

    def go_to(self, state: State) -> None:
        super().go_to(state)
        self.forget_read()

    def close(self) -> None:
        self.forget_read()
        super().close()

    def __str__(self) -> str:
        return f"{type(self).__name__}(transform={transform_name(self._transform)})"


class ElementIterator(FunctionIterator[T]):
    """An iterator that returns exactly one element for each element of its parent.

    Several of them in a row process a chunk in one pass: the last one takes the elements from the
    parent of the first one. If a function fails in the middle of a chunk, the results before the
    failed element are returned first. The elements after it are kept by the first iterator of the
    row, whose parent is put back to the failed element and moves forward as they are used.
    """

    kind: ClassVar[str] = fusion.MAP

    def __init__(
        self, parent: DatasetIterator[Any], transform: Any, function: Callable[..., Any]
    ) -> None:
        super().__init__(parent, transform)
        self._function = function
        self._row: _Row | None = None  # The row that ends here; None: not known.
        self._failed: _Failed | None = None  # Whose function failed at the next element, and how.
        self._read: list[Any] = []  # Elements of the parent that were put back.
        self._put_back = 0  # How many elements before the failed one were put back.

    @property
    def moves_at_end(self) -> bool:
        return self.parent.moves_at_end

    def arguments(self) -> tuple[Any, ...]:
        """Return the arguments of `fusion.one_pass` for the function of this iterator."""
        return (self._function,)

    def counted(self, count: int) -> None:
        """Count elements; `count` is negative for elements that are put back."""

    def __next__(self) -> T:
        if self._failed is not None or self._read:
            return self.take(1)[0]
        element = next(self.parent)
        if element is None and self.kind != fusion.ANY:
            return None  # type: ignore[return-value]
        try:
            return self._function(element)  # type: ignore[no-any-return]
        except Exception as error:
            self.explain(error, self._transform)
            raise

    def take(self, count: int) -> list[T]:
        if not self._chunks:
            return super().take(count)
        if self._put_back:  # Elements before the failed one are read again.
            self.forget_read()
        if self._failed is not None:
            self._raise_failed()
        row = self._row
        if row is None:
            row = self._row = _Row(self)
        elements = row.first(self).next_inputs(count)
        results: list[T] = []
        try:
            row.run(self, results, elements)
        except BaseException as error:
            self._fail(row, error, elements, len(results))
        for stage in row.counting:
            stage.counted(len(results))
        self.counted(len(results))
        if not results and self._failed is not None:
            self._raise_failed()
        return results

    def next_inputs(self, count: int) -> list[Any]:
        """Return the next elements of the parent, at most `count`."""
        if self._put_back:
            self.forget_read()
        if not self._read:
            return self._inputs.take(self.parent, count)
        elements, self._read = self._read[:count], self._read[count:]
        self.parent.pass_over(len(elements))
        return elements

    def _fail(self, row: _Row, error: BaseException, elements: list[Any], done: int) -> None:
        """Put the elements back that have no result, and note which function failed."""
        first = row.first(self)
        first.parent.put_back(len(elements) - done)
        if not can_be_recorded(error):
            raise error
        first._read[:0] = elements[done + 1 :]
        self._failed = row.failed(error)

    def _raise_failed(self) -> NoReturn:
        """Move past the element that failed, and raise its error."""
        failed, self._failed = self._failed, None
        assert failed is not None
        stages = [*failed.upstream, self] if failed.is_last else failed.upstream
        stages[0].parent.pass_over(1)
        for stage in stages:
            stage.counted(1)
        try:
            stages[-1].raise_explained(failed.failure)
        finally:
            del failed  # Its traceback refers to this frame: break the cycle.

    def put_back(self, count: int) -> None:
        self.parent.put_back(count)
        self.counted(-count)
        if self._failed is not None or self._read:
            self._put_back += count

    def pass_over(self, count: int) -> None:
        self.parent.pass_over(count)
        self.counted(count)
        if self._failed is not None or self._read:
            self._put_back -= count

    def forget_read(self) -> None:
        self._failed, self._read, self._put_back = None, [], 0

    def link(self, change: Callable[[Any], Any]) -> None:
        super().link(change)
        self._row = None

    def close(self) -> None:
        super().close()
        self._row = None

    def _get_next_index(self) -> int:
        return self.parent._get_next_index()

    def _set_next_index(self, index: int) -> None:
        self.parent._set_next_index(index)
        self.forget_read()


class CountingIterator(ElementIterator[T]):
    """An ElementIterator whose function depends on the number of elements before.

    That number is the only one of its `state_fields`.
    """

    def __init__(
        self, parent: DatasetIterator[Any], transform: Any, function: Callable[..., Any]
    ) -> None:
        super().__init__(parent, transform, function)
        self.count = 0

    @abc.abstractmethod
    def call(self, element: Any, number: int) -> T:
        """Return the result for an element that has `number` elements before it."""

    def __next__(self) -> T:
        if self._failed is not None or self._read:
            return self.take(1)[0]
        element = next(self.parent)
        number = self.count
        self.count = number + 1
        if element is None:
            return None  # type: ignore[return-value]
        try:
            return self.call(element, number)
        except Exception as error:
            self.explain(error, self._transform)
            raise

    def counted(self, count: int) -> None:
        self.count += count

    def get_state(self) -> State:
        return {"parent": self.parent.get_state(), self.state_fields[0]: self.count}

    def go_to(self, state: State) -> None:
        state = workers.join(state)
        go_to_state_of(self.parent, state["parent"])
        self.count = operator.index(state[self.state_fields[0]])
        self.forget_read()

    def _get_next_index(self) -> int:
        return self.count

    def _set_next_index(self, index: int) -> None:
        super()._set_next_index(index)
        self.count = index


class _Row:
    """Adjacent ElementIterators, whose functions process a chunk in one pass.

    It does not refer to the last one, which has it: a cycle would delay its collection.
    """

    def __init__(self, last: ElementIterator[Any]) -> None:
        stages = [last]
        while isinstance(parent := stages[0].parent, ElementIterator):
            if stages[0]._read or parent._failed is not None:
                break  # What was computed upstream before they were in a row is kept there.
            stages.insert(0, parent)
        self._upstream = stages[:-1]
        self.counting = [stage for stage in self._upstream if isinstance(stage, CountingIterator)]
        self._run = fusion.one_pass("".join(stage.kind for stage in stages))

    def first(self, last: ElementIterator[Any]) -> ElementIterator[Any]:
        """Return the iterator that reads the elements."""
        return self._upstream[0] if self._upstream else last

    def run(self, last: ElementIterator[Any], results: list[Any], elements: list[Any]) -> None:
        """Append the results for some elements, one by one."""
        if self._upstream:
            stages = [*self._upstream, last]
            self._run(results, elements, *[a for stage in stages for a in stage.arguments()])
        else:
            self._run(results, elements, *last.arguments())

    def failed(self, error: BaseException) -> _Failed:
        """Return whose function raised `error`."""
        step = fusion.failed_step(error) % (len(self._upstream) + 1)
        return _Failed(self._upstream[: step + 1], step == len(self._upstream), Failure(error))


class _Failed(NamedTuple):
    """An error of a function in a row."""

    upstream: Sequence[ElementIterator[Any]]
    """The iterators up to the one whose function failed, without the last of the row."""

    is_last: bool
    """Whether it was the function of the last one."""

    failure: Failure
