"""DatasetIterator: a position in an IterDataset."""

from __future__ import annotations

import abc
import operator
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Self

from wholegrain._core.errors import add_stage_note, has_stage_note
from wholegrain._core.interruption import is_interruption, suppress_errors
from wholegrain._core.names import kind_of, transform_name
from wholegrain._core.types import State, T, T_co
from wholegrain._graph import hints, nodes, run
from wholegrain._graph.asked import Asked
from wholegrain._graph.has_mixture import HasMixture
from wholegrain._graph.stats import STATS
from wholegrain._observe import outline
from wholegrain._state import state_dicts, workers
from wholegrain._state.validate import number_of, part_of

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from wholegrain._core.tolerated import FailedRecord
    from wholegrain._observe.report import Report


@hints.with_hints
class DatasetIterator(Asked, HasMixture, abc.ABC, Generic[T_co]):
    """A position in a dataset that moves with `next`, and can be saved and restored.

    A state holds no elements: it is a small dict for JSON that describes the position.
    After `set_state`, exactly the elements follow that followed when the state was taken.

    A subclass has to define `__next__`, `get_state` and `set_state`.

    Example:
        >>> it = iter(ds)
        >>> next(it)
        >>> state = it.get_state()
        >>> it.set_state(state)
    """

    _stats = STATS  # Classes that were written for Grain call it.

    _parents: tuple[DatasetIterator[Any], ...] = ()

    opened_from: Any = None
    """The dataset that it iterates over, which checkpoints describe; None if it is not ours."""

    observed: Any = None
    """The measurements of the run that it belongs to, for reports."""

    keeps_time: ClassVar[bool] = False
    """Whether it measures by itself, for reports, how long it waits for its parent."""

    observed_as: Any = None
    """The dataset under which reports list it."""

    closes_when_dropped: ClassVar[bool] = True
    """Whether dropping it has to call `close`, for example because it may hold open files."""

    def __init__(self, parents: DatasetIterator[Any] | Sequence[DatasetIterator[Any]] = ()) -> None:
        self._parents = tuple(parents) if isinstance(parents, Sequence) else (parents,)

    @property
    def _parent(self) -> Any:
        (parent,) = self._parents
        return parent

    def __iter__(self) -> Self:
        return self

    @abc.abstractmethod
    def __next__(self) -> T_co:
        """Return the next element."""

    def take(self, count: int) -> list[T_co]:
        """Return some of the next elements: at least one and at most `count`; none at the end.

        The effect is that of calling `next` for each of them. An exception is raised only for the
        first element: if a later one fails, the elements before it are returned. If fewer than
        `count` are returned, the state may be the one after the end was found.
        """
        try:
            return [next(self)]
        except StopIteration:
            return []

    @property
    def takes_back(self) -> bool:
        """Whether `put_back` works, so that elements may be taken before they are needed."""
        return False

    def put_back(self, count: int) -> None:
        """Move back over the last `count` elements of the last `take`.

        The caller keeps the results that it has computed from them, and calls `pass_over` when it
        returns those results, so that no function is called twice for an element.
        """
        raise NotImplementedError

    def pass_over(self, count: int) -> None:
        """Move forward over elements that were put back."""
        raise NotImplementedError

    @property
    def moves_at_end(self) -> bool:
        """Whether finding the end may change the state."""
        return True

    @property
    def reads_ahead(self) -> bool:
        """Whether it reads ahead of the consumer by itself once `start_prefetch` was called."""
        return False

    @abc.abstractmethod
    def get_state(self) -> State:
        """Return the position after the last element that `next` returned."""

    @abc.abstractmethod
    def set_state(self, state: State) -> None:
        """Go to a position that `get_state` returned, in this or another run."""

    def state_dict(self) -> dict[str, Any]:
        """Return the position as PyTorch's programs save it: a dict with text in it."""
        return state_dicts.to_state_dict(self.get_state())

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go to a position that `state_dict` returned, in this or another run."""
        self.set_state(state_dicts.of_state_dict(state_dict))

    def check_state(self, state: State) -> None:
        """Raise if a state cannot belong to this iterator; do not move.

        Everything that can be checked without reading has to be checked here, so that `set_state`
        moves either all stages of a pipeline or none.
        """

    def go_to(self, state: State) -> None:
        """Go to a position that `check_state` of the whole pipeline has accepted."""
        self.set_state(state)

    def start_prefetch(self) -> None:
        """Start reading ahead before the first element is requested."""
        for parent in self._parents:
            parent.start_prefetch()

    def close(self) -> None:
        """Stop threads and processes. `next` is an error afterwards."""
        for parent in self._parents:
            close = getattr(parent, "close", None)
            if close is not None:
                close()

    _is_finalizing = staticmethod(sys.is_finalizing)

    def __del__(self) -> None:
        # During interpreter shutdown everything is closed already, and modules are half gone.
        if self.closes_when_dropped and not self._is_finalizing():
            with suppress_errors():  # No caller could handle the error.
                self.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def report(self) -> Report:
        """Report what is slow in this pipeline, and why. Print the report or read its fields.

        For each stage it contains the share of time, elements, bytes and waiting. It also says how
        long the training loop waited for data, which stage limits it, and what would help.
        `save_html(path)` writes it as a page.

        Example:
            >>> print(it.report())
        """
        from wholegrain._observe.report import report_of  # Slow to import and rarely needed.

        return report_of(self)

    def headspace(self) -> float | None:
        """Return how many times as fast the training loop could be before data is the limit.

        Below 1, data is the limit already. None if there are not enough measurements yet.
        """
        return self.report().headspace

    def errors(self) -> list[FailedRecord]:
        """Return the failures that `on_error` has tolerated in this run, in their order."""
        return [record for parent in self._parents for record in parent.errors()]

    def get_report(self) -> Any:
        """Return the measurements of this run as plain values, which a worker can send."""
        return None if self.observed is None else self.observed.snapshot()

    def tell_report(self) -> None:
        """Pass the latest measurements of the workers upstream to the run."""
        for parent in self._parents:
            tell_report = getattr(parent, "tell_report", None)
            if tell_report is not None:
                tell_report()

    def describe_workers(self) -> list[str]:
        """Describe the workers upstream that a backend has started elsewhere."""
        describe = [getattr(parent, "describe_workers", list) for parent in self._parents]
        return [text for one in describe for text in one()]

    def catch_up(self) -> None:
        """Add the work since the last measurement to the measurements of the run."""

    def link(self, change: Callable[[Any], Any]) -> None:
        """Replace each iterator that this one reads from by `change(iterator)`.

        The replacement returns the same elements; it only adds or removes a clock. The thread that
        reads from this iterator calls this, between two elements or in the middle of one.
        """
        if self._parents:
            self._parents = tuple(map(change, self._parents))

    is_within_chunk = False
    """Whether the last element came from a chunk that was ready, so the consumer did not wait."""

    def progress(self) -> Any:
        """Return a value that changes when an element is taken; None if there is no such value."""
        found = tuple(parent.progress() for parent in self._parents)
        return None if None in found or not found else found

    async def save(self, directory: Any) -> Coroutine[Any, Any, None]:
        """Take the state now, and return a coroutine that writes it into `directory`."""
        from wholegrain._state import files  # Slow to import and rarely needed.

        return files.save_later(self, directory)

    async def load(self, directory: Any) -> Coroutine[Any, Any, None]:
        """Return a coroutine that reads the state from `directory` and goes there."""
        from wholegrain._state import files

        return files.restore_later(self, directory)

    def _get_next_index(self) -> int:
        raise NotImplementedError(f"{type(self).__name__} does not count its elements.")

    def _set_next_index(self, index: int) -> None:
        raise NotImplementedError(f"{type(self).__name__} cannot go to an element by its index.")

    def __reduce__(self) -> Any:
        raise TypeError(
            "An iterator cannot be pickled: it holds threads and open files. Pickle the dataset,"
            " and the iterator's `get_state()`."
        )

    def __str__(self) -> str:
        return type(self).__name__

    def __repr__(self) -> str:
        kind = type(self).__name__
        if self.opened_from is None:
            return f"<{kind}>"
        return f"<{kind} of {outline.line(self.opened_from)}>"

    def __dir__(self) -> list[str]:
        return hints.names_of(self)


class StageIterator(DatasetIterator[T]):
    """An iterator of this library. It checks a state as a whole before any stage moves."""

    def set_state(self, state: State) -> None:
        self.check_state(state)
        before = self.get_state()
        try:
            self.go_to(state)
        except Exception:
            # Reading on the way to the position showed that it cannot be reached.
            with suppress_errors():
                self.go_to(before)
            raise

    @abc.abstractmethod
    def go_to(self, state: State) -> None:
        """Go to a position that `check_state` has accepted; parents by `go_to_state_of`."""


class ClosedIterator(DatasetIterator[Any]):
    """Replaces the parent of a closed iterator, so that an open one needs no check."""

    def __init__(self, closed: DatasetIterator[Any]) -> None:
        super().__init__()
        self._closed = closed

    def __next__(self) -> Any:
        raise closed_error()

    def take(self, count: int) -> list[Any]:
        raise closed_error()

    def get_state(self) -> State:
        return self._closed.get_state()

    def set_state(self, state: State) -> None:
        raise closed_error()

    def start_prefetch(self) -> None:
        raise closed_error()


def closed_error() -> ValueError:
    """Return the error for using an iterator after `close`."""
    return ValueError(
        "Trying to advance a closed iterator. Make a new one with `iter(ds)`, and restore its"
        " position with `set_state`."
    )


class TransformIterator(StageIterator[T]):
    """An iterator over the elements of one parent.

    The attributes in `state_fields` make up its position; saving and restoring follow from
    them. Without any, the parent's state is the state.
    """

    state_fields: ClassVar[tuple[str, ...]] = ()
    closes_when_dropped = False  # Dropping it drops its reference to the parent.

    def __init__(self, parent: DatasetIterator[Any]) -> None:
        if not isinstance(parent, DatasetIterator):
            raise TypeError(
                "`__iter__` of an IterDataset has to return a DatasetIterator, with `__next__`,"
                f" `get_state` and `set_state`, but one returned {kind_of(parent)}."
            )
        super().__init__((parent,))
        self.parent: DatasetIterator[Any] = parent
        self.context = run.current()

    def get_state(self) -> State:
        fields = self.state_fields
        if not fields:
            return self.parent.get_state()
        if len(fields) == 1:  # The usual case: a dict display is faster than adding keys.
            name = fields[0]
            return {"parent": self.parent.get_state(), name: getattr(self, name)}
        state: State = {"parent": self.parent.get_state()}
        for name in fields:
            state[name] = getattr(self, name)
        return state

    def go_to(self, state: State) -> None:
        if not self.state_fields:
            go_to_state_of(self.parent, state)
            return
        state = workers.join(state)
        go_to_state_of(self.parent, state["parent"])
        for name in self.state_fields:
            setattr(self, name, operator.index(state[name]))

    def check_state(self, state: State) -> None:
        if self.state_fields:
            self.check_parts(workers.join(state), "parent", *self.state_fields)
        else:
            check_state_of(self.parent, state)

    def check_parts(self, state: State, parent: str, *numbers: str) -> None:
        """Check that a state has these numbers, and a parent's state under the key `parent`."""
        for name in numbers:
            number_of(state, name, self)
        check_state_of(self.parent, part_of(state, parent, self))

    def link(self, change: Callable[[Any], Any]) -> None:
        if not isinstance(self.parent, ClosedIterator):
            self.parent = change(self.parent)
            self._parents = (self.parent,)

    def close(self) -> None:
        super().close()
        if not isinstance(self.parent, ClosedIterator):
            self.parent = ClosedIterator(self.parent)
            self._parents = (self.parent,)

    def explain(self, error: BaseException, function: Any) -> None:
        """Add a note that says where a user's function failed; the caller raises `error` again."""
        if isinstance(error, StopIteration):
            # Raised as it is, it would end the loop as if the data had ended.
            name = transform_name(function)
            raise self._noted(RuntimeError(f"{name} raised StopIteration.")) from error
        self._noted(error)

    def _noted(self, error: BaseException) -> BaseException:
        if not has_stage_note(error):
            try:
                position = f"the position {self.get_state()}"
            except Exception as another:
                if is_interruption(another):
                    raise
                position = "the current position"
            add_stage_note(error, f"This happened in {self}, at the element before {position}.")
        return error

    def check_open(self) -> None:
        """Raise if the iterator was closed."""
        if isinstance(self.parent, ClosedIterator):
            raise closed_error()


def check_state_of(iterator: Any, state: State) -> None:
    """Check a state for an iterator that need not be one of ours."""
    check = getattr(iterator, "check_state", None)
    if check is not None:
        check(state)


def go_to_state_of(iterator: Any, state: State) -> None:
    """Bring an iterator, which need not be one of ours, to a state that was checked for it."""
    getattr(iterator, "go_to", iterator.set_state)(state)


def run_ahead(iterator: DatasetIterator[T], buffer_size: int) -> DatasetIterator[T]:
    """Return an iterator of the same elements, which a thread reads ahead.

    At the end it keeps the state of the last element. With a buffer of 0 there is no thread.
    """
    return nodes.run_ahead(iterator, buffer_size)


def get_next_index(ds_iter: DatasetIterator[Any]) -> int:
    """Return the index of the element that `next` returns next.

    Raises:
        NotImplementedError: If the number of elements produced does not follow from the
            position, as after a filter.
    """
    return ds_iter._get_next_index()


def set_next_index(ds_iter: DatasetIterator[Any], index: int) -> None:
    """Go to the element at `index`, counted in elements that the iterator produces."""
    ds_iter._set_next_index(index)
