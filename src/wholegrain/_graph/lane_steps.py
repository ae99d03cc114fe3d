"""Steps: the same number of rows from each of a host's lanes, in the order of the lanes."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from wholegrain._core import digest, tree
from wholegrain._core.errors import takes_place
from wholegrain._core.interruption import is_interruption
from wholegrain._core.mask import with_mask
from wholegrain._core.stack import stack
from wholegrain._core.types import State
from wholegrain._graph import run
from wholegrain._graph.carrier import unpacking
from wholegrain._graph.iter_dataset import IterDataset
from wholegrain._graph.iterator import DatasetIterator, StageIterator, check_state_of, closed_error
from wholegrain._graph.kinds import OneParentIterNode
from wholegrain._graph.lane_workers import LaneWorkers, WorkerSettings
from wholegrain._graph.lanes import open_lane
from wholegrain._graph.open_ahead import close_all
from wholegrain._graph.shares import Shares
from wholegrain._graph.tolerance import uncounted
from wholegrain._observe import outline
from wholegrain._observe.shown import WORKERS
from wholegrain._state.lanes import check_lane_state, lane_state
from wholegrain._state.validate import copy_state, number_of

if TYPE_CHECKING:
    from wholegrain._workers.remote_lanes import LaneStates


class Steps(NamedTuple):
    """What a step is, and how many there are.

    Args:
        lanes: How many lanes there are on all hosts.
        owned: The lanes of this host.
        rows: How many elements a step takes from each lane.
        pads: Whether lanes that have ended are padded until all have; else the steps end when the
            first lane cannot fill its rows.
        total: Returns the number of steps; None if it is not known, or if there is no end.
        before: Returns the number of steps of earlier epochs, if they were read from these lanes.
    """

    lanes: int
    owned: range
    rows: int
    pads: bool
    total: Callable[[], int | None]
    before: Callable[[], int] = int


class LaneStepsIterDataset(OneParentIterNode[Any]):
    """Batches of `rows` elements from each of some lanes.

    Args:
        parent: The pipeline that has the lanes, without batches.
        steps: Which lanes, and how many elements of each.
        settings: Runs the lanes in workers; None for this process.
    """

    def __init__(
        self, parent: IterDataset[Any], steps: Steps, settings: WorkerSettings | None
    ) -> None:
        if steps.rows > 1:
            parent = parent.batch(steps.rows, drop_remainder=not steps.pads)
        super().__init__(parent)
        self.steps = steps
        self.settings = settings

    @property
    def shares(self) -> Shares[Any]:
        """The lanes of all hosts."""
        return Shares(self._parent, self.steps.lanes, False)

    @property
    def steps_before(self) -> int:
        """The number of steps of earlier epochs, if they were read from these lanes."""
        return self.steps.before()

    def step_in(self, state: Any) -> int:
        """Return how many steps were taken before a position."""
        return number_of(state, "elements_per_lane", self) // self.steps.rows

    @property
    def digester(self) -> digest.ByLane:
        """What computes the digests of its elements."""
        return digest.ByLane(self.steps.owned, self.steps.rows)

    def open(self) -> DatasetIterator[Any]:
        return LaneStepsIterator(self, run.current())

    def _traced(self, tracer: Any) -> Any:
        from wholegrain._graph.traced_lanes import traced_steps  # Rarely used.

        return traced_steps(self, tracer)

    def _label(self) -> str:
        owned, lanes = self.steps.owned, self.steps.lanes
        return f"steps ({len(owned)} of {outline.counted(lanes, 'lane')})"

    def __str__(self) -> str:
        return f"LaneStepsIterDataset(lanes={self.steps.lanes}, rows={self.steps.rows})"


class WorkerLaneStepsIterDataset(LaneStepsIterDataset):
    """The same, with lanes that workers run."""

    runs_ahead = WORKERS


class LaneStepsIterator(StageIterator[Any]):
    """A position in each lane, all after the same number of steps.

    If an element of a lane fails, its step is spent in all lanes, so that hosts stay in step.
    """

    def __init__(self, dataset: LaneStepsIterDataset, context: run.RunContext) -> None:
        super().__init__()
        self._dataset = dataset
        self._steps = dataset.steps
        self._context = context.but(lanes_here=len(dataset.steps.owned))
        self._total = functools.cache(dataset.steps.total)
        self._workers: LaneWorkers | None = None
        if dataset.settings is not None:
            self._workers = LaneWorkers(
                dataset.shares, context, dataset, dataset.settings, len(self._steps.owned)
            )
        self._lanes: dict[int, DatasetIterator[Any]] = {}
        self._is_started = False
        self._step = 0
        self._ended: set[int] = set()
        # With which lanes that have ended are padded: the last row of each, and the state of the
        # lane before it, as workers send it if there are any, to read the row again elsewhere.
        self._last_rows: dict[int, Any] = {}
        self._before_last: dict[int, Any] = {}
        self._closed_state: State | None = None

    def __next__(self) -> Any:
        if self._closed_state is not None:
            raise closed_error()
        total = self._total()
        if total is not None and self._step >= total:
            raise StopIteration
        if self._ended and not self._steps.pads:
            self._run_out(total)
        self.start_prefetch()
        parts = self._take_parts(total)
        if total is None and all(part is None for part in parts):
            raise StopIteration
        self._step += 1
        return self._joined(parts)

    @property
    def lanes_run_by(self) -> dict[int, str]:
        """What runs each lane of this host, for those who watch the run."""
        runner = (lambda lane: "this process") if self._workers is None else self._workers.runner_of
        ended = self._ended.copy()
        return {lane: "ended" if lane in ended else runner(lane) for lane in self._steps.owned}

    # Parts: what a lane contributes to a step.

    def _take_parts(self, total: int | None) -> list[Any]:
        """Return the next part of each lane; None for lanes that have ended."""
        saved = None if self._workers is None else self._workers.saved()
        parts, failed = [], None
        for lane in self._steps.owned:
            try:
                parts.append(self._take_part(lane, saved))
            except Exception as error:
                if is_interruption(error):
                    raise
                if not takes_place(error) and self._workers is not None:
                    self._workers.go_back(saved)
                    self._is_started = False
                    raise
                failed = failed or error
                continue
            if parts[-1] is None and not self._steps.pads:
                self._run_out(total)
        if failed is not None:
            self._step += 1
            raise failed
        return parts

    def _take_part(self, lane: int, saved: LaneStates | None) -> Any:
        if lane in self._ended:
            return None
        before: Any = None
        if self._steps.pads:
            before = self._lanes[lane].get_state() if saved is None else saved.get(lane)
        try:
            part = next(self._lanes[lane])
        except StopIteration:
            self._ended.add(lane)
            return None
        if self._steps.pads:
            self._last_rows[lane] = _row_of(part, self._steps.rows, last=True)
            self._before_last[lane] = before
        return part

    def _run_out(self, total: int | None) -> None:
        """End, or raise if there should be more steps."""
        if total is None:
            raise StopIteration
        raise ValueError(
            f"Lane {min(self._ended)} has ended in step {self._step} of {total}. If that number is"
            ' a budget, use a smaller one, or remainder="pad". If it was counted, the data have'
            " changed since: delete the file in `count_cache`."
        )

    def _joined(self, parts: Sequence[Any]) -> Any:
        rows = self._steps.rows
        if not self._steps.pads:
            if rows == 1:
                return stack(parts)
            return parts[0] if len(parts) == 1 else tree.zip_leaves(np.concatenate, parts)
        filled = [
            _padded(part, rows) if part is not None else (self._padding(lane), 0)
            for lane, part in zip(self._steps.owned, parts, strict=True)
        ]
        batch = tree.zip_leaves(np.concatenate, [part for part, _ in filled])
        is_row = np.arange(rows)[None] < np.array([count for _, count in filled])[:, None]
        return with_mask(batch, is_row.reshape(-1))

    def _padding(self, lane: int) -> Any:
        """Return the part of a lane that has ended: its last row that did not fail, repeated."""
        if lane not in self._last_rows:
            # After a restore, or because the lane is empty. Then it is the first row of another
            # lane, so that all hosts choose the same.
            row = self._read_row(lane, self._padding_state(lane), last=True)
            others = iter(range(self._steps.lanes))
            while row is None:
                other = next(others, None)
                if other is None:
                    raise ValueError(
                        'remainder="pad" repeats rows where elements are missing, but there is no'
                        " row to pad with: no lane has an element."
                    )
                row = self._read_row(other, None, last=False)
            self._last_rows[lane] = row
        row, rows = self._last_rows[lane], self._steps.rows
        return tree.map_leaves(lambda leaf: np.repeat(leaf, rows, axis=0), row)

    def _read_row(self, lane: int, state: State | None, *, last: bool) -> Any:
        """Return the first or the last row of a lane that does not fail; None if there is none.

        Args:
            lane: The lane.
            state: Where to begin; None for its start.
            last: Whether to return the last row.
        """
        account = uncounted(self._context).account
        opened: DatasetIterator[Any] = open_lane(self._dataset.shares, lane, self._context)
        iterator = unpacking(opened, self._dataset, account)
        row = None
        try:
            if state is not None:
                iterator.set_state(state)
            while row is None or last:
                try:
                    row = _row_of(next(iterator), self._steps.rows, last=last)
                except StopIteration:
                    break
                except Exception as error:
                    if is_interruption(error) or not takes_place(error):
                        raise
        finally:
            iterator.close()
        return row

    # Running.

    def start_prefetch(self) -> None:
        if self._closed_state is not None:
            raise closed_error()
        if self._is_started:
            return
        left = [lane for lane in self._steps.owned if lane not in self._ended]
        for lane in left:
            self._lane(lane)
        if self._workers is not None:
            self._workers.start(left)
        self._is_started = True

    def _lane(self, lane: int) -> DatasetIterator[Any]:
        if lane not in self._lanes:
            opened: DatasetIterator[Any] = (
                open_lane(self._dataset.shares, lane, self._context)
                if self._workers is None
                else self._workers.open(lane)
            )
            self._lanes[lane] = unpacking(opened, self._dataset, self._context.account)
        return self._lanes[lane]

    @property
    def reads_ahead(self) -> bool:
        return self._workers is not None

    def link(self, change: Callable[[Any], Any]) -> None:
        self._lanes = {lane: change(iterator) for lane, iterator in self._lanes.items()}

    @property
    def steps_taken(self) -> int:
        """How many steps were taken."""
        return self._step

    def progress(self) -> Any:
        return self._step

    def tell_report(self) -> None:
        if self._workers is not None:
            self._workers.tell_report()
        for iterator in self._lanes.values():
            iterator.tell_report()

    def close(self) -> None:
        if self._closed_state is None:
            self._closed_state = {}
            try:
                self._closed_state = self._state()
            finally:
                close_all(self._lanes.values())
                if self._workers is not None:
                    self._workers.close()

    # States.

    def get_state(self) -> State:
        if self._closed_state is not None:
            return copy_state(self._closed_state)  # type: ignore[no-any-return]
        return self._state()

    def _state(self) -> State:
        steps = self._steps
        states = {lane: self._lane(lane).get_state() for lane in steps.owned}
        padding = {lane: self._padding_state(lane) for lane in self._before_last}
        return lane_state(steps.lanes, self._step * steps.rows, states, self._ended, padding)

    def _padding_state(self, lane: int) -> State | None:
        """Return the state of a lane before its last row; None if it is not known."""
        if self._workers is None or lane not in self._before_last:
            return self._before_last.get(lane)
        return self._workers.from_wire(lane, self._before_last[lane])

    def check_state(self, state: State) -> None:
        steps = self._steps
        found = check_lane_state(state, self, steps.lanes, steps.owned, steps.rows)
        for lane, one in found.states.items():
            try:
                iterator = self._dataset.shares.open(lane, self._context)
            except Exception as error:
                if is_interruption(error):
                    raise
                return  # The lane may need something that exists only in workers.
            try:
                check_state_of(iterator, one)
                if lane in found.padding:
                    check_state_of(iterator, found.padding[lane])
            finally:
                iterator.close()

    def go_to(self, state: State) -> None:
        if self._closed_state is not None:
            raise closed_error()
        steps = self._steps
        found = check_lane_state(state, self, steps.lanes, steps.owned, steps.rows)
        self._is_started = False
        self._ended = found.ended
        for lane, one in found.states.items():
            self._lane(lane).set_state(one)
        self._step = found.elements // steps.rows
        self._last_rows = {}
        self._before_last = dict(found.padding)
        if self._workers is not None:
            self._before_last = {n: self._workers.to_wire(one) for n, one in found.padding.items()}

    def __str__(self) -> str:
        return f"LaneStepsIterator(lanes={self._steps.lanes}, rows={self._steps.rows})"


def _row_of(part: Any, rows: int, *, last: bool) -> Any:
    """Return a copy of the first or the last row of a part. With one row, a part is an element."""
    if rows == 1:
        return stack([part])
    which = slice(-1, None) if last else slice(1)
    return tree.map_leaves(lambda leaf: leaf[which].copy(), part)


def _padded(part: Any, rows: int) -> tuple[Any, int]:
    """Return a part with its last row repeated, and how many of its rows are elements."""
    if rows == 1:
        return stack([part]), 1
    count = len(tree.leaves(part)[0])
    if count == rows:
        return part, rows

    def pad(leaf: Any) -> Any:
        return np.concatenate([leaf, np.repeat(leaf[-1:], rows - count, axis=0)])

    return tree.map_leaves(pad, part), count
