"""Concatenate and split: rows without padding, at the price of cutting sequences in two."""

import dataclasses
import enum
import functools
import logging
import operator
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from wholegrain._core import native

Row = dict[str, npt.NDArray[Any]]

_logger = logging.getLogger("wholegrain")


class BOSHandling(enum.Enum):
    """What to do with the first token of each piece: the beginning of a sequence, or of its rest.

    `DO_NOTHING` leaves it; `REPLACE_FIRST_TOKEN_WITH_BOS` puts the token for "begin of sequence"
    in its place, so that the rest of a split sequence begins as any other.
    """

    DO_NOTHING = enum.auto()
    REPLACE_FIRST_TOKEN_WITH_BOS = enum.auto()


@dataclasses.dataclass(frozen=True, slots=True)
class ConcatFeature:
    """One array of the rows.

    Args:
        name: What it is called in elements and rows.
        length: How many cells a row has.
        is_meta: Whether it is never split, and goes without segment ids and positions.
        gets_bos: Whether the first cell of each piece is replaced by the BOS token.
    """

    name: str
    length: int
    is_meta: bool
    gets_bos: bool


@dataclasses.dataclass(frozen=True)
class ConcatSplitPlan:
    """What is known before the first element.

    Args:
        features: In the order of the output.
        bos_token_id: The token for "begin of sequence".
        split_full_length_features: Whether an element that fills a row by itself may be split.
    """

    features: tuple[ConcatFeature, ...]
    bos_token_id: int | None
    split_full_length_features: bool


class Piece:
    """An element, or what is left of one: of each feature the cells from `starts` to `stops`.

    Args:
        sequences: The features, whole.
        starts: Where the piece begins in each of them.
        stops: Where it ends in each of them.
        origin: Whatever the caller wants to remember of the element.
        is_whole: Whether nothing was cut off.
    """

    __slots__ = ("is_whole", "origin", "sequences", "starts", "stops")

    def __init__(
        self,
        sequences: list[npt.NDArray[Any]],
        starts: list[int],
        stops: list[int],
        origin: Any,
        is_whole: bool,
    ) -> None:
        self.sequences = sequences
        self.starts = starts
        self.stops = stops
        self.origin = origin
        self.is_whole = is_whole


def plan_concat_split(
    *,
    length_struct: Mapping[str, int],
    meta_features: Collection[str],
    split_full_length_features: bool,
    bos_handling: BOSHandling,
    bos_features: Collection[str],
    bos_token_id: int | None,
) -> ConcatSplitPlan:
    """Check the arguments of `ConcatThenSplitIterDataset`.

    Raises:
        ValueError: If they contradict each other, with what to change.
    """
    if not length_struct:
        raise ValueError("`length_struct` is empty: name at least one feature to pack.")
    for name, length in length_struct.items():
        if operator.index(length) < 1:
            raise ValueError(
                f"`length_struct` must have lengths of at least 1, but got {length} for {name!r}."
            )
    if bos_handling == BOSHandling.DO_NOTHING:
        if bos_token_id is not None or bos_features:
            raise ValueError(
                f"bos_token_id={bos_token_id} and bos_features={bos_features!r} have no effect"
                " with BOSHandling.DO_NOTHING: leave them out, or choose another `bos_handling`."
            )
    elif bos_token_id is None:
        raise ValueError(f"{bos_handling} needs a `bos_token_id`.")
    both = sorted(set(bos_features) & set(meta_features))
    if both:
        raise ValueError(
            f"{both} are in `bos_features` and in `meta_features`: a meta feature has no tokens"
            " that could be replaced."
        )
    features = [
        ConcatFeature(name, operator.index(length), name in meta_features, name in bos_features)
        for name, length in length_struct.items()
    ]
    return ConcatSplitPlan(tuple(features), bos_token_id, split_full_length_features)


def whole_piece(plan: ConcatSplitPlan, element: Any, origin: Any) -> Piece:
    """Return all of an element.

    Raises:
        ValueError: If it does not have just the features of the plan.
    """
    features = plan.features
    if type(element) is dict and len(element) == len(features) == 1:
        sequence = element.get(features[0].name)
        if type(sequence) is np.ndarray and sequence.ndim:
            return Piece([sequence], [0], [len(sequence)], origin, True)
    if not isinstance(element, Mapping):
        raise ValueError(
            "`ConcatThenSplitIterDataset` takes elements that are flat dicts, but got a"
            f" {type(element).__name__}."
        )
    if len(element) != len(features) or not all(f.name in element for f in features):
        raise ValueError(
            f"An element has the features {list(element)}, but `length_struct` has"
            f" {[feature.name for feature in features]}. They must be the same: drop features"
            " from the elements, or give their lengths."
        )
    sequences = [np.atleast_1d(element[feature.name]) for feature in features]
    return Piece(sequences, [0] * len(features), list(map(len, sequences)), origin, True)


def fills_a_row(plan: ConcatSplitPlan, piece: Piece) -> bool:
    """Say whether one of the features is as long as a row, and none longer."""
    room = [f.length - length for f, length in zip(plan.features, piece.stops, strict=True)]
    return min(room) == 0


class ConcatenatedRow:
    """A row that pieces are appended to."""

    __slots__ = ("_bos_token_id", "_cells", "_features", "num_pieces")

    def __init__(self, plan: ConcatSplitPlan) -> None:
        self._features = plan.features
        self._bos_token_id = plan.bos_token_id
        self._cells: list[_Cells] = []
        self.num_pieces = 0

    def append(self, piece: Piece) -> Piece | None:
        """Append as much of a piece as there is room for, and return the rest.

        If there is room for nothing at all, the rest is the piece itself.
        """
        if not self._cells:
            self._cells = list(map(_Cells, self._features, piece.sequences))
        starts, cuts = piece.starts, piece.stops
        for f, cells in enumerate(self._cells):
            cut = starts[f] + cells.room
            if piece.stops[f] > cut:
                if self._features[f].is_meta:
                    _say_what_limits(self._features[f])
                    return piece
                if cuts is piece.stops:
                    cuts = cuts.copy()
                cuts[f] = cut
        if cuts is piece.stops:
            self._copy(piece, cuts)
            return None
        rest = starts.copy()
        for f, feature in enumerate(self._features):
            if not feature.is_meta:
                rest[f] = cuts[f]
        if rest == starts:
            return piece
        self._copy(piece, cuts)
        return Piece(piece.sequences, rest, piece.stops, piece.origin, False)

    def _copy(self, piece: Piece, stops: list[int]) -> None:
        self.num_pieces += 1
        for f, cells in enumerate(self._cells):
            start, stop = piece.starts[f], stops[f]
            length = stop - start
            cells.lengths.append(length)
            if length:
                sequence = piece.sequences[f]
                if length != len(sequence):
                    sequence = sequence[start:stop]
                values = cells.values
                first = len(values) - cells.room
                values[first : first + length] = sequence
                cells.room -= length
                if self._features[f].gets_bos:
                    values[first] = self._bos_token_id

    def finish(self) -> Row:
        """Return the row."""
        row = {}
        for feature, cells in zip(self._features, self._cells, strict=True):
            row[feature.name] = cells.values
            if not feature.is_meta:
                ids, positions = number_cells(cells.lengths, feature.length)
                row[feature.name + "_segment_ids"] = ids
                row[feature.name + "_positions"] = positions
        return row


class _Cells:
    """The cells of one feature of a row, made for sequences like `first`."""

    __slots__ = ("lengths", "room", "values")

    def __init__(self, feature: ConcatFeature, first: npt.NDArray[Any]) -> None:
        self.values = np.zeros((feature.length, *first.shape[1:]), first.dtype)
        self.room = feature.length
        self.lengths: list[int] = []  # of the pieces


def number_cells(
    lengths: list[int], row_length: int
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
    """Return the segment ids and positions of a row of pieces with these lengths."""
    segment_ids, positions = np.zeros(row_length, np.int32), np.zeros(row_length, np.int32)
    if native.lib is not None:
        native.lib.number_cells(lengths, segment_ids, positions)
        return segment_ids, positions
    end = 0
    for segment_id, length in enumerate(lengths, 1):
        start, end = end, end + length
        segment_ids[start:end] = segment_id
        positions[start:end] = _counting(length)
    return segment_ids, positions


@functools.cache
def _say_what_limits(feature: ConcatFeature) -> None:
    _logger.warning(
        "The meta feature %r is full before the others, so rows have padding. Raise its length of"
        " %d in `length_struct`.",
        feature.name,
        feature.length,
    )


def _counting(length: int) -> npt.NDArray[np.int32]:
    """Return 0, 1, ..., length - 1, from an array that is made once."""
    global _numbers
    numbers = _numbers
    if len(numbers) < length:
        _numbers = numbers = np.arange(2 * length, dtype=np.int32)
    return numbers[:length]


_numbers = np.arange(4096, dtype=np.int32)
