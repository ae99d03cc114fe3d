"""HFIterDataset: a Hugging Face dataset in streaming mode."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol, runtime_checkable

from wholegrain._graph.iterator import DatasetIterator
from wholegrain._graph.kinds import IterNode
from wholegrain._state.spec import CheckpointSpec
from wholegrain.sources._counted_iter import CountedIterator, shard_of


@runtime_checkable
class HFIterableDatasetProtocol(Protocol):
    """What `HFIterDataset` uses of `datasets.IterableDataset`."""

    def __iter__(self) -> Iterator[Any]:
        """Return an iterator over the examples."""
        ...

    def shard(self, num_shards: int, index: int) -> HFIterableDatasetProtocol:
        """Return one of `num_shards` parts."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """Return the position."""
        ...

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go to a position when it is iterated over next."""
        ...


class HFIterDataset(IterNode[Any]):
    """The examples of a `datasets.IterableDataset`, in order.

    A state contains the state of the dataset, so that restoring it is quick. The state of a dataset
    that is shuffled with a buffer lacks the examples in the buffer, and other iterables have no
    state. Then all examples up to the position are read again.

    With `mp_prefetch` each worker reads its shards; a dataset with fewer shards than workers is an
    error.

    Args:
        hf_ds: A `datasets.IterableDataset`, or another iterable.

    Example:
        >>> hf_ds = datasets.load_dataset("json", data_files=files, streaming=True, split="train")
        >>> ds = HFIterDataset(hf_ds).map(tokenize).batch(32)
    """

    checkpoint = CheckpointSpec(free=("hf_ds",))

    def __init__(self, hf_ds: Any) -> None:
        super().__init__()
        if not hasattr(hf_ds, "__iter__"):
            raise TypeError(f"Expected an iterable object, got {type(hf_ds)}")
        self._hf_ds = hf_ds

    def _label(self) -> str:
        return "hf"

    def set_slice(self, sl: slice, sequential_slice: bool = False) -> None:
        """Keep some of the shards. This shards a worker's copy."""
        del sequential_slice  # Whole shards are distributed in both cases.
        self._hf_ds = shard_of(self._hf_ds, type(self).__name__, sl)

    def open(self) -> DatasetIterator[Any]:
        hf_ds = self._hf_ds
        return CountedIterator(lambda: hf_ds, "hf_state_dict")
