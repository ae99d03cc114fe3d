"""What the tests of pipelines share: sources that count and fail, and ways to run iterators."""

import faulthandler
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import wholegrain as wg

Result = TypeVar("Result")

# Untyped: the tests look at what types do not say.
R: Any = wg.MapDataset.range
source: Any = wg.MapDataset.source
X: Any = wg.experimental

END = "the end"


class Unreadable(Exception):
    """Raised by sources and functions that fail on purpose."""


class CountingSource:
    """Elements `0..length-1`; counts the reads, and how many of them happen at once.

    Args:
        length: How many elements there are.
        seconds: How long reading one takes: the thread sleeps.
        fails_at: Elements that cannot be read.
    """

    def __init__(self, length: int, seconds: float = 0.0, fails_at: Iterable[int] = ()) -> None:
        self._length = length
        self._seconds = seconds
        self._fails_at = frozenset(fails_at)
        self._lock = threading.Lock()
        self._at_once = 0
        self.reads: list[int] = []
        self.most_at_once = 0
        self.threads: set[str] = set()

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int) -> int:
        with self._lock:
            self.reads.append(index)
            self.threads.add(threading.current_thread().name)
            self._at_once += 1
            self.most_at_once = max(self.most_at_once, self._at_once)
        try:
            if self._seconds:
                time.sleep(self._seconds)
            if index in self._fails_at:
                raise Unreadable(f"record {index}")
            return index
        finally:
            with self._lock:
                self._at_once -= 1


def fails_on(*bad: Any) -> Callable[[Any], Any]:
    """Return a function that gives back its argument, but raises for some."""

    def function(element: Any) -> Any:
        if element in bad:
            raise Unreadable(f"element {element}")
        return element

    return function


def outcomes(it: Any, limit: int = 1000) -> list[Any]:
    """Call `next` up to the end; errors stand where they were raised, as their text."""
    found: list[Any] = []
    while len(found) < limit:
        try:
            found.append(next(it))
        except StopIteration:
            found.append(END)
            break
        except Unreadable as error:
            found.append(str(error))
    return found


def outcomes_and_states(it: wg.DatasetIterator[Any]) -> list[tuple[Any, Any]]:
    """Return what each `next` gave, with the state after it."""
    found: list[tuple[Any, Any]] = []
    while not found or found[-1][0] is not END:
        (outcome, *_) = outcomes(it, limit=1)
        found.append((outcome, it.get_state()))
        assert len(found) < 1000
    return found


def as_lists(elements: Iterable[Any]) -> list[Any]:
    """Return batches as lists, which can be compared."""
    return [e.tolist() if hasattr(e, "tolist") else e for e in elements]


READ_OPTIONS: Sequence[wg.ReadOptions] = (
    wg.ReadOptions(num_threads=0),
    wg.ReadOptions(num_threads=1, prefetch_buffer_size=1),
    wg.ReadOptions(num_threads=3, prefetch_buffer_size=4),
    wg.ReadOptions(),
)
"""From no thread at all to the default."""


_earlier: "weakref.WeakSet[threading.Thread]" = weakref.WeakSet()


def leave_out_threads_of_earlier_tests() -> None:
    """Have `our_threads` know nothing of those that run now: a slow machine ends them later."""
    _earlier.update(threading.enumerate())


def our_threads() -> list[str]:
    """Return the names of the threads that wholegrain has started in this test."""
    return [t.name for t in threading.enumerate() if is_ours(t) and t not in _earlier]


def is_ours(thread: threading.Thread) -> bool:
    """Say whether wholegrain has started a thread."""
    # Readers bear the names of Grain's, which other tests may have left running.
    owner = getattr(getattr(thread, "_target", None), "__self__", None)
    is_reader = type(owner).__module__.startswith("wholegrain.")
    return thread.name.startswith("wholegrain") or (thread.name.startswith("grain-") and is_reader)


def eventually(condition: Callable[[], bool], seconds: float = 20.0) -> bool:
    """Wait until `condition` is true, on a machine that may be busy."""
    give_up = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > give_up:
            return False
        time.sleep(0.002)
    return True


def finishes(function: Callable[[], Result], seconds: float = 60.0) -> Result:
    """Run `function` in a thread of its own, so that a deadlock fails one test only."""
    results: list[Result] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(function())
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True, name="consumer")
    thread.start()
    thread.join(seconds)
    if thread.is_alive():
        faulthandler.dump_traceback()
        raise AssertionError(f"It does not come to an end in {seconds} s.")
    if errors:
        raise errors.pop()  # Its traceback knows this frame, which must not know it.
    return results[0]
