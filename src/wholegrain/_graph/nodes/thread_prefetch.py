"""Runs a pipeline ahead in a thread."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable
from typing import Any

from wholegrain._core.autotune_parameter import AutotuneParameter, plain_int
from wholegrain._core.failure import can_be_recorded
from wholegrain._core.types import State, T
from wholegrain._core.whole_number import whole_count
from wholegrain._graph import run
from wholegrain._graph.carrier import carrying, unpacking
from wholegrain._graph.iterator import (
    DatasetIterator,
    StageIterator,
    check_state_of,
    closed_error,
    go_to_state_of,
)
from wholegrain._graph.kinds import AnyDataset, OneParentIterNode
from wholegrain._graph.returned import Returned
from wholegrain._observe.shown import THREAD
from wholegrain._read.background import QUICK_SECONDS, Background
from wholegrain._read.waiting import Probe
from wholegrain._state.spec import CheckpointSpec
from wholegrain._state.validate import copy_state

# After this many elements, decide whether a thread is worth it; then wait longer each time.
_FIRST_STEPS, _MOST_STEPS = 16, 4096

# This many slow measurements in a row are not noise.
_SLOW_LOOKS = 2


class ThreadPrefetchIterDataset(OneParentIterNode[T]):
    """The parent, run ahead in a thread of its own.

    Args:
        parent: The dataset to run ahead.
        prefetch_buffer_size: The maximum number of finished elements to hold; 0 disables it. It may
            be an `experimental.AutotuneParameter`.
    """

    keeps_size = True
    runs_ahead = THREAD
    only_chooses = True
    checkpoint = CheckpointSpec(free=("prefetch_buffer_size",), position="parent")

    def __init__(
        self, parent: AnyDataset[T], *, prefetch_buffer_size: int | AutotuneParameter
    ) -> None:
        super().__init__(parent)
        checked_buffer_size(prefetch_buffer_size)
        self._prefetch_buffer_size = prefetch_buffer_size

    def open(self) -> DatasetIterator[T]:
        context, size = run.current(), self._prefetch_buffer_size
        if context.account is None:
            parent = self._parent.__iter__()
        else:
            parent = carrying(self._parent, context, self._open_parent)
        iterator: ThreadPrefetchDatasetIterator[T] = ThreadPrefetchDatasetIterator(
            parent, plain_int(size)
        )
        if isinstance(size, AutotuneParameter):
            size.follow(iterator.follow_buffer_size)
        return unpacking(iterator, self, context.account)  # type: ignore[no-any-return]

    def _open_parent(self, context: run.RunContext) -> Any:
        with run.entered(context):
            return self._parent.__iter__()

    def _label(self) -> str:
        return f"thread prefetch (buffer {plain_int(self._prefetch_buffer_size)})"

    def _about(self, name: str) -> str:
        ahead = plain_int(self._prefetch_buffer_size)
        return f"{name}: a thread runs everything upstream, up to {ahead} elements ahead."

    def __str__(self) -> str:
        return f"ThreadPrefetchIterDataset(prefetch_buffer_size={self._prefetch_buffer_size})"


def run_ahead(iterator: DatasetIterator[T], buffer_size: int) -> DatasetIterator[T]:
    """Return an iterator that runs ahead in a thread, starting at the current position."""
    if type(iterator) is ThreadPrefetchDatasetIterator:
        iterator.run_ahead_by(buffer_size)
        return iterator
    return ThreadPrefetchDatasetIterator(iterator, buffer_size).not_from_start()


def checked_buffer_size(given: Any) -> int:
    """Return the size of a buffer; raise if it is negative."""
    size = whole_count("prefetch_buffer_size", plain_int(given))
    if size < 0:
        raise ValueError(
            f"`prefetch_buffer_size` cannot be negative, but got {size}. 0 switches it off."
        )
    return size


class _Upstream:
    """The iterator that a thread reads from. Only that thread replaces it, to avoid a race."""

    def __init__(self, iterator: Any) -> None:
        self.iterator = iterator
        self.change: Callable[[Any], Any] | None = None

    def relink(self) -> None:
        """Apply the change that `link` has requested."""
        change, self.change = self.change, None
        if change is not None:
            self.iterator = change(self.iterator)


class ThreadPrefetchDatasetIterator(StageIterator[T]):
    """A position in a pipeline that a thread runs ahead: after the last element returned.

    If elements are so cheap that handing them over between threads costs more than computing them,
    the thread ends. The consumer then computes them itself until they become slow again.

    Args:
        parent: A DatasetIterator, or any object with `__next__`, `get_state` and `set_state`.
        prefetch_buffer_size: The maximum number of finished elements to hold; 0 disables it.
    """

    keeps_time = True
    closes_when_dropped = False  # `close` would wait for the thread; the finalizer does not.

    def __init__(self, parent: Any, prefetch_buffer_size: int) -> None:
        super().__init__((parent,))
        self._upstream = _Upstream(parent)
        self._buffer_size = checked_buffer_size(prefetch_buffer_size)
        self._keeps_state = getattr(parent, "moves_at_end", True)
        self._background: Background | None = None
        self._finalizer: weakref.finalize[Any, Any] | None = None
        self._state: State | None = None  # After the last element; None: ask the parent.
        self._takes_back = getattr(parent, "takes_back", False)
        self._returned: Returned[T] = Returned()  # By the last `take`, if a thread read them.
        self._count = 0
        self._count_is_known = True
        self._closed = False
        # Measures an element now and then while there is no thread because elements are cheap.
        self._probe: Probe | None = None
        self._slow_looks = 0
        self._steps_to_judge = _FIRST_STEPS

    @property
    def parent(self) -> Any:
        """The iterator that it reads from."""
        return self._upstream.iterator

    def link(self, change: Callable[[Any], Any]) -> None:
        self._upstream.change = change

    def __next__(self) -> T:
        if self._returned.again:
            self._count += 1
            element, self._state = self._returned.pass_over(1)
            return element
        try:
            got = None if self._is_without_thread() else self._next_of_thread()
            return self._next_here() if got is None else got[0]
        except Exception:
            if self._closed:  # Another thread closed it meanwhile.
                raise closed_error() from None
            raise

    def _is_without_thread(self) -> bool:
        if self._background is None and self._closed:
            raise closed_error()
        return self._background is None and (self._probe is not None or not self._buffer_size)

    def _next_of_thread(self) -> tuple[T, State] | None:
        """Return the next element and the state after it; None if the thread has ended."""
        background = self._background or self._start()
        if background.results or self.observed is None:
            got = background.take()
        else:
            with self.observed.waiting(self):
                got = background.take()
        if got is None:
            self._end_thread()
            return None
        element, state = got
        error = Background.error_of(element)
        if error is not None:
            self._stop()
            if not isinstance(error, StopIteration):
                self._state = state  # The position after the element that failed.
                self._count += 1
            try:
                raise error
            finally:
                del error, element, got  # Its traceback refers to this frame: break the cycle.
        self._state = state
        self._count += 1
        return got  # type: ignore[no-any-return]

    def take(self, count: int) -> list[T]:
        if self._returned.again or not hasattr(self.parent, "take"):
            return super().take(count)
        self._returned.start()
        if not self._is_without_thread():
            before = self._state or self.parent.get_state()
            try:
                got = self._next_of_thread()
            except StopIteration:
                return []
            if got is not None:
                self._returned.start(before)
                return self._take_ready(got, count)
        return self._take_here(count)

    def _take_ready(self, got: tuple[T, State] | None, count: int) -> list[T]:
        """Return an element of the thread, and the elements after it that are ready."""
        while got is not None:
            self._returned.add(*got)
            results = () if self._background is None else self._background.results
            is_ready = results and Background.error_of(results[0][0]) is None
            got = self._next_of_thread() if is_ready and len(self._returned) < count else None
        return self._returned.elements()

    def _take_here(self, count: int) -> list[T]:
        """Take elements without a thread. The end leaves the state unchanged."""
        self._upstream.relink()
        before = (self._state or self.parent.get_state()) if self._keeps_state else None
        probe = self._probe
        looks = probe is not None and probe.due()
        if probe is not None and looks:
            probe.begin()
        try:
            elements: list[T] = self.parent.take(count)
        except BaseException as error:
            if not can_be_recorded(error):
                raise
            self._state = None
            self._count += 1
            raise
        if probe is not None and looks:
            self._judge(probe, len(elements))
        self._state = None if elements else before
        self._count += len(elements)
        return elements

    @property
    def takes_back(self) -> bool:
        return self._takes_back

    def put_back(self, count: int) -> None:
        self._count -= count
        if self._returned:
            self._state = self._returned.put_back(count)
        else:
            self.parent.put_back(count)

    def pass_over(self, count: int) -> None:
        self._count += count
        if self._returned.again:
            self._state = self._returned.pass_over(count)[1]
        else:
            self.parent.pass_over(count)

    def _end_thread(self) -> None:
        """Continue without a thread, after it has ended because elements are cheap."""
        self._stop()
        if not self._keeps_state:
            self._state = None
        self._probe, self._slow_looks = Probe(), 0

    def _next_here(self) -> T:
        probe = self._probe
        if probe is None or not probe.due():
            return self._next_of_parent()
        probe.begin()
        element = self._next_of_parent()
        self._judge(probe, 1)
        return element

    def _judge(self, probe: Probe, count: int) -> None:
        """Start a thread again if elements are no longer cheap."""
        if not probe.was_slow(count * QUICK_SECONDS):
            self._slow_looks = 0
            return
        self._slow_looks += 1
        if self._slow_looks == _SLOW_LOOKS:
            self._probe = None
            self._steps_to_judge = min(4 * self._steps_to_judge, _MOST_STEPS)

    def _next_of_parent(self) -> T:
        """Take an element without a thread. The end leaves the state unchanged."""
        if self._upstream.change is not None:
            self._upstream.relink()
        parent, keeps_state = self.parent, self._keeps_state
        if keeps_state and self._state is None:
            self._state = parent.get_state()
        try:
            element: T = next(parent)
        except StopIteration:
            raise
        except BaseException as error:
            if not can_be_recorded(error):
                raise
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
            # The state to return until the first element is taken.
            self._state = get_state()
        if not self._count_is_known and isinstance(parent, DatasetIterator):
            # The parent cannot be asked while the thread reads from it.
            with contextlib.suppress(NotImplementedError):
                self._count = parent._get_next_index()
                self._count_is_known = True

        upstream = self._upstream

        def step() -> tuple[Any, Any]:
            if upstream.change is not None:
                upstream.relink()
            return next(upstream.iterator), get_state()

        background = self._background = Background(
            step, get_state, self._buffer_size, self._steps_to_judge
        )
        # The thread must not keep this iterator alive, nor outlive it.
        self._finalizer = weakref.finalize(self, background.stop, wait=False)
        self._finalizer.atexit = False
        background.start()
        if self._closed:  # Another thread closed it before there was a thread to stop.
            self._stop()
            raise closed_error()
        return background

    def _stop(self) -> None:
        """Stop the thread and drop the elements that it has ready."""
        self._returned.start()
        background, self._background = self._background, None
        if background is not None:
            background.stop()
        finalizer, self._finalizer = self._finalizer, None
        if finalizer is not None:
            finalizer.detach()

    def run_ahead_by(self, buffer_size: int) -> None:
        """Run ahead from now on, unless it does so already."""
        self._buffer_size = self._buffer_size or buffer_size

    def follow_buffer_size(self) -> None:
        """Take over the buffer size that `autotune` has changed."""
        size = int(self.opened_from._prefetch_buffer_size)
        if self._buffer_size and size:  # Without a buffer, there is no thread, and never will be.
            self._buffer_size = size
            if self._background is not None:
                self._background.set_buffer_size(size)

    @property
    def buffer_size(self) -> int:
        """How many elements may be available without waiting."""
        return self._buffer_size

    @property
    def ready_count(self) -> int:
        """How many elements are available without waiting."""
        background = self._background
        return 0 if background is None else len(background.results)

    def not_from_start(self) -> ThreadPrefetchDatasetIterator[T]:
        """Note that the parent may not be at its start, so it has to be asked for its index."""
        self._count_is_known = False
        return self

    def start_prefetch(self) -> None:
        if self._closed:
            raise closed_error()
        if self._buffer_size and self._background is None and self._probe is None:
            self._start()

    def get_state(self) -> State:
        state = self._state  # Read once: another thread may close the iterator.
        return self.parent.get_state() if state is None else copy_state(state)  # type: ignore[no-any-return]

    def check_state(self, state: State) -> None:
        check_state_of(self.parent, state)

    def go_to(self, state: State) -> None:
        self._stop()
        go_to_state_of(self.parent, state)
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
        if not self._count_is_known and self._background is not None:
            return self._ask_parent()._get_next_index()  # It raises, as in `_start`.
        if not self._count_is_known:
            # Ask the parent at the consumer's position.
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
                f"{type(self.parent).__name__} is not a DatasetIterator: its next index is unknown."
            )
        return self.parent

    def __str__(self) -> str:
        return f"ThreadPrefetchDatasetIterator(prefetch_buffer_size={self._buffer_size})"
