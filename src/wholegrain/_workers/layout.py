"""The layout of an element in memory: flattened in the worker, rebuilt in the consumer.

An element is a tree of dicts, lists and tuples. Its arrays lie side by side in a block of memory,
each aligned to 64 bytes, in Fortran order if they were in the worker. Elements that differ only in
their values have the same *layout*:

    {"image": uint8[224, 224, 3], "label": 7}
      dict("image", "label"), array uint8[224, 224, 3] at byte 0 of block 0, other
"""

import operator
import pickle
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from wholegrain._core.copying import copier
from wholegrain._core.tree import follows_jax
from wholegrain._core.types import NDArray

Array = NDArray[Any]
Bytes = NDArray[np.uint8]

Parts = tuple[Any, ...]
"""The containers and leaves of an element, depth first."""

Location = tuple[int, int]
"""Where an array lies: the number of its block, and the offset in bytes."""

_DICT, _LIST, _TUPLE, _ARRAY, _OTHER = range(5)
_NDARRAY, _MEMMAP = np.ndarray, np.memmap
_STR = {str}
_SCALARS = frozenset({int, float, bool, str, bytes, type(None)})
_MANY = 8

_ALIGNMENT = 64
_PADDING = bytes(_ALIGNMENT)
# Arrays of at least this size are copied one by one; smaller neighbours are joined first.
_LARGE = 1 << 15


def flatten(
    value: Any,
    parts: list[Any],
    arrays: list[Array],
    others: list[Any],
    sorts_keys: bool = True,
) -> None:
    """Append the containers and leaves of `value` to `parts`, its arrays and its other leaves.

    Object arrays and subclasses of `ndarray` count as other leaves. With `sorts_keys`, the keys of
    dicts are sorted if jax would sort them.
    """
    kind = type(value)
    if kind is _NDARRAY or kind is _MEMMAP:
        dtype = value.dtype
        if dtype.hasobject:
            parts.append(_OTHER)
            others.append(value)
        else:
            shape = value.shape
            more = () if id(dtype) in _SIMPLE else _metadata_of(dtype)
            if len(shape) > 1 and value.flags.fnc:
                parts.append((_ARRAY, dtype, shape, "F", *more))
                arrays.append(value.T)  # The same bytes, C-contiguous like all other arrays.
            else:
                parts.append((_ARRAY, dtype, shape, "C", *more))
                arrays.append(value)
    elif kind is dict and _has_plain_keys(value):
        # `_core.tree` explains why the order of the keys depends on jax.
        if sorts_keys and follows_jax():
            value = dict(sorted(value.items(), key=_key))
        parts.append((_DICT, *value))
        for item in value.values():
            # The same as the first and the last branch, without a call for each item.
            kind = type(item)
            if (
                kind is _NDARRAY
                and id(item.dtype) in _SIMPLE
                and not (item.ndim > 1 and item.flags.fnc)
            ):
                parts.append((_ARRAY, item.dtype, item.shape, "C"))
                arrays.append(item)
            elif kind in _SCALARS:
                parts.append(_OTHER)
                others.append(item)
            else:
                flatten(item, parts, arrays, others, sorts_keys)
    elif kind is list or kind is tuple:
        parts.append((_LIST if kind is list else _TUPLE, len(value)))
        for item in value:
            flatten(item, parts, arrays, others, sorts_keys)
    elif isinstance(value, tuple) and hasattr(kind, "_fields") and hasattr(kind, "_make"):
        parts.append((kind, len(value)))
        for item in value:
            flatten(item, parts, arrays, others, sorts_keys)
    else:
        parts.append(_OTHER)
        others.append(value)


_key = operator.itemgetter(0)

# Dtypes without objects, fields and metadata, by identity: looking one up is faster than to ask it.
# They stay alive here, so no other object gets their id.
_SIMPLE: dict[int, Any] = {}
_MAX_SIMPLE = 1024


def _metadata_of(dtype: Any) -> tuple[bytes, ...]:
    """Return what distinguishes a dtype from equal ones: its own metadata, or that of its fields.

    Dtypes are equal, also as parts of a layout, if they differ only in metadata.
    """
    if dtype.metadata is None and dtype.names is None:
        if len(_SIMPLE) < _MAX_SIMPLE:
            _SIMPLE[id(dtype)] = dtype
        return ()
    return (pickle.dumps(dtype),)


def _has_plain_keys(value: dict[Any, Any]) -> bool:
    # Dicts with other keys are pickled: 1, 1.0 and True are equal as parts of a layout.
    return set(map(type, value)) <= _STR


def aligned(nbytes: int) -> int:
    """Round up to the next offset at which an array may start."""
    return (nbytes + _ALIGNMENT - 1) & -_ALIGNMENT


def count_arrays(parts: Parts) -> int:
    """Count the arrays of an element."""
    return sum(map(is_array, parts))


def is_array(part: Any) -> bool:
    """Return whether a part of an element is an array."""
    return type(part) is tuple and part[0] == _ARRAY


class Packing:
    """The byte layout of arrays of known shapes in a block."""

    __slots__ = ("_groups", "_pieces", "number", "offsets", "size")

    def __init__(self, number: int, arrays: list[Array]) -> None:
        self.number = number
        self.offsets: list[int] = []
        self.size = 0
        # Alternately an array and the padding after it. Joined, they are the block.
        self._pieces: list[Any] = []
        # Arrays that are written together: first index, stop index, and offset in the block. The
        # offset is negative for a large array, which is written alone.
        self._groups: list[tuple[int, int, int]] = []
        for index, array in enumerate(arrays):
            self.offsets.append(self.size)
            end = self.size + array.nbytes
            self._pieces += [None, _PADDING[: aligned(end) - end]]
            small = array.nbytes < _LARGE
            if small and self._groups and self._groups[-1][2] >= 0:
                first, _, offset = self._groups[-1]
                self._groups[-1] = (first, index + 1, offset)
            else:
                self._groups.append((index, index + 1, self.size if small else -1))
            self.size = aligned(end)

    def join(self, arrays: list[Array], first: int = 0, stop: int | None = None) -> bytes:
        """Return the bytes of arrays `first` to `stop`, with padding."""
        pieces = self._pieces[2 * first : None if stop is None else 2 * stop]
        pieces[::2] = arrays[first:stop]
        try:
            return b"".join(pieces)
        except (ValueError, BufferError, TypeError):
            # Not contiguous, or a dtype without buffer support, such as dates and bfloat16.
            pieces[::2] = [_as_bytes(array) for array in arrays[first:stop]]
            return b"".join(pieces)

    def write(self, arrays: list[Array], block: Bytes) -> None:
        """Copy the arrays into `block`."""
        copy = copier(self.size)
        for first, stop, offset in self._groups:
            if offset < 0:
                array = arrays[first]
                target: Array = _NDARRAY(array.shape, array.dtype, block, self.offsets[first])
                copy(target, array)
            else:
                joined = self.join(arrays, first, stop)
                block[offset : offset + len(joined)] = np.frombuffer(joined, np.uint8)


def _as_bytes(array: Array) -> Bytes:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


class Rebuilder:
    """Rebuilds elements of one layout from blocks and other leaves."""

    def __init__(self, parts: Parts, locations: tuple[Location, ...]) -> None:
        arrays = [part for part in parts if is_array(part)]
        self._arrays = [
            (shape, dtype, block, offset, order)
            for (_, dtype, shape, order, *_), (block, offset) in zip(arrays, locations, strict=True)
        ]
        self._fields: list[str] = []
        if (
            len(arrays) >= _MANY
            and len({block for block, _ in locations}) == 1
            and all(order == "C" for *_, order in self._arrays)
        ):
            self._as_fields()
        self._build = builder(iter(parts))

    def _as_fields(self) -> None:
        """View the block as one structured record: a field lookup is faster than a new array."""
        try:
            self._record = np.dtype(
                {
                    "names": [str(number) for number in range(len(self._arrays))],
                    "formats": [(dtype, shape) for shape, dtype, _, _, _ in self._arrays],
                    "offsets": [offset for _, _, _, offset, _ in self._arrays],
                }
            )
        except (TypeError, ValueError):
            return  # The record is too large, or has arrays without elements.
        self._fields = list(self._record.names or ())

    def build(self, blocks: list[Any], others: list[Any]) -> Any:
        """Return the element. Its arrays view the blocks."""
        if self._fields:
            record: Array = _NDARRAY((), self._record, blocks[self._arrays[0][2]])
            arrays = [record[field] for field in self._fields]
        else:
            arrays = [
                _NDARRAY(shape, dtype, blocks[block], offset, None, order)
                for shape, dtype, block, offset, order in self._arrays
            ]
        return self._build(iter(arrays), iter(others))


_Build = Callable[[Iterator[Array], Iterator[Any]], Any]


def _take_array(arrays: Iterator[Array], others: Iterator[Any]) -> Any:
    return next(arrays)


def _take_other(arrays: Iterator[Array], others: Iterator[Any]) -> Any:
    return next(others)


def builder(parts: Iterator[Any]) -> _Build:
    """Return a function that builds one leaf, or one container with its contents."""
    part = next(parts)
    if part == _OTHER:
        return _take_other
    kind = part[0]
    if kind == _ARRAY:
        return _take_array
    if kind == _DICT:
        keys = part[1:]
        items = [builder(parts) for _ in keys]
        if all(item is _take_array for item in items):
            return lambda arrays, others: dict(zip(keys, arrays, strict=False))
        if all(item in (_take_array, _take_other) for item in items):
            kinds = [(key, item is _take_array) for key, item in zip(keys, items, strict=True)]
            return lambda arrays, others: {
                key: next(arrays if takes else others) for key, takes in kinds
            }
        return lambda arrays, others: {
            key: item(arrays, others) for key, item in zip(keys, items, strict=True)
        }
    items = [builder(parts) for _ in range(part[1])]
    if kind == _LIST:
        return lambda arrays, others: [item(arrays, others) for item in items]
    if kind == _TUPLE:
        return lambda arrays, others: tuple([item(arrays, others) for item in items])
    return lambda arrays, others: kind._make([item(arrays, others) for item in items])
