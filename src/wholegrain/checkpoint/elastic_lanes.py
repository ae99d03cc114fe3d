"""The iterator of an `ElasticIterator` with lanes: any pipeline, on any number of hosts."""

from __future__ import annotations

from collections.abc import Coroutine, Mapping, Sequence
from typing import Any

from wholegrain._core.tolerated import FailedRecord
from wholegrain._core.types import State
from wholegrain._core.whole_number import whole_number
from wholegrain._graph.iter_dataset import IterDataset
from wholegrain._graph.iterator import DatasetIterator, closed_error
from wholegrain._graph.lane_steps import LaneStepsIterDataset, Steps, WorkerLaneStepsIterDataset
from wholegrain._graph.lanes import worker_settings
from wholegrain._graph.later_epochs import at_epoch
from wholegrain._graph.map_dataset import MapDataset
from wholegrain._graph.run_iterator import Run
from wholegrain._graph.shares import check_can_shard
from wholegrain._graph.steered_run import steered
from wholegrain._state import files
from wholegrain._state.lanes import check_lane_state, merge_some
from wholegrain._state.steered import STEERED, as_steered, is_steered, with_steering
from wholegrain._state.validate import (
    is_whole_number,
    list_of,
    number_of,
    shortened,
    wrong_state,
)
from wholegrain.checkpoint.elastic_steps import EpochSteps, StepOptions
from wholegrain.options import MultiprocessingOptions, ReadOptions
from wholegrain.sharding import ShardOptions, check_shard_options


class ElasticLanesIterator(DatasetIterator[Any]):
    """A position in the lanes of this host; the arguments are those of `ElasticIterator`."""

    any_state_fits = False
    has_shard_states = False
    has_lane_states = True

    def __init__(
        self,
        ds: MapDataset[Any] | IterDataset[Any],
        global_batch_size: int,
        shard_options: ShardOptions,
        read_options: ReadOptions,
        multiprocessing_options: MultiprocessingOptions | None,
        lanes: int,
        steps: Any,
        remainder: Any,
        count_cache: Any,
    ) -> None:
        super().__init__()
        self.opened_from: Any = ds
        self.shard_options = check_shard_options(shard_options)
        self.lanes = _checked_lanes(lanes, shard_options)
        rows = _rows_per_lane(global_batch_size, lanes)
        options = StepOptions(lanes, rows, steps, remainder, count_cache).checked()
        workers = _checked_workers(multiprocessing_options, lanes)
        self._ds = ds.to_iter_dataset(read_options) if isinstance(ds, MapDataset) else ds
        check_can_shard(self._ds, lanes, False)
        self.rows_per_lane = rows
        self._pads = options.remainder == "pad"
        self._settings = None if workers is None else worker_settings(workers, None)
        self._steps = EpochSteps(self._ds, options, shard_options.shard_count, workers)
        self._epoch = 0
        self._is_over = False  # Whether the end was found, and no new epoch was begun.
        self._run: Run[Any] | None = None
        self._digests: dict[str, str] | None = None  # Of epochs that have ended.
        self._past_errors: list[FailedRecord] = []
        self._closed = False

    @property
    def owned(self) -> range:
        """The lanes of this host."""
        count = self.lanes // self.shard_options.shard_count
        first = self.shard_options.shard_index * count
        return range(first, first + count)

    # Elements.

    def _whole_run(self, method: str) -> Any:
        # The steps are those of the current epoch.
        return self.base_iterator

    def seek(self, step: int) -> None:
        super().seek(step)
        self._is_over = False

    def set_weights(self, weights: Mapping[str, float] | None, at_step: int | None = None) -> int:
        if at_step is None and self.shard_options.shard_count > 1:
            raise ValueError(
                "Hosts read different elements, so they have to agree from which step on the"
                " weights hold: give the same `at_step` on every host. It counts the elements of"
                " the mixture on all hosts."
            )
        return self.base_iterator.set_weights(weights, at_step)

    @property
    def base_iterator(self) -> Run[Any]:
        """The iterator of the current epoch, created on first use."""
        if self._run is None:
            if self._closed:
                raise closed_error()
            run = self._opened(self._epoch)
            if self._digests is not None:
                run.set_state(steered(run.get_state(), 0, [], self._digests))
            self._run, self._digests = run, None
        return self._run

    def _opened(self, epoch: int) -> Run[Any]:
        steps = Steps(
            self.lanes,
            self.owned,
            self.rows_per_lane,
            self._pads,
            lambda: self._steps.of(epoch),
            lambda: self._steps.before(self._epoch),
        )
        kind = LaneStepsIterDataset if self._settings is None else WorkerLaneStepsIterDataset
        ds = self._ds if self._steps.is_endless else at_epoch(self._ds, epoch)
        return Run(kind(ds, steps, self._settings))

    def __next__(self) -> Any:
        if self._closed:
            raise closed_error()
        if self._is_over:
            raise StopIteration
        try:
            return next(self.base_iterator)
        except StopIteration:
            self._epoch, self._is_over = self._epoch + 1, True
            self._end_run()
            raise

    def _end_run(self) -> None:
        run = self.base_iterator
        state: Any = run.get_state()
        digests = None
        if is_steered(state):  # Steps that are left out are those of one epoch.
            state, digests = state["parent"], state[STEERED]["digest"]
        if self._steps.is_endless:
            # The lanes go on; only the steps are counted from 0 again.
            state = {**state, "elements_per_lane": 0}
            run.set_state(state if digests is None else steered(state, 0, [], digests))
        else:
            self._digests = digests
            self._run = None
            self._past_errors += run.errors()
            run.close()

    def begin_epoch(self) -> None:
        """Begin the next epoch, if one has ended."""
        self._is_over = False

    def start_prefetch(self) -> None:
        self.base_iterator.start_prefetch()

    @property
    def is_closed(self) -> bool:
        """Whether `close` was called."""
        return self._closed

    def close(self) -> None:
        self._closed = True
        if self._run is not None:
            self._run.close()

    def report(self) -> Any:
        return self.base_iterator.report()

    def errors(self) -> list[FailedRecord]:
        return self._past_errors + ([] if self._run is None else self._run.errors())

    # Epochs.

    @property
    def epoch(self) -> int:
        """The number of the epoch, from 0."""
        return self._epoch

    @property
    def has_epochs(self) -> bool:
        """Whether epochs end."""
        return self._steps.has_epochs

    def set_epoch(self, epoch: int) -> None:
        """Go to the start of an epoch."""
        if self._closed:
            raise closed_error()
        epoch = whole_number("epoch", epoch)
        if epoch < 0:
            raise ValueError(f"Epochs count from 0, but got epoch={epoch}.")
        if epoch and self._steps.is_endless:
            raise ValueError(
                "An epoch of a pipeline without end begins where the one before it has ended, so"
                f" only its state leads there, but got epoch={epoch}."
            )
        run = self._run
        has_digest = run is not None and _digest_in(run.get_state()) is not None
        if has_digest or self._digests is not None:
            raise ValueError(
                "The run has a digest, which is that of all elements in order: it cannot go to"
                " another epoch. Make another iterator."
            )
        before, self._run = self._run, None
        self._epoch, self._is_over = epoch, False
        if before is not None:
            before.close()

    @property
    def step_in_epoch(self) -> int:
        """How many steps of the epoch were taken."""
        if self._run is None:
            return 0
        self._run.mend()
        output: Any = self._run._output  # noqa: SLF001
        return int(output.steps_taken)

    @property
    def steps_per_epoch(self) -> int | None:
        """How many steps the epoch has; None if it is not known, or if there is no end."""
        return self._steps.of(self._epoch)

    # States.

    def get_state(self) -> State:
        if self._run is None and self._closed:
            raise closed_error()
        state: Any = self.base_iterator.get_state()
        if is_steered(state):
            state = with_steering(state["parent"], state[STEERED])
        state = {**state, "epoch": self._epoch}
        counted = self._steps.counted.get(self._epoch)
        return state if counted is None else {**state, "counted": list(counted)}

    def check_state(self, state: State) -> None:
        check_lane_state(state, self, self.lanes, self.owned, self.rows_per_lane)
        number_of(state, "epoch", self)
        _counted(state, self)
        self._state_of_run(state)

    def _state_of_run(self, state: Any) -> State:
        """Return a state as that of the run of its epoch."""
        return as_steered(state, self, self.owned, self.rows_per_lane)

    def set_state(self, state: State) -> None:
        if self._closed:
            raise closed_error()
        self.check_state(state)
        epoch, counted = number_of(state, "epoch", self), _counted(state, self)
        same = self._run is not None and epoch == self._epoch
        run = self.base_iterator if same else self._opened(epoch)
        run.set_state(self._state_of_run(state))
        if counted is not None:
            self._steps.counted.setdefault(epoch, counted)
        before, self._run = self._run, run
        self._epoch, self._is_over, self._digests = epoch, False, None
        if before is not None and before is not run:
            before.close()

    def fits(self, state: State) -> bool:
        """Return whether a state has all lanes of this host; raise if it is not of these lanes."""
        check_lane_state(state, self, self.lanes, (), self.rows_per_lane)
        return all(str(lane) in state["lane_states"] for lane in self.owned)

    def merged(self, states: Sequence[State]) -> State:
        """Merge states that some of the hosts have saved."""
        return merge_some(states)

    async def save(self, directory: Any) -> Coroutine[Any, Any, None]:
        return files.save_later(self, directory)

    async def load(self, directory: Any) -> Coroutine[Any, Any, None]:
        return files.restore_later(self, directory)

    def get_shard_states(self) -> dict[int, State]:
        """Raise: states of lanes are part of `get_state`."""
        raise NotImplementedError("With lanes, `get_state` has the state of each lane.")

    def set_shard_states(self, shard_states: Any) -> None:
        """Raise: states of lanes are part of `set_state`."""
        raise NotImplementedError("With lanes, `set_state` takes the state of each lane.")


def _checked_lanes(lanes: Any, shard: ShardOptions) -> int:
    count = whole_number("lanes", lanes)
    if count < 1:
        raise ValueError(f"`lanes` has to be at least 1, but got {count}.")
    if count % shard.shard_count:
        raise ValueError(
            "Each host has the same number of lanes, but"
            f" lanes={count} is not a multiple of shard_count={shard.shard_count}. Use a number of"
            " lanes that every number of hosts divides, such as 64 or 120."
        )
    return count


def _rows_per_lane(global_batch_size: Any, lanes: int) -> int:
    rows, rest = divmod(whole_number("global_batch_size", global_batch_size), lanes)
    if rest or rows < 1:
        raise ValueError(
            "A step takes the same number of elements from each lane, but global_batch_size="
            f"{global_batch_size} is not a multiple of lanes={lanes}."
        )
    return rows


def _checked_workers(
    options: MultiprocessingOptions | None, lanes: int
) -> MultiprocessingOptions | None:
    if options is not None and not hasattr(options, "num_workers"):
        raise TypeError(
            "`multiprocessing_options` has to be something like"
            f" `MultiprocessingOptions(num_workers=4)`, but got {options!r}."
        )
    given = getattr(options, "lanes", None)
    if given is not None and given != lanes:
        raise ValueError(
            f"`ElasticIterator` has lanes={lanes}, but `multiprocessing_options` has lanes={given}."
            " Leave the second out."
        )
    return None if options is None or options.num_workers == 0 else options


def _digest_in(state: Any) -> Any:
    return state[STEERED]["digest"] if is_steered(state) else None


def _counted(state: State, owner: object) -> tuple[int, int] | None:
    if "counted" not in state:
        return None
    counted = list_of(state, "counted", owner)
    if len(counted) != 2 or not all(map(is_whole_number, counted)):
        raise wrong_state(owner, f'under "counted" it has {shortened(counted)}, not two numbers')
    return int(counted[0]), int(counted[1])
