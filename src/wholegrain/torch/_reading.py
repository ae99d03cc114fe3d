"""Opens the pipeline of a loader at a place, and iterates over the rest of an epoch."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple, NoReturn, Self

from wholegrain._core.log import logger
from wholegrain._graph import epochs
from wholegrain._graph.iterator import DatasetIterator, set_next_index
from wholegrain._graph.later_epochs import at_epoch, is_endless
from wholegrain._graph.map_dataset import MapDataset
from wholegrain._graph.nodes.thread_prefetch import ThreadPrefetchIterDataset
from wholegrain.torch._epochs import check_has_epochs, count_of, has_workers, without_workers
from wholegrain.torch._tensors import OnStream, ToTensors


class Place(NamedTuple):
    """A position in the epochs of a loader.

    Args:
        epoch: The epoch, from 0.
        batch: How many of its batches were returned.
        state: The state of the pipeline's iterator; None if it follows from the other two.
    """

    epoch: int
    batch: int = 0
    state: Any = None


class Reader:
    """The pipeline of a loader.

    A finite dataset is opened anew for each epoch. An endless one has a single iterator, which all
    epochs read from.

    Args:
        dataset: A MapDataset or an IterDataset of batches.
        reseed_each_epoch: Whether a finite dataset has other random numbers in each epoch.
        steps: How many batches of an endless dataset are an epoch; None if it has no epochs.
    """

    def __init__(self, dataset: Any, reseed_each_epoch: bool, steps: int | None) -> None:
        self._dataset = dataset
        self._reseeds = reseed_each_epoch
        self._steps = steps
        # ElasticIterator has a single iterator, which begins its next epoch when it is asked for.
        self.is_elastic = hasattr(dataset, "__next__")
        self.is_stream = self.is_elastic or is_endless(dataset)
        self.has_own_epochs = self.is_elastic and dataset.has_epochs
        self.epoch: int = dataset.epoch if self.has_own_epochs else 0  # That of the stream.
        count = count_of(dataset)
        self.length = steps if self.is_stream else count
        self._is_counted = count is not None  # A position is then arithmetic.
        self._finish: Callable[[Any], Any] = lambda ds: ds
        self._stream: DatasetIterator[Any] | None = None
        self.read = 0  # How many batches of the stream, or of its own epoch, were read.

    def finish_with(self, convert: ToTensors, prefetch: int) -> None:
        """Set how elements become the batches of the loader."""

        def finish(ds: Any) -> Any:
            ds = ds.to_iter_dataset() if isinstance(ds, MapDataset) else ds
            ds = ds.map(convert)
            return ThreadPrefetchIterDataset(ds, prefetch_buffer_size=prefetch) if prefetch else ds

        self._finish = finish

    def open(self, place: Place) -> DatasetIterator[Any]:
        """Return an iterator at a place."""
        if self.is_stream:
            return self._stream_at(place)
        opened = self._iterator(self._finish(self._at_epoch(place.epoch)))
        self._move(opened, place, place.batch)
        return opened

    def check(self, place: Place) -> None:
        """Raise if the state of a place cannot belong to this pipeline."""
        if place.state is None:
            return
        if self.is_stream:
            self._opened_stream().check_state(place.state)
            return
        with self._iterator(self._at_epoch(place.epoch)) as opened:
            opened.check_state(place.state)

    def _at_epoch(self, epoch: int) -> Any:
        if not epoch or not self._reseeds:
            return self._dataset
        check_has_epochs(self._dataset)
        return at_epoch(self._dataset, epoch)

    @staticmethod
    def _iterator(dataset: Any) -> DatasetIterator[Any]:
        with epochs.meant():
            opened: DatasetIterator[Any] = iter(dataset)
        return opened

    def _opened_stream(self) -> DatasetIterator[Any]:
        if self._stream is None:
            self._stream = self._iterator(self._finish(self._dataset))
        return self._stream

    def _stream_at(self, place: Place) -> DatasetIterator[Any]:
        if self.has_own_epochs:
            return self._own_epoch_at(place)
        count = place.epoch * (self._steps or 0) + place.batch
        reads_on = self.is_elastic and place.state is None
        if (not count and self.read) or (reads_on and not 0 <= self.read <= count):
            self.close()  # Back to the start.
        stream = self._opened_stream()
        if self.read == count:
            return stream
        if reads_on:
            for _ in range(count - self.read):
                next(stream, None)
        else:
            self._move(stream, place, count)
        self.read = count
        return stream

    def _own_epoch_at(self, place: Place) -> DatasetIterator[Any]:
        """Return the iterator of an ElasticIterator at a place in one of its own epochs."""
        is_here = (place.epoch, place.batch) == (self.epoch, self.read)
        if not is_here and place.state is None:
            self.close()
            iter(self._dataset)  # Opens it again.
            self._dataset.set_epoch(place.epoch)
            for _ in range(place.batch):
                next(self._dataset, None)
        stream = self._opened_stream()
        iter(self._dataset)  # Begins its next epoch, if one has ended.
        if not is_here and place.state is not None:
            stream.set_state(place.state)
        self.epoch, self.read = place.epoch, place.batch
        return stream

    def end_epoch(self, epoch: int) -> None:
        """Note that the stream has ended one of its own epochs."""
        if self.has_own_epochs:
            self.epoch, self.read = epoch + 1, 0

    def place_after(self, epoch: int) -> Place:
        """Return the place after an epoch that has ended."""
        # Threads may read ahead of it, but not past the end of an epoch.
        return Place(epoch + 1, 0, self._dataset.get_state() if self.has_own_epochs else None)

    def _move(self, iterator: DatasetIterator[Any], place: Place, count: int) -> None:
        """Move an iterator to a place, `count` elements after the first."""
        if place.state is not None:
            iterator.set_state(place.state)
        elif count and not self._moves_by_arithmetic(iterator, place, count):
            iterator.set_state(self._state_after(place, count))

    def _moves_by_arithmetic(
        self, iterator: DatasetIterator[Any], place: Place, count: int
    ) -> bool:
        """Move an iterator without reading, if that is possible."""
        if not self._is_counted:
            return False
        dataset = self._dataset if self.is_stream else self._at_epoch(place.epoch)
        if not has_workers(dataset):
            set_next_index(iterator, count)
            return True
        with self._iterator(without_workers(dataset)) as opened:
            set_next_index(opened, count)
            state = opened.get_state()
        try:
            iterator.set_state(state)  # Translated to these workers, if elements are one to one.
        except ValueError:
            return False
        return True

    def _state_after(self, place: Place, count: int) -> Any:
        """Read `count` batches, without making tensors of them, and return the state."""
        logger().info("Reads %d batches to find the place after them.", count)
        dataset = self._dataset if self.is_stream else self._at_epoch(place.epoch)
        with self._iterator(dataset) as opened:
            for _ in range(count):
                if next(opened, None) is None:
                    break
            return opened.get_state()

    def move_later(self) -> None:
        """Go to the place from its state when a loop starts, even if the count is the same."""
        if self._stream is not None or self.is_elastic:
            self.read = -1

    def close(self) -> None:
        """Stop the threads and workers of the stream."""
        if self._stream is not None:
            self._stream.close()
            self._stream = None
        self.read = 0


class Batches:
    """The rest of an epoch, as batches of tensors.

    Args:
        reader: Opens the pipeline.
        claim: Returns the place at which to start; called when the first batch is requested.
        held: Returns how many of the batches returned last were not used yet, because the consumer
            reads ahead; None if it does not.
    """

    def __init__(
        self,
        reader: Reader,
        claim: Callable[[Batches], Place],
        held: Callable[[], int] | None = None,
    ) -> None:
        self._reader = reader
        self._claim = claim
        self._held = held
        self._run: DatasetIterator[Any] | None = None
        self._place = Place(0)
        self._ahead: list[Any] = []  # A batch that was read to find out whether it exists.
        self._history: deque[Place] = deque(maxlen=16)  # For consumers that read ahead.
        self._has_ended = False

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        if self._run is None:
            self._place = self._claim(self)
            self._run = self._reader.open(self._place)
            self._history.append(self._place)
        batch = self._ahead.pop() if self._ahead else self._read(self._run)
        self._place = Place(self._place.epoch, self._place.batch + 1)
        if self._held is not None:
            self._history.append(self._place._replace(state=self._run.get_state()))
        return batch.ready() if type(batch) is OnStream else batch

    def _read(self, run: DatasetIterator[Any]) -> Any:
        if self._has_ended or self._is_complete():
            self._end(run)
        try:
            batch = next(run)
        except StopIteration:
            self._end(run)
        self._reader.read += 1
        return batch

    def _end(self, run: DatasetIterator[Any]) -> NoReturn:
        if not self._has_ended:
            self._reader.end_epoch(self._place.epoch)
        self._has_ended = True
        if not self._reader.is_stream:
            run.close()  # The next epoch has workers of its own.
        raise StopIteration

    def _is_complete(self) -> bool:
        return self._reader.length is not None and self._place.batch >= self._reader.length

    @property
    def epoch(self) -> int:
        """The epoch that it reads."""
        return self._place.epoch

    def is_last(self) -> bool:
        """Return whether no batch follows. That may read the next one ahead."""
        if self._run is None or self._ahead:
            return False
        if self._has_ended or self._is_complete():
            return True
        if self._reader.length is not None:
            return False
        place = self._place._replace(state=self._run.get_state())
        try:
            self._ahead.append(self._read(self._run))
        except StopIteration:
            return True
        self._place = place
        return False

    def place(self) -> Place:
        """Return the position after the last batch that was used."""
        count = 0 if self._held is None else self._held()
        if count:
            return self._history[-1 - min(count, len(self._history) - 1)]
        if self._ahead or self._run is None:
            return self._place
        if self._has_ended and (self._reader.has_own_epochs or not self._reader.is_stream):
            return self._reader.place_after(self._place.epoch)
        here = self._place._replace(state=self._run.get_state())
        if not self._is_complete():
            return here
        state = here.state if self._reader.is_stream else None
        return Place(here.epoch + 1, 0, state)

    def report(self) -> Any:
        """Report what is slow in this pipeline, and why; see `DatasetIterator.report`."""
        if self._run is None:
            raise ValueError("There is nothing to report before the first batch.")
        return self._run.report()
