"""The loader: a DataLoader of PyTorch whose batches come from a pipeline."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch.utils.data import DataLoader as TorchDataLoader

from wholegrain._core.log import logger
from wholegrain._core.whole_number import whole_count
from wholegrain._graph.iter_dataset import IterDataset
from wholegrain._graph.map_dataset import MapDataset
from wholegrain._loader.data_loader import DataLoader
from wholegrain._state import state_dicts
from wholegrain._state.validate import WrongStateError, shortened
from wholegrain.torch._frameworks import (
    Accelerated,
    BatchSampler,
    EpochSampler,
    LightningCall,
    Positions,
    only_batch,
)
from wholegrain.torch._ranks import elastic_state, rank_and_world, texts_of
from wholegrain.torch._reading import Batches, Place, Reader
from wholegrain.torch._tensors import ToTensors


def loader(
    ds: MapDataset[Any] | IterDataset[Any] | DataLoader,
    *,
    pin_memory: bool = False,
    device: Any = None,
    prefetch: int = 2,
    reseed_each_epoch: bool = True,
    steps_per_epoch: int | None = None,
) -> Loader:
    """Return a `torch.utils.data.DataLoader` of the batches of a pipeline.

    Arrays become tensors in the same memory; see `to_tensors`. Each `for batch in loader` reads one
    epoch. The next one reads the next epoch, with another order and other random numbers.
    `set_epoch(n)` selects an epoch. An endless dataset, such as `ds.repeat()`, has no epochs unless
    `steps_per_epoch` says so, and each loop continues where the last one ended.

    `state_dict()` returns the position after the last batch that the loop got, and after
    `load_state_dict(...)` the next loop continues there, in the middle of an epoch or not.

    Args:
        ds: A pipeline of batches, with workers if there should be any: `ds.batch(...)`.
        pin_memory: Whether to copy batches into pinned memory, ahead of the loop. That makes your
            copies to a GPU faster. `device` does it by itself.
        device: Where to copy batches to, ahead of the loop.
        prefetch: How many batches to copy ahead, for `pin_memory` and `device`.
        reseed_each_epoch: Whether the epochs of a finite dataset differ. If not, each of them is
            the same as the first, as for a loader of validation data.
        steps_per_epoch: How many batches of an endless dataset are an epoch.

    Example:
        >>> loader = wholegrain.torch.loader(ds.shuffle(seed=1).batch(32), device="cuda")
        >>> for epoch in range(10):
        ...     for batch in loader:
        ...         train(batch)
    """
    return Loader(
        ds,
        pin_memory=pin_memory,
        device=device,
        prefetch=prefetch,
        reseed_each_epoch=reseed_each_epoch,
        steps_per_epoch=steps_per_epoch,
    )


class Loader(TorchDataLoader):  # type: ignore[misc,type-arg,unused-ignore]
    """A `torch.utils.data.DataLoader` of the batches of a pipeline. `loader` makes one."""

    use_stateful_dataloader = True  # Accelerate then saves and restores the position.
    remainder = -1  # Accelerate: the last batch has no padding.

    def __init__(
        self,
        dataset: Any,
        *,
        pin_memory: bool = False,
        device: Any = None,
        prefetch: int = 2,
        reseed_each_epoch: bool = True,
        steps_per_epoch: int | None = None,
        **others: Any,
    ) -> None:
        _refuse_options(dataset, others)
        self.pipeline = _checked_pipeline(dataset)
        self.device = None if device is None else torch.device(device)
        self.prefetch = _checked_prefetch(prefetch)
        self.reseed_each_epoch = reseed_each_epoch
        self.steps_per_epoch = steps_per_epoch
        self.reader = Reader(self.pipeline, reseed_each_epoch, _checked_steps(steps_per_epoch))
        is_cut = self.reader.is_stream and not self.reader.has_own_epochs
        if steps_per_epoch is not None and not is_cut:
            raise ValueError(
                f"`steps_per_epoch={steps_per_epoch}` cuts an endless dataset into epochs, but this"
                " one ends by itself. Leave it out, or call `repeat()` before `batch`."
            )
        self._next = Place(self.reader.epoch)  # Where the next loop starts.
        self._current: Batches | None = None  # The latest loop, if its position counts.
        self._accelerated: Accelerated | None = None
        super().__init__(
            Positions(self),
            batch_sampler=BatchSampler(self),
            collate_fn=only_batch,
            pin_memory=pin_memory and device is None,
        )
        object.__setattr__(self, "sampler", EpochSampler(self))
        self._finish()

    def _finish(self) -> None:
        pins = self.pin_memory
        if pins and not torch.accelerator.is_available():
            warnings.warn(
                "`pin_memory` has no effect, because there is no accelerator.", stacklevel=4
            )
            pins = False
        ahead = self.prefetch if pins or self.device is not None else 0
        self.reader.finish_with(ToTensors(self.device, pins), ahead)

    # Batches.

    def __iter__(self) -> Iterator[Any]:
        # A loop with a known length needs no batch ahead to find the end.
        call = LightningCall.find() if self.length is None else None
        if call is not None:
            self.sampler.set_epoch(call.epoch)
        batches = Batches(self.reader, self._begin, None if call is None else call.held)
        if self._accelerated is not None:
            return self._accelerated.iterate(self, batches)
        return batches

    def _begin(self, batches: Batches) -> Place:
        """Return the place at which a loop starts, when it gets its first batch."""
        place = self.claim()
        self.follow(batches)
        return place

    def follow(self, batches: Batches) -> None:
        """Let the position of a loop be the position of the loader."""
        self._current = batches

    def claim(self) -> Place:
        """Return the place at which the next loop starts, and let the one after it follow."""
        place, self._current = self._next_place(), None
        self._next = Place(place.epoch + 1)
        return place

    def _next_place(self) -> Place:
        if self.reader.is_stream and self.length is None and self._current is not None:
            return self._current.place()  # The stream goes on.
        return self._next

    @property
    def length(self) -> int | None:
        """The number of batches in an epoch; None if it is not known."""
        return self.reader.length

    def __len__(self) -> int:
        if self.reader.has_own_epochs and self.pipeline.steps_per_epoch is not None:
            return int(self.pipeline.steps_per_epoch)
        if self.length is None:
            raise TypeError(
                "The number of batches in an epoch is not known before they are read."
                + (
                    " Pass `steps_per_epoch` to make epochs of an endless dataset."
                    if self.reader.is_stream and not self.reader.has_own_epochs
                    else " To give every epoch the same number, call `repeat()` on the MapDataset,"
                    " and pass `steps_per_epoch` to the loader."
                )
            )
        return self.length

    # Epochs and positions.

    @property
    def epoch(self) -> int:
        """The epoch that the loop is in; before the first batch of a loop, the one it will read."""
        return self._place().epoch

    def set_epoch(self, epoch: int) -> None:
        """Let the next loop read an epoch, from its start.

        If `load_state_dict` has just restored a position in that epoch, the loop starts there.
        Without `steps_per_epoch` this has no effect on an endless dataset.
        """
        epoch = whole_count("epoch", epoch)
        if epoch < 0:
            raise ValueError(f"Epochs count from 0, but got epoch={epoch}.")
        if self.reader.is_stream and self.length is None and not self.reader.has_own_epochs:
            return
        if self._next.epoch != epoch:
            self._next = Place(epoch)
        if self._current is not None and self._current.epoch != epoch:
            self._current = None

    def _place(self) -> Place:
        return self._next if self._current is None else self._current.place()

    def state_dict(self) -> dict[str, Any]:
        """Return the position after the last batch that the loop got.

        The keys are the same at every position, as `torch.distributed.checkpoint` needs it, and
        include one for each rank.
        """
        rank, world = rank_and_world()
        place = self._place()
        state: dict[str, Any] = {"epoch": place.epoch, "batch": place.batch, "world_size": world}
        if self._accelerated is None or world == 1:
            state |= texts_of(self.pipeline, place.state, rank)
        # Accelerate lets all ranks write the same file, so they have to write the same content.
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Let the next loop start at a position that `state_dict` returned.

        If the position is that of another rank, as in a checkpoint that one rank has written for
        all, the loop starts after the same number of batches. If the place after them is not
        arithmetic, it reads them again.
        """
        place = self._place_in(state_dict)
        self.reader.check(place)
        self.reader.move_later()
        self._next, self._current = place, None

    def _place_in(self, state_dict: Any) -> Place:
        keys = ("epoch", "batch", "world_size")
        if not isinstance(state_dict, Mapping) or not all(key in state_dict for key in keys):
            raise WrongStateError(
                f"The state of a loader has the keys {', '.join(keys)} and one for each rank, but"
                f" got {shortened(state_dict)}."
            )
        rank, world = rank_and_world()
        place = Place(int(state_dict["epoch"]), int(state_dict["batch"]))
        if self.reader.is_elastic:
            return self._elastic_place(place, elastic_state(self.pipeline, state_dict), rank)
        if state_dict["world_size"] != world:
            raise WrongStateError(
                f"The state was saved by {state_dict['world_size']} processes, but now there are"
                f" {world}. `wholegrain.experimental.ElasticIterator` reads on with another number."
            )
        state = state_dict.get(f"rank_{rank}")
        if state is None:
            logger().info("Rank %d has no state of its own, and goes to batch %d.", rank, place[1])
        return place._replace(state=state_dicts.of_text(state)) if state else place

    def _elastic_place(self, place: Place, state: Any, rank: int) -> Place:
        if state is not None and self.pipeline.fits(state):
            return place._replace(state=state)
        if place.batch:
            logger().warning(
                "Rank %d reads %d batches again to find its place, because the state does not have"
                " its position: not all ranks have saved theirs. `torch.distributed.checkpoint`"
                " saves those of all ranks.",
                rank,
                place.batch,
            )
        return place

    def report(self) -> Any:
        """Report what is slow in the pipeline of the current loop, and why."""
        if self._current is None:
            raise ValueError("There is nothing to report before the first batch.")
        return self._current.report()

    def __getstate__(self) -> dict[str, Any]:
        kept = {**vars(self), "_next": self._place(), "_current": None, "_accelerated": None}
        kept["reader"] = None
        return kept

    def __setstate__(self, kept: dict[str, Any]) -> None:
        self.__dict__.update(kept)
        self.reader = Reader(self.pipeline, self.reseed_each_epoch, self.steps_per_epoch)
        self._finish()

    # What Accelerate asks.

    @property
    def _is_accelerate_prepared(self) -> bool:
        return True  # Else it would replace the loader by one of its own, without a position.

    @_is_accelerate_prepared.setter
    def _is_accelerate_prepared(self, value: bool) -> None:
        self._accelerated = Accelerated()
        if self.device is None and self._accelerated.device is not None:
            self.device = self._accelerated.device
            self._finish()

    @property
    def end_of_dataloader(self) -> bool:
        """Whether the last batch of the epoch was returned."""
        return self._current is not None and self._current.is_last()


_DEFAULTS = inspect.signature(TorchDataLoader.__init__).parameters


def _refuse_options(dataset: Any, options: dict[str, Any]) -> None:
    """Raise for options of torch's DataLoader, because the pipeline decides what they say."""
    if isinstance(dataset, Positions):
        return  # A framework copies a loader, with all options that it finds in it.
    for name, value in options.items():
        if name in _DEFAULTS and value in (None, _DEFAULTS[name].default):
            continue
        raise TypeError(
            f"`wholegrain.torch.loader` has no option `{name}`, but got {name}={value!r}. The"
            " pipeline decides: `ds.shuffle(seed=...).batch(...)`, and"
            " `mp_prefetch(MultiprocessingOptions(num_workers=...))` for workers."
        )


def _checked_pipeline(dataset: Any) -> Any:
    if isinstance(dataset, Positions):
        return dataset.pipeline  # A framework copies a loader.
    if isinstance(dataset, DataLoader):
        return dataset._dataset  # noqa: SLF001
    if isinstance(dataset, (MapDataset, IterDataset)):
        return dataset
    raise TypeError(
        "`wholegrain.torch.loader` needs a MapDataset, an IterDataset or a DataLoader of"
        f" wholegrain, but got a {type(dataset).__name__}. `MapDataset.source(...)` makes a dataset"
        " of anything with a length and indices."
    )


def _checked_prefetch(prefetch: int) -> int:
    prefetch = whole_count("prefetch", prefetch)
    if prefetch < 0:
        raise ValueError(
            f"`prefetch` cannot be negative, but got {prefetch}. 0 copies a batch when the loop"
            " asks for it."
        )
    return prefetch


def _checked_steps(steps: int | None) -> int | None:
    if steps is None:
        return None
    steps = whole_count("steps_per_epoch", steps)
    if steps <= 0:
        raise ValueError(f"An epoch needs at least one batch, but got steps_per_epoch={steps}.")
    return steps
