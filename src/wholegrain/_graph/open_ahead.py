"""Opens datasets in threads before they are needed."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Generic

from wholegrain._core.types import T
from wholegrain._graph.iterator import DatasetIterator

if TYPE_CHECKING:
    from concurrent.futures import Future, ThreadPoolExecutor


class OpenAhead(Generic[T]):
    """Opens datasets by their number, some of them ahead of time.

    Args:
        open_dataset: Returns an iterator of a dataset; None if the dataset is missing.
        num_threads: How many threads may open datasets ahead. They start when they are needed.
    """

    def __init__(
        self, open_dataset: Callable[[int], DatasetIterator[T] | None], num_threads: int
    ) -> None:
        self._open_dataset = open_dataset
        self._num_threads = num_threads
        self._opening: dict[int, Future[DatasetIterator[T] | None]] = {}
        self._pool: ThreadPoolExecutor | None = None

    def open(self, number: int) -> DatasetIterator[T] | None:
        """Return an iterator of a dataset, which a thread may already have opened."""
        future = self._opening.pop(number, None)
        return self._open_dataset(number) if future is None else future.result()

    def start(self, numbers: Iterable[int]) -> None:
        """Start opening datasets in the threads, if there are any."""
        for number in numbers if self._num_threads else ():
            if number not in self._opening:
                if self._pool is None:
                    from concurrent.futures import ThreadPoolExecutor  # Slow to import.

                    self._pool = ThreadPoolExecutor(self._num_threads, "wholegrain-open")
                self._opening[number] = self._pool.submit(self._open_dataset, number)

    def drop(self) -> None:
        """Close the iterators that were opened ahead."""
        opening, self._opening = self._opening, {}
        for future in opening.values():
            if not future.cancel():
                future.add_done_callback(_close_opened)

    @property
    def has_threads(self) -> bool:
        """Whether threads were started, which `close` has to stop."""
        return self._pool is not None

    def close(self) -> None:
        """Stop the threads, and close the iterators that they have opened."""
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.shutdown(wait=False, cancel_futures=True)
        self.drop()


def close_all(iterators: Iterable[DatasetIterator[Any]]) -> None:
    """Close iterators; if one of them raises, the others are closed too."""
    with contextlib.ExitStack() as stack:
        for iterator in iterators:
            stack.callback(iterator.close)


def _close_opened(future: Future[Any]) -> None:
    if not future.cancelled() and future.exception() is None and future.result() is not None:
        future.result().close()
