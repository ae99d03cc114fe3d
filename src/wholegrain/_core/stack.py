"""Stacks elements into a batch: each leaf of the tree becomes an array."""

import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

from wholegrain._core import tree
from wholegrain._core.copying import Copy, copier
from wholegrain._core.elements import describe
from wholegrain._core.interruption import suppress_errors
from wholegrain._core.types import NDArray

Empty: TypeAlias = Callable[[tuple[int, ...], Any], NDArray[Any]]
"""Returns memory for an array of a shape and a dtype, as `numpy.empty` does."""

_INT64 = np.dtype(np.int64)

# For smaller arrays, one call per array costs more than the cache saves.
_LARGE_BYTES = 1 << 15

# numpy gives a list of these the dtype of a single one.
_PLAIN = frozenset({float, bool, str, bytes, *(np.dtype(code).type for code in "?bhilqBHILQefd")})


def stack(elements: Sequence[Any], empty: Empty | None = None) -> Any:
    """Stack the leaves of `elements` into arrays with a new first dimension.

    Args:
        elements: The elements of one batch, at least one.
        empty: Allocates the new arrays; `numpy.empty` by default.

    Raises:
        ValueError: If the elements differ in structure or in the shapes of their arrays.
    """
    stack_leaves = _stack_leaves
    if empty is not None:
        stack_leaves = functools.partial(_stack_leaves_into, empty=empty)
    try:
        return tree.zip_leaves(stack_leaves, elements)
    except ValueError as error:
        raise _cannot_stack(elements, error) from error


def _cannot_stack(elements: Sequence[Any], error: ValueError) -> ValueError:
    reason = str(error).removesuffix(".")
    return ValueError(
        f"Cannot batch {len(elements)} elements: {reason}. All elements of a batch need the same"
        " structure and the same shapes; pad, cut or drop those that differ, or pass `batch_fn`."
        f" The elements are:\n{_describe_elements(elements)}"
    )


def _stack_leaves(leaves: list[Any]) -> NDArray[Any]:
    first = leaves[0]
    kind = type(first)
    if kind is np.ndarray:
        if len(leaves) == 1:
            return first[None]  # type: ignore[no-any-return]
        try:
            is_number = first.dtype.kind in "biufc"  # np.array looks into objects.
            if is_number and len(leaves) < tree.FEW and set(map(type, leaves)) == {np.ndarray}:
                batch = np.array(leaves)
                if batch.dtype is first.dtype:  # Other dtypes follow np.stack's promotion.
                    return batch
            if first.ndim and tree.are_alike(leaves, np.ndarray, len(first)):
                # The same as np.stack, without creating a view of each array.
                return np.concatenate(leaves).reshape(len(leaves), *first.shape)
        except (TypeError, ValueError):
            pass  # np.stack raises a more helpful error.
    elif kind is int:
        try:
            batch = np.array(leaves)
        except ValueError:
            pass
        else:
            # Other types among the numbers, and large numbers, follow np.stack's promotion.
            if batch.dtype is _INT64 and batch.ndim == 1:
                return batch
    elif kind in _PLAIN and len(set(map(type, leaves))) == 1:
        return np.array(leaves)
    return np.expand_dims(first, 0) if len(leaves) == 1 else np.stack(leaves)


def _same_shapes(leaves: list[Any]) -> bool:
    shape = leaves[0].shape
    # A list is faster than a generator here.
    return all([type(leaf) is np.ndarray and leaf.shape == shape for leaf in leaves])  # noqa: C419


def _stack_leaves_into(leaves: list[Any], empty: Empty) -> NDArray[Any]:
    first = leaves[0]
    if type(first) is np.ndarray and first.dtype.kind in "biufc" and first.size:
        dtype = first.dtype
        if dtype.isnative and _same_shapes(leaves) and all(leaf.dtype == dtype for leaf in leaves):
            batch = empty((len(leaves), *first.shape), dtype)
            copy = copier(batch.nbytes)
            if copy is not np.copyto and first.nbytes >= _LARGE_BYTES:
                for row, leaf in zip(batch, leaves, strict=True):
                    copy(row, leaf)
            elif first.ndim:
                np.concatenate(leaves, out=batch.reshape(-1, *first.shape[1:]))
            else:
                np.stack(leaves, out=batch)
            return batch
    return _stack_leaves(leaves)


class GrowingBatch:
    """A batch that is stacked while its elements arrive.

    A large array is copied right after it was computed, while it is still in the CPU's cache. Its
    memory can then be reused for the next one.

    Args:
        size: The maximum number of elements in the batch.
        empty: Allocates the large arrays of the batch.
    """

    def __init__(self, size: int, empty: Empty) -> None:
        self._size = size
        self._empty = empty
        self._elements: list[Any] = []  # Large arrays are replaced by rows of the batch.
        # One item for each leaf of the tree.
        self._batches: list[NDArray[Any] | None] = []
        self._copies: list[Copy] = []
        self._filled: list[int] = []

    def __len__(self) -> int:
        return len(self._elements)

    def add(self, element: Any) -> None:
        """Add an element, and copy its large arrays."""
        numbers = itertools.count()
        if type(element) is np.ndarray:
            element = self._put(element, 0)
        else:
            # `finish` raises an error for a wrong structure.
            with suppress_errors():
                element = tree.map_leaves(lambda leaf: self._put(leaf, next(numbers)), element)
        self._elements.append(element)

    def _put(self, leaf: Any, number: int) -> Any:
        """Copy a large array and return the copy; return other leaves as they are."""
        if not self._elements:
            batch = self._batch_of(leaf)
            self._batches.append(batch)
            self._copies.append(np.copyto if batch is None else copier(batch.nbytes))
            self._filled.append(0)
        batch = self._batches[number] if number < len(self._batches) else None
        if batch is None or type(leaf) is not np.ndarray:
            return leaf
        row = batch[len(self._elements)]
        if leaf.dtype != row.dtype or leaf.shape != row.shape:
            return leaf
        self._copies[number](row, leaf)
        self._filled[number] += 1
        return row

    def _batch_of(self, leaf: Any) -> NDArray[Any] | None:
        if not _is_large(leaf) or not leaf.ndim:
            return None
        if leaf.dtype.kind not in "biufc" or not leaf.dtype.isnative:
            return None
        return self._empty((self._size, *leaf.shape), leaf.dtype)

    def finish(self) -> Any:
        """Return the batch; raise the same errors as `stack`."""
        numbers, count = itertools.count(), len(self._elements)

        def stack_leaves(leaves: list[Any]) -> Any:
            number = next(numbers)
            batch = self._batches[number] if number < len(self._batches) else None
            if batch is None or self._filled[number] < count:
                return _stack_leaves_into(leaves, self._empty)
            return batch if count == self._size else batch[:count]

        try:
            return tree.zip_leaves(stack_leaves, self._elements)
        except ValueError as error:
            raise _cannot_stack(self._elements, error) from error


def has_large_arrays(element: Any) -> bool:
    """Whether elements like this one should go into a `GrowingBatch`."""
    return any(map(_is_large, tree.leaves(element)))


def _is_large(leaf: Any) -> bool:
    return type(leaf) is np.ndarray and leaf.nbytes >= _LARGE_BYTES


def batch_and_pad(values: Sequence[Any], *, batch_size: int, pad_value: Any = 0) -> Any:
    """Stack `values` and fill the batch up to `batch_size` with `pad_value`.

    Example:
        >>> pad = functools.partial(batch_and_pad, batch_size=32, pad_value=-1)
        >>> ds = ds.batch(32, batch_fn=pad)

    Args:
        values: The elements of one batch.
        batch_size: The number of rows of the padded batch.
        pad_value: The value of the added rows, cast to the dtype of each array.
    """
    if not values:
        raise ValueError("`batch_and_pad` needs at least one value, but got none.")
    missing = batch_size - len(values)
    if missing < 0:
        raise ValueError(
            f"`batch_and_pad` got {len(values)} values, more than batch_size={batch_size}."
        )
    batch = stack(values)
    if not missing:
        return batch
    return tree.map_leaves(lambda leaf: _pad(leaf, missing, pad_value), batch)


def _pad(batch: NDArray[Any], missing: int, pad_value: Any) -> NDArray[Any]:
    padding = np.full((missing, *batch.shape[1:]), pad_value, dtype=batch.dtype)
    return np.concatenate([batch, padding])


def _describe_elements(elements: Sequence[Any]) -> str:
    shown = [f"  {describe(element)}" for element in elements[:8]]
    if len(elements) > 8:
        shown.append(f"  ... and {len(elements) - 8} more")
    return "\n".join(shown)
