"""Elements moved to an accelerator ahead of the training loop."""

from typing import Any

from wholegrain._graph.iter_dataset import IterDataset
from wholegrain._graph.nodes.map import MapIterDataset
from wholegrain._graph.nodes.thread_prefetch import ThreadPrefetchIterDataset


def device_put(
    ds: Any, device: Any, *, cpu_buffer_size: int = 4, device_buffer_size: int = 2
) -> IterDataset[Any]:
    """Move the elements of a dataset to a device, ahead of the consumer.

    Args:
        ds: An IterDataset or a MapDataset of trees of arrays.
        device: What `jax.device_put` takes: a device, a sharding or None.
        cpu_buffer_size: How many elements may wait in host memory.
        device_buffer_size: How many elements may wait on the device.
    """
    import jax  # type: ignore[import-not-found,unused-ignore]

    ds = ThreadPrefetchIterDataset(ds, prefetch_buffer_size=cpu_buffer_size)
    ds = MapIterDataset(ds, _DevicePut(jax.device_put, device))
    return ThreadPrefetchIterDataset(ds, prefetch_buffer_size=device_buffer_size)


class _DevicePut:
    """Moves one element."""

    def __init__(self, put: Any, device: Any) -> None:
        self._put = put
        self._device = device

    def __call__(self, element: Any) -> Any:
        return self._put(element, self._device)

    def __str__(self) -> str:
        return f"device_put({self._device})"
