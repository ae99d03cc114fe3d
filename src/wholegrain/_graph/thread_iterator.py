"""An iterator that a thread runs ahead."""

from __future__ import annotations

import weakref
from typing import Any

from wholegrain._core.place import KeptPlace
from wholegrain._core.state import copy_state
from wholegrain._core.tracebacks import keep_user_frames
from wholegrain._core.types import State, T
from wholegrain._engine.background import Background
from wholegrain._graph.iterator import DatasetIterator, check_state_of, closed_error


def check_buffer_size(size: int) -> None:
    """Refuse a buffer that cannot be."""
    if size < 0:
        raise ValueError(
            f"`prefetch_buffer_size` cannot be negative, but got {size}. 0 switches it off."
        )


class ThreadPrefetchDatasetIterator(KeptPlace, DatasetIterator[T]):
    """A position in what a thread runs ahead: that of the last element handed out.

    Args:
        parent: An iterator; besides a DatasetIterator anything with `__next__`, `get_state` and
            `set_state` will do.
        prefetch_buffer_size: How many finished elements may wait; 0 does nothing.
    """

    keeps_time = True
    closes_when_dropped = False  # It would wait for its thread.

    _state = KeptPlace.kept_state  # Of the last element handed out; None if the parent's is it.

    def __init__(self, parent: Any, prefetch_buffer_size: int) -> None:
        super().__init__((parent,))
        check_buffer_size(prefetch_buffer_size)
        self.parent = parent
        self._buffer_size = prefetch_buffer_size
        self._keeps_state = getattr(parent, "moves_at_end", True)
        self._background: Background | None = None
        self._finalizer: weakref.finalize[Any, Any] | None = None
        self._state = None
        self._count = 0
        self._count_is_known = True
        self._closed = False

    def __next__(self) -> T:
        try:
            background = self._background
            if background is None:
                if self._closed:
                    raise closed_error()
                if not self._buffer_size:
                    return self._next_of_parent()
                background = self._start()
            if background.results or self.observed is None:
                element, state = background.take()
            else:
                with self.observed.waiting(self):
                    element, state = background.take()
            error = Background.error_of(element)
            if error is not None:
                self._stop()
                if not isinstance(error, StopIteration):
                    self._state = state  # Behind the element that failed.
                    self._count += 1
                try:
                    raise error
                finally:
                    # The error knows this frame: it must not know the error, or neither goes.
                    del error, element
            self._state = state
            self._count += 1
            return element  # type: ignore[no-any-return]
        except Exception as error:
            keep_user_frames(error)
            raise

    def _next_of_parent(self) -> T:
        """Take an element without running ahead. The end leaves the state as it is."""
        parent, keeps_state = self.parent, self._keeps_state
        if keeps_state and self._state is None:
            self._state = parent.get_state()
        try:
            element: T = next(parent)
        except StopIteration:
            raise
        except Exception:
            if keeps_state:
                self._state = parent.get_state()
            self._count += 1
            raise
        if keeps_state:
            self._state = parent.get_state()
        self._count += 1
        return element

    def _start(self) -> Background:
        parent = self.parent
        get_state = parent.get_state
        if self._state is None:
            # The one to give while nothing has been handed out.
            self._state = get_state()

        def step() -> tuple[Any, Any]:
            return next(parent), get_state()

        self._background = Background(step, get_state, self._buffer_size)
        # The thread must not keep this iterator alive, nor outlive it.
        self._finalizer = weakref.finalize(self, self._background.stop, wait=False)
        self._finalizer.atexit = False
        return self._background

    def _stop(self) -> None:
        """Stop the thread and forget what it has ready."""
        if self._background is not None:
            self._background.stop()
            self._background = None
        if self._finalizer is not None:
            self._finalizer.detach()
            self._finalizer = None

    @property
    def buffer_size(self) -> int:
        """How many finished elements may wait."""
        return self._buffer_size

    def with_buffer(self, buffer_size: int) -> ThreadPrefetchDatasetIterator[T]:
        """Run ahead from now on, if it did not before."""
        self._buffer_size = buffer_size
        return self

    def not_from_start(self) -> ThreadPrefetchDatasetIterator[T]:
        """Note that the parent may have given elements before: it has to say how many."""
        self._count_is_known = False
        return self

    def start_prefetch(self) -> None:
        if self._closed:
            raise closed_error()
        if self._buffer_size and self._background is None:
            self._start()

    def check_state(self, state: State) -> None:
        check_state_of(self.parent, state)

    def set_state(self, state: State) -> None:
        self.check_state(state)
        self._stop()
        try:
            self.parent.set_state(state)
        except Exception:
            # The thread has run ahead of the consumer, who may go on.
            if self._state is not None:
                self.parent.set_state(copy_state(self._state))
            raise
        self._state = None
        self._count_is_known = False

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        if self._background is not None:
            self._stop()
        super().close()

    def progress(self) -> Any:
        return self._count

    def _get_next_index(self) -> int:
        if not self._count_is_known:
            # The parent has to stand where the consumer does, to be asked.
            state = self.get_state()
            self._stop()
            if self._state is not None:
                self.parent.set_state(state)
                self._state = None
            self._count = self._ask_parent()._get_next_index()
            self._count_is_known = True
        return self._count

    def _set_next_index(self, index: int) -> None:
        self._stop()
        self._state = None
        self._ask_parent()._set_next_index(index)
        self._count, self._count_is_known = index, True

    def _ask_parent(self) -> DatasetIterator[Any]:
        if not isinstance(self.parent, DatasetIterator):
            raise ValueError(
                f"{type(self.parent).__name__} is no DatasetIterator: its next index is not known."
            )
        return self.parent

    def __str__(self) -> str:
        return f"ThreadPrefetchDatasetIterator(prefetch_buffer_size={self._buffer_size})"
