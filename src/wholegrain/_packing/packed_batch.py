"""A set of open rows, filled with the sequences of many elements."""

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from wholegrain._core import tree
from wholegrain._packing.bins import FeatureArrays, make_bins
from wholegrain._packing.features import Feature, PackingPlan, rebuild
from wholegrain._packing.misfits import add_misfit_note
from wholegrain._packing.recycling import RecycledArrays

Row = dict[str, Any]


class PackedBatch:
    """As many rows as there are bins, filled element by element.

    Args:
        plan: What to pack, and into how much room.
        first: An element whose arrays determine the dtypes of the rows; it is not added.
        memory: Provides the memory of the rows.
    """

    def __init__(self, plan: PackingPlan, first: Any, memory: RecycledArrays) -> None:
        self._plan = plan
        try:
            self._arrays = [
                empty_arrays(plan.num_bins, f, f.of(first), memory) for f in plan.features
            ]
        except Exception as error:
            add_misfit_note(error, plan.stage, first, [(f, None) for f in plan.features])
            raise
        self._bins = make_bins(plan, self._arrays)
        self._lists: list[list[list[Any]]] = [
            [[] for _ in range(plan.num_bins)] for _ in plan.list_features
        ]
        self._columns = self._output_columns()

    @property
    def num_rows(self) -> int:
        """The number of rows that have elements. They are the first ones."""
        return self._bins.num_open

    @property
    def num_empty_rows(self) -> int:
        """The number of empty rows: one element is sure to fit into each of them."""
        return self._plan.num_bins - self._bins.num_open

    @property
    def nbytes(self) -> int:
        """The memory of all rows: values, segment ids, positions and fill levels."""
        cells = sum(self._plan.num_bins * f.capacity for f in self._plan.features)
        values = sum(array.values.nbytes for array in self._arrays)
        return values + 8 * cells + 8 * self._plan.num_bins * len(self._arrays)

    def cells(self) -> tuple[int, int]:
        """Return how many cells of the rows have been filled, and how many there are."""
        filled = cells = 0
        for array in self._arrays:
            if array.segment_ids is not None:
                filled += int(np.count_nonzero(array.segment_ids[: self.num_rows]))
                cells += self.num_rows * array.feature.capacity
        return filled, cells

    def add(self, elements: list[Any]) -> None:
        """Move elements from the front of the list into rows, up to the first that does not fit.

        An element that cannot be packed at all is removed from the list too.
        """
        done = 0
        try:
            while done < len(elements):
                done += self._add_plain(elements, done)
                if done < len(elements):
                    done += 1  # even if it fails
                    if not self._add_any(elements[done - 1]):
                        done -= 1
                        break
        except Exception as error:
            rows = [(array.feature, array.values) for array in self._arrays]
            add_misfit_note(error, self._plan.stage, elements[max(0, done - 1)], rows)
            raise
        finally:
            del elements[:done]

    def row(self, index: int) -> Row:
        """Return a row as views of this batch."""
        return {name: column[index] for name, column in self._columns}

    def _add_plain(self, elements: list[Any], start: int) -> int:
        """Add flat dicts of arrays like the first element, if the fast path supports it."""
        if not self._lists:
            return self._bins.add(elements, start, None)
        try:
            values = [[e[name] for e in elements[start:]] for name in self._plan.list_features]
        except (KeyError, TypeError, IndexError):
            return 0
        chosen: list[int] = []
        added = self._bins.add(elements, start, chosen)
        for lists, entries in zip(self._lists, values, strict=True):
            for bin_, entry in zip(chosen, entries, strict=False):
                lists[bin_].append(entry)
        return added

    def _add_any(self, element: Any) -> bool:
        sequences = [_sequence(array.feature.of(element)) for array in self._arrays]
        lengths = tuple([len(s) for s in sequences])
        entries = [element[name] for name in self._plan.list_features]
        for array, length in zip(self._arrays, lengths, strict=True):
            if length > array.feature.capacity:
                raise _too_long(self._arrays, lengths)
        place = self._bins.place(lengths)
        if place is None:
            return False
        bin_, *starts = place
        for array, sequence, start in zip(self._arrays, sequences, starts, strict=True):
            array.values[bin_, start : start + len(sequence)] = sequence
        for lists, entry in zip(self._lists, entries, strict=True):
            lists[bin_].append(entry)
        return True

    def _output_columns(self) -> list[tuple[str, Any]]:
        columns: list[tuple[str, Any]] = []
        values = iter([array.values for array in self._arrays])
        for name, length in self._plan.structure.items():
            column = rebuild(length, values)
            columns.append((name, column if isinstance(column, np.ndarray) else _Nested(column)))
        columns += zip(self._plan.list_features, self._lists, strict=True)
        for array in self._arrays:
            if not array.feature.is_meta:
                (name,) = array.feature.path
                columns += [
                    (f"{name}_segment_ids", array.segment_ids),
                    (f"{name}_positions", array.positions),
                ]
        # As in a batch: `tree` says why the order of the keys depends on jax.
        return sorted(columns, key=_name) if tree.follows_jax() else columns


def _name(column: tuple[str, Any]) -> str:
    return column[0]


class _Nested:
    """A structure of arrays that is indexed like one array."""

    def __init__(self, arrays: Any) -> None:
        self._arrays = arrays

    def __getitem__(self, index: int) -> Any:
        return tree.map_leaves(operator.itemgetter(index), self._arrays)


def _sequence(value: Any) -> Any:
    """Return `value` as a sequence: a scalar becomes a sequence of length 1."""
    if isinstance(value, np.ndarray) and value.ndim:
        return value
    if isinstance(value, (list, tuple)):
        return np.asarray(value)
    if isinstance(value, dict):
        raise TypeError(
            f"A packed feature must be an array or a scalar, but got a dict: {value!r}. Flatten the"
            " elements before packing."
        )
    return [value]


def empty_arrays(
    num_bins: int, feature: Feature, value: Any, memory: RecycledArrays
) -> FeatureArrays:
    """Return the cells of a feature for sequences like `value`."""
    if isinstance(value, np.ndarray):
        dtype, inner_shape = value.dtype, value.shape[1:]
    elif isinstance(value, int):
        dtype, inner_shape = np.dtype(np.int64), ()
    else:
        array = np.asarray(value)
        dtype, inner_shape = array.dtype, array.shape[1:]
    cells = (num_bins, feature.capacity)
    values = memory.full((*cells, *inner_shape), feature.padding, dtype)
    if feature.is_meta:
        return FeatureArrays(feature, values, None, None)
    segment_ids, positions = (memory.full(cells, None, np.int32) for _ in range(2))
    return FeatureArrays(feature, values, segment_ids, positions)


def _too_long(arrays: Sequence[FeatureArrays], lengths: Sequence[int]) -> ValueError:
    found = [
        f"{'.'.join(map(str, array.feature.path))!r} has {length} of at most"
        f" {array.feature.capacity}"
        for array, length in zip(arrays, lengths, strict=True)
        if length > array.feature.capacity
    ]
    return ValueError(
        f"An element is longer than a packed row: {', '.join(found)}. Truncate or split the"
        " sequences before packing, or raise `length_struct`."
    )
