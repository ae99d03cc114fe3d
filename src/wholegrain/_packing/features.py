"""The arguments of packing, validated and flattened: which features, and how much room."""

import dataclasses
import operator
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from wholegrain._core.whole_number import whole_number

Path = tuple[Any, ...]


@dataclasses.dataclass(frozen=True)
class Feature:
    """One array of the packed rows.

    Args:
        path: The path of the feature in an element: one key, or several for a nested one.
        capacity: The number of cells in a row.
        alignment: Each sequence starts at a multiple of this number.
        padding: The value of empty cells; None for zero.
        is_meta: Whether it has no segment ids and positions.
    """

    path: Path
    capacity: int
    alignment: int
    padding: Any
    is_meta: bool

    def of(self, element: Any) -> Any:
        """Return the feature of `element`."""
        for key in self.path:
            element = element[key]
        return element


@dataclasses.dataclass(frozen=True)
class PackingPlan:
    """The validated arguments of a packing dataset.

    Args:
        structure: The `length_struct`.
        features: The features to pack, in the order of `structure`.
        list_features: Features collected in lists, with one entry for each element of a row.
        num_bins: The number of open rows.
        max_sequences_per_bin: The maximum number of elements in a row; None for no limit.
        best_fit: Whether an element goes into the fullest row that has room, not the first.
    """

    structure: Mapping[str, Any]
    features: tuple[Feature, ...]
    list_features: tuple[str, ...]
    num_bins: int
    max_sequences_per_bin: int | None
    best_fit: bool

    @property
    def stage(self) -> str:
        """The name of the dataset class that packs this way."""
        return "BestFitPackIterDataset" if self.best_fit else "FirstFitPackIterDataset"


def plan_packing(
    *,
    length_struct: Any,
    num_packing_bins: int,
    meta_features: Sequence[str],
    pack_alignment_struct: Any,
    padding_struct: Any,
    max_sequences_per_bin: int | None,
    best_fit: bool,
) -> PackingPlan:
    """Check the arguments of a packing dataset.

    Raises:
        ValueError: If packing is impossible; the message says what to change.
    """
    if not isinstance(length_struct, Mapping):
        raise ValueError(
            "`length_struct` must be a dict from the name of a feature to its length in a packed"
            f" row, but got {length_struct!r}."
        )
    if not length_struct and not meta_features:
        raise ValueError("`length_struct` is empty: name at least one feature to pack.")
    if whole_number("num_packing_bins", num_packing_bins) < 1:
        raise ValueError(f"`num_packing_bins` must be at least 1, but got {num_packing_bins}.")
    if max_sequences_per_bin is not None and max_sequences_per_bin < 1:
        raise ValueError(
            f"`max_sequences_per_bin` must be at least 1, but got {max_sequences_per_bin}. Leave it"
            " out to have no limit."
        )
    features = []
    for path, capacity in _leaves(length_struct):
        name = path[0]
        if len(path) > 1 and name not in meta_features:
            raise ValueError(
                f"The feature {name!r} of `length_struct` is nested: {length_struct[name]!r}."
                " Packing needs elements that are flat dicts; only features that are listed in"
                " `meta_features` may be nested."
            )
        capacity = whole_number(f"length_struct{_place(path)}", capacity)
        alignment = _value_at("pack_alignment_struct", pack_alignment_struct, path, 1)
        if whole_number(f"pack_alignment_struct{_place(path)}", alignment) < 1:
            raise ValueError(
                f"`pack_alignment_struct` must have numbers of at least 1, but got {alignment} for"
                f" {_name(path)}."
            )
        feature = Feature(
            path=path,
            capacity=operator.index(capacity),
            alignment=operator.index(alignment),
            padding=_value_at("padding_struct", padding_struct, path, None),
            is_meta=name in meta_features,
        )
        features.append(feature)
    return PackingPlan(
        structure=length_struct,
        features=tuple(features),
        list_features=tuple(name for name in meta_features if name not in length_struct),
        num_bins=operator.index(num_packing_bins),
        max_sequences_per_bin=max_sequences_per_bin,
        best_fit=best_fit,
    )


def rebuild(structure: Any, leaves: Iterator[Any]) -> Any:
    """Return containers like those of `structure`, with `leaves` in its order."""
    if isinstance(structure, Mapping):
        return {key: rebuild(value, leaves) for key, value in structure.items()}
    if isinstance(structure, (list, tuple)):
        return type(structure)([rebuild(value, leaves) for value in structure])
    return next(leaves)


def _leaves(structure: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    if isinstance(structure, Mapping):
        for key, value in structure.items():
            yield from _leaves(value, (*path, key))
    elif isinstance(structure, (list, tuple)):
        for index, value in enumerate(structure):
            yield from _leaves(value, (*path, index))
    else:
        yield path, structure


def _value_at(argument: str, structure: Any, path: Path, default: Any) -> Any:
    if structure is None:
        return default
    value = structure
    for key in path:
        try:
            value = value[key]
        except (KeyError, IndexError, TypeError):
            raise ValueError(
                f"`{argument}` has no value for {_name(path)}. It needs one for each feature of"
                f" `length_struct`, but got {structure!r}."
            ) from None
    return value


def _place(path: Path) -> str:
    return "".join(f"[{key!r}]" for key in path)


def _name(path: Path) -> str:
    return "the feature " + "".join(f"[{key!r}]" if i else repr(key) for i, key in enumerate(path))
