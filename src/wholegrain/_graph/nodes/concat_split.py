"""Concatenates sequences and cuts them into rows of a fixed length."""

import collections
import dataclasses
from collections.abc import Collection, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from wholegrain._core.types import State
from wholegrain._graph.iterator import DatasetIterator, TransformIterator, go_to_state_of
from wholegrain._graph.kinds import OneParentIterNode
from wholegrain._packing.cell_origins import with_cell_origins, with_row_origins
from wholegrain._packing.concat_split import (
    BOSHandling,
    ConcatenatedRow,
    ConcatSplitPlan,
    Piece,
    Row,
    fills_a_row,
    plan_concat_split,
    whole_piece,
)
from wholegrain._state.spec import CheckpointSpec
from wholegrain._state.validate import (
    WrongStateError,
    check_mapping,
    copy_state,
    is_whole_number,
    part_of,
    shortened,
    wrong_state,
)

if TYPE_CHECKING:
    from wholegrain._graph.tracing import Tracer

_WHOLE = (-1, -1)  # The value in a state for a feature that is not cut.


class ConcatThenSplitIterDataset(OneParentIterNode[Row]):
    """Rows of a fixed length. Elements that do not fit are split, so only the last row is padded.

    Elements are flat dicts of arrays. The part of an element that does not fit into a row continues
    in the next. For each feature, a row also has `<feature>_segment_ids`, which number the pieces
    of a row from 1 (0 is padding), and `<feature>_positions`, which count the cells of a piece.

    Args:
        parent: The dataset whose elements are concatenated.
        length_struct: For each feature, the length of a row. Elements have only these features.
        meta_features: Features that are not split and get no segment ids and positions.
        split_full_length_features: Whether an element that fills a row by itself may be split.
            If not, it becomes a row of its own.
        bos_handling: What to do with the first token of each piece.
        bos_features: The features in which `bos_handling` replaces tokens.
        bos_token_id: The token for "begin of sequence".

    Example:
        >>> ds = ConcatThenSplitIterDataset(documents, length_struct={"tokens": 2048})
    """

    checkpoint = CheckpointSpec(
        fixed=("plan.features", "plan.split_full_length_features"),
        free=("plan.bos_token_id",),
        rereads=True,
    )

    def __init__(
        self,
        parent: Any,
        *,
        length_struct: Mapping[str, int],
        meta_features: Collection[str] = (),
        split_full_length_features: bool = True,
        bos_handling: BOSHandling = BOSHandling.DO_NOTHING,
        bos_features: Collection[str] = (),
        bos_token_id: int | None = None,
    ) -> None:
        super().__init__(parent)
        self._plan = plan_concat_split(
            length_struct=length_struct,
            meta_features=meta_features,
            split_full_length_features=split_full_length_features,
            bos_handling=bos_handling,
            bos_features=bos_features,
            bos_token_id=bos_token_id,
        )

    def open(self) -> DatasetIterator[Row]:
        return ConcatThenSplitDatasetIterator(self._parent.__iter__(), self._plan)

    def _traced(self, tracer: "Tracer") -> Any:
        # Cells carry their origins with them, and get the token for "begin of sequence" afterwards.
        plan = self._plan
        cells = tracer(self._parent).map(partial(with_cell_origins, plan))
        traced: Any = self.with_parents([cells])
        plain = [dataclasses.replace(feature, gets_bos=False) for feature in plan.features]
        traced._plan = dataclasses.replace(plan, features=tuple(plain))
        return traced.map(partial(with_row_origins, plan))

    @property
    def _element_spec(self) -> Any:
        raise NotImplementedError(f"The element spec of {self} is not known without reading.")

    def __str__(self) -> str:
        return "ConcatThenSplitIterDataset"


class ConcatThenSplitDatasetIterator(TransformIterator[Row]):
    """A position in the stream of concatenated elements.

    Rows that were made together wait in a queue. The state says where these rows begin: before
    which element of the parent, how much of that element was already used, and how many of the
    rows were returned since.
    """

    def __init__(self, parent: DatasetIterator[Any], plan: ConcatSplitPlan) -> None:
        super().__init__(parent)
        self._plan = plan
        self._begin_at(parent.get_state())

    def _begin_at(self, parent_state: State) -> None:
        self._rows: collections.deque[Row] = collections.deque()
        self._rest: Piece | None = None  # The rest of the last element, for the next row.
        self._has_ended = False
        # Where the rows in the queue begin, and how many of them were returned.
        self._begun_at = parent_state
        self._begun_with: Piece | None = None
        self._num_handed_out = 0

    def __next__(self) -> Row:
        if not self._rows:
            if self._has_ended:
                raise StopIteration
            self._note_beginning()
            self._make_rows()
        row = self._rows.popleft()
        self._num_handed_out += 1
        return row

    def _note_beginning(self) -> None:
        self._begun_with = self._rest
        self._begun_at = self.parent.get_state() if self._rest is None else self._rest.origin
        self._num_handed_out = 0

    def _make_rows(self) -> None:
        """Fill a row; full-length elements that are read meanwhile become rows of their own."""
        plan, parent = self._plan, self.parent
        row = ConcatenatedRow(plan)
        if self._rest is not None:
            self._rest = row.append(self._rest)
        while self._rest is None:
            origin = parent.get_state()
            try:
                element = next(parent)
            except StopIteration:
                self._has_ended = True
                break
            piece = whole_piece(plan, element, origin)
            if not plan.split_full_length_features and fills_a_row(plan, piece):
                own_row = ConcatenatedRow(plan)
                own_row.append(piece)
                self._rows.append(own_row.finish())
            else:
                self._rest = row.append(piece)
        if row.num_pieces:
            self._rows.appendleft(row.finish())
        elif self._rest is not None:
            raise self._never_fits(self._rest)
        if not self._rows:
            self._note_beginning()
            raise StopIteration

    def _never_fits(self, piece: Piece) -> ValueError:
        found = [
            f"{feature.name!r} has {len(sequence)} of at most {feature.length}"
            for feature, sequence in zip(self._plan.features, piece.sequences, strict=True)
            if feature.is_meta and len(sequence) > feature.length
        ]
        return ValueError(
            f"A meta feature is longer than a row, and cannot be split: {', '.join(found)}."
            " Raise its length in `length_struct`."
        )

    def get_state(self) -> State:
        piece = self._begun_with
        slices = {
            feature.name: _WHOLE
            if piece is None or piece.is_whole
            else (piece.starts[f], piece.stops[f])
            for f, feature in enumerate(self._plan.features)
            if not feature.is_meta
        }
        return {
            "parent_state": copy_state(self._begun_at),
            "remainder_slices": slices,
            "elements_from_buffer_after_checkpoint": self._num_handed_out,
        }

    def check_state(self, state: State) -> None:
        self.check_parts(state, "parent_state", "elements_from_buffer_after_checkpoint")
        slices = check_mapping(part_of(state, "remainder_slices", self), self)
        names = {feature.name for feature in self._plan.features}
        for name, cut in slices.items():
            if name not in names or not _is_cut(cut):
                raise wrong_state(self, f"of {shortened(name)} it has the slice {shortened(cut)}")

    def go_to(self, state: State) -> None:
        # Tuples become lists in JSON.
        slices = {name: (int(a), int(b)) for name, (a, b) in state["remainder_slices"].items()}
        num_handed_out = int(state["elements_from_buffer_after_checkpoint"])
        go_to_state_of(self.parent, state["parent_state"])
        self._begin_at(self.parent.get_state())
        if any(cut != _WHOLE for cut in slices.values()):
            self._rest = self._read_rest(slices)
            self._note_beginning()
        for _ in range(num_handed_out):
            if self._num_handed_out and not self._rows:
                raise WrongStateError(
                    f"The state says that {num_handed_out} rows were made together, but they are"
                    f" {self._num_handed_out}. Was it taken from another pipeline?"
                )
            if next(self, None) is None:
                raise wrong_state(self, f"{num_handed_out} rows were read, but no more follow")

    def _read_rest(self, slices: Mapping[str, tuple[int, int]]) -> Piece:
        try:
            piece = whole_piece(self._plan, next(self.parent), self._begun_at)
        except StopIteration:
            raise WrongStateError(
                "The state says that an element was cut, but there is none. Was it taken from"
                " another pipeline?"
            ) from None
        for f, feature in enumerate(self._plan.features):
            cut = slices.get(feature.name, _WHOLE)
            if cut != _WHOLE:
                if cut[1] > len(piece.sequences[f]):
                    raise wrong_state(
                        self,
                        f"{feature.name!r} was cut at {cut}, but has {len(piece.sequences[f])}",
                    )
                piece.starts[f], piece.stops[f] = cut
        piece.is_whole = False
        return piece

    def close(self) -> None:
        self._rows.clear()
        self._rest = None
        super().close()


def _is_cut(cut: Any) -> bool:
    """Whether a part of a state gives the remaining cells of a feature."""
    if not isinstance(cut, (list, tuple)) or len(cut) != 2 or not all(map(is_whole_number, cut)):
        return False
    return tuple(cut) == _WHOLE or 0 <= cut[0] <= cut[1]
