"""Concatenate and split: rows without padding, because sequences may be split."""

import dataclasses
import enum
import functools
import logging
import operator
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from wholegrain._core.errors import add_stage_note
from wholegrain._core.names import kind_of
from wholegrain._core.types import NDArray
from wholegrain._core.whole_number import whole_number

Row = dict[str, NDArray[Any]]

_STAGE = "ConcatThenSplitIterDataset"

_logger = logging.getLogger("wholegrain")


class BOSHandling(enum.Enum):
    """What to do with the first token of each piece: the start of a sequence, or of its remainder.

    `DO_NOTHING` keeps it. `REPLACE_FIRST_TOKEN_WITH_BOS` replaces it by the "begin of sequence"
    token, so that the remainder of a split sequence starts like any other.
    """

    DO_NOTHING = enum.auto()
    REPLACE_FIRST_TOKEN_WITH_BOS = enum.auto()


@dataclasses.dataclass(frozen=True, slots=True)
class ConcatFeature:
    """One array of the rows.

    Args:
        name: Its name in elements and rows.
        length: How many cells a row has.
        is_meta: Whether it is never split, and has no segment ids and positions.
        gets_bos: Whether the first cell of each piece is replaced by the BOS token.
    """

    name: str
    length: int
    is_meta: bool
    gets_bos: bool


@dataclasses.dataclass(frozen=True)
class ConcatSplitPlan:
    """The validated arguments of `ConcatThenSplitIterDataset`.

    Args:
        features: In the order of the output.
        bos_token_id: The token for "begin of sequence".
        split_full_length_features: Whether an element that fills a row by itself may be split.
    """

    features: tuple[ConcatFeature, ...]
    bos_token_id: int | None
    split_full_length_features: bool


class Piece:
    """An element or its remainder: the cells from `starts` to `stops` of each feature.

    Args:
        sequences: The complete features.
        starts: The start of the piece in each of them.
        stops: The end of the piece in each of them.
        origin: Any value that the caller wants to keep with the element.
        is_whole: Whether the piece is a complete element.
    """

    __slots__ = ("is_whole", "origin", "sequences", "starts", "stops")

    def __init__(
        self,
        sequences: list[NDArray[Any]],
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
        ValueError: If they contradict each other; the message says what to change.
    """
    if not isinstance(length_struct, Mapping):
        raise TypeError(
            "`length_struct` must be a dict from the name of a feature to its length in a row, but"
            f" got {length_struct!r}."
        )
    if not length_struct:
        raise ValueError("`length_struct` is empty: name at least one feature to pack.")
    for name, length in length_struct.items():
        if whole_number(f"length_struct[{name!r}]", length) < 1:
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
            f"{both} are in `bos_features` and in `meta_features`, but a meta feature has no tokens"
            " to replace. Remove them from one of the two."
        )
    features = [
        ConcatFeature(name, operator.index(length), name in meta_features, name in bos_features)
        for name, length in length_struct.items()
    ]
    return ConcatSplitPlan(tuple(features), bos_token_id, split_full_length_features)


def whole_piece(plan: ConcatSplitPlan, element: Any, origin: Any) -> Piece:
    """Return a complete element as one piece.

    Raises:
        ValueError: If it does not have exactly the features of the plan.
    """
    features = plan.features
    if type(element) is dict and len(element) == len(features) == 1:
        sequence = element.get(features[0].name)
        if type(sequence) is np.ndarray and sequence.ndim:
            return Piece([sequence], [0], [len(sequence)], origin, True)
    if not isinstance(element, Mapping):
        raise ValueError(
            "`ConcatThenSplitIterDataset` takes elements that are flat dicts, but got"
            f" {kind_of(element)}."
        )
    if len(element) != len(features) or not all(f.name in element for f in features):
        raise ValueError(
            f"An element of {_STAGE} has the features {list(element)}, but `length_struct`"
            f" has {[feature.name for feature in features]}. They must be the same: drop features"
            " from the elements, or add their lengths to `length_struct`."
        )
    sequences = [_sequence(feature, element[feature.name]) for feature in features]
    return Piece(sequences, [0] * len(features), list(map(len, sequences)), origin, True)


def _sequence(feature: ConcatFeature, value: Any) -> NDArray[Any]:
    try:
        return np.atleast_1d(value)
    except Exception as error:
        what = f"the feature {feature.name!r} is not an array"
        add_stage_note(error, f"This happened in {_STAGE}: {what}.")
        raise


def fills_a_row(plan: ConcatSplitPlan, piece: Piece) -> bool:
    """Return whether a feature is as long as a row, and none is longer."""
    room = [f.length - length for f, length in zip(plan.features, piece.stops, strict=True)]
    return min(room) == 0


class ConcatenatedRow:
    """A row that pieces are appended to."""

    __slots__ = ("_bos_token_id", "_cells", "num_pieces")

    def __init__(self, plan: ConcatSplitPlan) -> None:
        self._bos_token_id = plan.bos_token_id
        self._cells = [_Cells(feature) for feature in plan.features]
        self.num_pieces = 0

    def append(self, piece: Piece) -> Piece | None:
        """Append as much of a piece as there is room for, and return the remainder.

        If there is no room at all, the remainder is the piece itself.
        """
        if len(self._cells) == 1 and not self._cells[0].feature.is_meta:
            return self._append_single(piece)
        starts, cuts = piece.starts, piece.stops
        for f, cells in enumerate(self._cells):
            cut = starts[f] + cells.room
            if piece.stops[f] > cut:
                if cells.feature.is_meta:
                    _say_what_limits(cells.feature)
                    return piece
                if cuts is piece.stops:
                    cuts = cuts.copy()
                cuts[f] = cut
        rest: Piece | None = None
        if cuts is not piece.stops:
            rest_starts = [
                start if cells.feature.is_meta else cut
                for cells, start, cut in zip(self._cells, starts, cuts, strict=True)
            ]
            if rest_starts == starts:
                return piece
            rest = Piece(piece.sequences, rest_starts, piece.stops, piece.origin, False)
        self.num_pieces += 1
        for f, cells in enumerate(self._cells):
            cells.append(piece.sequences[f], starts[f], cuts[f])
        return rest

    def _append_single(self, piece: Piece) -> Piece | None:
        """Do the same for the common case of one feature."""
        cells, start, stop = self._cells[0], piece.starts[0], piece.stops[0]
        rest: Piece | None = None
        if stop - start > cells.room:
            if not cells.room:
                return piece
            rest = Piece(piece.sequences, [start + cells.room], [stop], piece.origin, False)
            stop = start + cells.room
        self.num_pieces += 1
        cells.append(piece.sequences[0], start, stop)
        return rest

    def finish(self) -> Row:
        """Return the row."""
        row: Row = {}
        for cells in self._cells:
            try:
                cells.join(row, self._bos_token_id)
            except Exception as error:
                cells.add_note(error)
                raise
        return row


class _Cells:
    """The pieces of one feature of a row."""

    __slots__ = ("feature", "room", "sequences", "starts", "stops")

    def __init__(self, feature: ConcatFeature) -> None:
        self.feature = feature
        self.room = feature.length
        self.sequences: list[NDArray[Any]] = []
        self.starts: list[int] = []
        self.stops: list[int] = []

    def append(self, sequence: NDArray[Any], start: int, stop: int) -> None:
        self.room -= stop - start
        self.sequences.append(sequence)
        self.starts.append(start)
        self.stops.append(stop)

    def join(self, row: Row, bos_token_id: int | None) -> None:
        """Write the pieces into `row`, with their segment ids and positions."""
        feature, first = self.feature, self.sequences[0]
        values = np.empty((feature.length, *first.shape[1:]), first.dtype)
        row[feature.name] = values
        segment_ids: NDArray[np.int32] | None = None
        positions: NDArray[np.int32] | None = None
        if not feature.is_meta:
            segment_ids = np.empty(feature.length, np.int32)
            positions = np.empty(feature.length, np.int32)
            row[feature.name + "_segment_ids"] = segment_ids
            row[feature.name + "_positions"] = positions
        self._join(values, segment_ids, positions)
        if feature.gets_bos:
            end = 0
            for start, stop in zip(self.starts, self.stops, strict=True):
                if start < stop:
                    values[end] = bos_token_id
                end += stop - start

    def add_note(self, error: Exception) -> None:
        """Describe which feature could not be concatenated, and from which pieces."""
        kinds = dict.fromkeys(f"{s.dtype}{[..., *s.shape[1:]]}" for s in self.sequences)
        add_stage_note(
            error,
            f"This happened in {_STAGE}: the pieces of the feature {self.feature.name!r} in a row"
            f" are {', '.join(kinds)}.".replace("Ellipsis", "n"),
        )

    def _join(
        self,
        values: NDArray[Any],
        segment_ids: NDArray[np.int32] | None,
        positions: NDArray[np.int32] | None,
    ) -> None:
        begin = 0
        lengths = []
        for sequence, start, stop in zip(self.sequences, self.starts, self.stops, strict=True):
            lengths.append(stop - start)
            end = begin + stop - start
            values[begin:end] = sequence[start:stop]
            if segment_ids is not None:
                segment_ids[begin:end] = len(lengths)
            begin = end
        if segment_ids is not None and positions is not None:
            np.concatenate([_counting(length) for length in lengths], out=positions[:begin])
        if begin < len(values):
            # Not all kinds of values can be assigned 0, but all of them have zeros.
            values[begin:] = np.zeros((), values.dtype)
            if segment_ids is not None and positions is not None:
                segment_ids[begin:] = 0
                positions[begin:] = 0


@functools.cache
def _say_what_limits(feature: ConcatFeature) -> None:
    _logger.warning(
        "The meta feature %r fills up before the others, so rows have padding. Raise its length of"
        " %d in `length_struct`.",
        feature.name,
        feature.length,
    )


def _counting(length: int) -> NDArray[np.int32]:
    """Return 0, 1, ..., length - 1, as a view of a cached array."""
    global _numbers
    numbers = _numbers
    if len(numbers) < length:
        _numbers = numbers = np.arange(2 * length, dtype=np.int32)
    return numbers[:length]


_numbers = np.arange(4096, dtype=np.int32)
