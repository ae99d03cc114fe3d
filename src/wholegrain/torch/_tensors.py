"""Elements of arrays as elements of tensors, in the same memory if possible."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch

_ACCELERATED = ("cuda", "xpu")
"""Devices with streams, to which memory is copied while they compute."""


def to_tensors(element: Any) -> Any:
    """Return an element with its arrays and numpy scalars as tensors.

    A tensor shares the memory of its array. Arrays that torch cannot share are copied: read-only
    ones, and those with negative strides or in another byte order. Strings, objects, dates, Python
    numbers and everything else stay as they are. Dicts, lists, tuples, named tuples and dataclasses
    are new objects of the same type.
    """
    return map_leaves(_tensor, element)


def map_leaves(function: Callable[[Any], Any], element: Any) -> Any:
    """Return an element like `element` with `function` applied to its leaves."""
    kind = type(element)
    if kind is dict:
        return {key: map_leaves(function, value) for key, value in element.items()}
    if kind is list or kind is tuple:
        return kind([map_leaves(function, value) for value in element])
    if isinstance(element, tuple):
        values = [map_leaves(function, value) for value in element]
        return kind(*values) if hasattr(element, "_fields") else kind(values)
    if isinstance(element, list):
        return kind([map_leaves(function, value) for value in element])
    if isinstance(element, Mapping):
        return _map_mapping(function, element)
    if dataclasses.is_dataclass(element) and not isinstance(element, type):
        return _map_dataclass(function, element)
    return function(element)


def _map_mapping(function: Callable[[Any], Any], element: Any) -> Any:
    values = {key: map_leaves(function, value) for key, value in element.items()}
    if not hasattr(element, "update"):
        return values
    clone = copy.copy(element)
    clone.update(values)
    return clone


def _map_dataclass(function: Callable[[Any], Any], element: Any) -> Any:
    clone = copy.copy(element)
    for field in dataclasses.fields(element):
        value = map_leaves(function, getattr(element, field.name))
        object.__setattr__(clone, field.name, value)  # Also for frozen dataclasses.
    return clone


def _tensor(leaf: Any) -> Any:
    if isinstance(leaf, np.ndarray):
        return _tensor_of_array(leaf)
    if isinstance(leaf, np.generic):
        return _tensor_of_array(np.array(leaf)) if _is_numeric(leaf.dtype) else leaf
    return leaf


def _tensor_of_array(array: np.ndarray) -> Any:
    if array.dtype.name == "bfloat16":  # Of the package ml_dtypes, which torch does not know.
        return _tensor_of_array(array.view(np.uint16)).view(torch.bfloat16)
    if not _is_numeric(array.dtype):
        return array
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    if not array.flags.writeable or any(stride < 0 for stride in array.strides):
        array = array.copy()  # A tensor could change the memory of a read-only array.
    try:
        return torch.from_numpy(array)
    except TypeError:  # A dtype that torch does not have, such as float128.
        return array


def _is_numeric(dtype: np.dtype[Any]) -> bool:
    return dtype.kind in "biufc"


class ToTensors:
    """Makes tensors of elements, in pinned memory or on a device if asked to.

    Args:
        device: Where to copy tensors to; None leaves them in the memory of their arrays.
        pin_memory: Whether to copy tensors into pinned memory if they stay on the CPU.
    """

    def __init__(self, device: Any, pin_memory: bool) -> None:
        self._device = None if device is None else torch.device(device)
        self._pins = pin_memory
        self._stream: Any = None
        self._has_streams = self._device is not None and self._device.type in _ACCELERATED

    def __call__(self, element: Any) -> Any:
        element = to_tensors(element)
        if self._has_streams:
            return self._copied_aside(element)
        if self._device is not None:
            return map_leaves(self._on_device, element)
        return map_leaves(_pinned, element) if self._pins else element

    def _on_device(self, leaf: Any) -> Any:
        return leaf.to(self._device) if isinstance(leaf, torch.Tensor) else leaf

    def _copied_aside(self, element: Any) -> OnStream:
        """Copy an element in a stream of its own, so that copying does not wait for computing."""
        backend = torch.get_device_module(self._device)
        if self._stream is None:
            self._stream = backend.Stream(self._device)
        with backend.stream(self._stream):
            element = map_leaves(self._pinned_to_device, element)
        return OnStream(element, self._stream.record_event(), self._device)

    def _pinned_to_device(self, leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return leaf
        return _pinned(leaf).to(self._device, non_blocking=True)

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_stream": None}

    def __str__(self) -> str:
        return "to_tensors" if self._device is None else f"to_tensors({self._device})"


def _pinned(leaf: Any) -> Any:
    is_here = isinstance(leaf, torch.Tensor) and leaf.device.type == "cpu"
    return leaf.pin_memory() if is_here else leaf


class OnStream:
    """An element that is being copied to a device.

    Args:
        element: Its tensors are on the device, but may not be complete.
        event: Happens when they are.
        device: The device.
    """

    def __init__(self, element: Any, event: Any, device: Any) -> None:
        self._element = element
        self._event = event
        self._device = device

    def ready(self) -> Any:
        """Return the element. What the current stream computes from now on waits for the copy."""
        stream = torch.get_device_module(self._device).current_stream(self._device)
        stream.wait_event(self._event)

        def use(leaf: Any) -> Any:
            if isinstance(leaf, torch.Tensor):
                leaf.record_stream(stream)  # Its memory was allocated in the other stream.
            return leaf

        return map_leaves(use, self._element)
