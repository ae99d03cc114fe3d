"""What frameworks on top of PyTorch expect of a loader besides PyTorch's own interface."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import FrameType
from typing import TYPE_CHECKING, Any, NamedTuple

from torch.utils.data.distributed import DistributedSampler

from wholegrain.torch._reading import Batches, Place

if TYPE_CHECKING:
    from wholegrain.torch._loader import Loader


class EpochSampler(DistributedSampler):  # type: ignore[misc,type-arg,unused-ignore]
    """The `sampler` of a loader: passes on which epoch Lightning begins.

    It is a DistributedSampler, because Lightning would otherwise replace it by one. Lightning's
    Fabric counts the epochs of this process, so it calls `set_epoch(0)` after a restore in epoch 5.
    That is why this `set_epoch` only moves forward.
    """

    def __init__(self, loader: Loader) -> None:
        self._loader = loader

    def __iter__(self) -> Iterator[Any]:
        return iter(self._loader.batch_sampler)

    def __len__(self) -> int:
        return len(self._loader)

    def set_epoch(self, epoch: int) -> None:
        """Go to a later epoch."""
        if epoch > self._loader.epoch:
            self._loader.set_epoch(epoch)


class BatchSampler:
    """The `batch_sampler` of a loader: the positions of the batches of an epoch, as lists of one.

    Accelerate and Hugging Face's Trainer resume with a new DataLoader, whose sampler skips the
    first positions of this one. So `Positions` goes straight to the first batch that is needed.
    """

    def __init__(self, loader: Loader) -> None:
        self._loader = loader

    def __iter__(self) -> Iterator[list[Place]]:
        place = self._loader.claim()
        length = self._loader.length
        batch = place.batch
        while length is None or batch < length:
            yield [Place(place.epoch, batch)]
            batch += 1

    def __len__(self) -> int:
        return len(self._loader)

    def set_epoch(self, epoch: int) -> None:
        """Select the epoch that is read next."""
        self._loader.set_epoch(epoch)


class Positions:
    """The `dataset` of a loader: its batches by position. Reading them in order is fast."""

    def __init__(self, loader: Loader) -> None:
        self._loader = loader
        self._batches: Batches | None = None
        self._next = Place(0)

    @property
    def pipeline(self) -> Any:
        """The dataset that was passed to the loader."""
        return self._loader.pipeline

    def __getitem__(self, position: Any) -> Any:
        place = position if isinstance(position, Place) else Place(0, int(position))
        if self._batches is None or place != self._next:

            def begin(batches: Batches) -> Place:
                self._loader.follow(batches)
                return place

            self._batches = Batches(self._loader.reader, begin)
        batch = next(self._batches)
        self._next = Place(place.epoch, place.batch + 1)
        return batch

    def __getitems__(self, positions: list[Any]) -> list[Any]:
        return [self[position] for position in positions]

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_batches": None}


def only_batch(batches: list[Any]) -> Any:
    """Return the batch of a list of one: the `collate_fn` of a loader."""
    (batch,) = batches
    return batch


class LightningCall(NamedTuple):
    """The part of Lightning's Trainer that calls `iter(loader)`.

    Args:
        fetcher: Reads one batch ahead of a loader without a length. Lightning does not subtract
            that batch when it saves the loader's state.
        fit_loop: Knows the epoch. It calls `set_epoch` only after the first batch was read ahead.
    """

    fetcher: Any
    fit_loop: Any

    @classmethod
    def find(cls) -> LightningCall | None:
        """Return what is calling, if it is Lightning and reads ahead."""
        if "lightning" not in sys.modules and "pytorch_lightning" not in sys.modules:
            return None
        frame: FrameType | None = sys._getframe(2)  # noqa: SLF001
        fetcher = None
        for _ in range(_MOST_FRAMES):
            if frame is None:
                break
            caller = frame.f_locals.get("self")
            match type(caller).__name__:
                case "_PrefetchDataFetcher":
                    fetcher = caller
                case "_FitLoop" if fetcher is not None:
                    return cls(fetcher, caller)
            frame = frame.f_back
        return None if fetcher is None else cls(fetcher, None)

    def held(self) -> int:
        """Return how many batches were read ahead and not used yet."""
        return len(self.fetcher.batches)

    @property
    def epoch(self) -> int:
        """The epoch that the Trainer is in."""
        return 0 if self.fit_loop is None else int(self.fit_loop.epoch_progress.current.processed)


_MOST_FRAMES = 24


class Accelerated:
    """Tells Accelerate in which of its loaders the program is, and when an epoch ends.

    Accelerate needs that for gradient accumulation.
    """

    def __init__(self) -> None:
        from accelerate.state import (  # type: ignore[import-not-found,unused-ignore]
            GradientState,
            PartialState,
        )

        self._gradients = GradientState()
        self._processes = PartialState()

    @property
    def device(self) -> Any:
        """The device on which Accelerate expects batches; None for the CPU."""
        device = self._processes.device
        return None if device.type == "cpu" else device

    def iterate(self, loader: Loader, batches: Batches) -> Iterator[Any]:
        """Yield batches, and register the loader meanwhile."""
        self._gradients._add_dataloader(loader)  # noqa: SLF001
        try:
            yield from batches
        finally:
            self._gradients._remove_dataloader(loader)  # noqa: SLF001
