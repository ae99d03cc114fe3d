"""Mixes datasets by weight, evenly and without randomness."""

import dataclasses
import itertools
import operator
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from wholegrain._core.errors import add_stage_note
from wholegrain._core.failure import PartlyFailed
from wholegrain._core.mixture import Mixture
from wholegrain._core.mixture_plan import MixturePlan
from wholegrain._core.origins import TracedTest
from wholegrain._core.types import Indices, State, T
from wholegrain._graph import run, shard_states
from wholegrain._graph.chunks import for_each, read_singly
from wholegrain._graph.iterator import (
    DatasetIterator,
    StageIterator,
    check_state_of,
    closed_error,
    go_to_state_of,
)
from wholegrain._graph.kinds import IterNode, ManyParentsMapNode, several
from wholegrain._graph.map_dataset import MapDataset
from wholegrain._graph.mix_options import (
    MixOptions,
    components_of,
    fixed_weights,
    open_later,
    plan_of,
    settings_of,
)
from wholegrain._graph.steering import Settings, Steering, size_of
from wholegrain._observe import outline
from wholegrain._observe.mixture import MixtureReport, epochs_read, report_of
from wholegrain._read.shared_threads import SharedReaders
from wholegrain._state.spec import CheckpointSpec
from wholegrain._state.validate import (
    check_mapping,
    flag_of,
    number_of,
    part_of,
    shortened,
    wrong_state,
)
from wholegrain.transforms import DatasetSelectionMap

if TYPE_CHECKING:
    from wholegrain._graph.tracing import Tracer

_PLAIN = MixOptions()


def _is_set(dataset: Any, option: str) -> bool:
    return bool(getattr(dataset, f"_{option}") != getattr(_PLAIN, option))


class MixedMapDataset(ManyParentsMapNode[T]):
    """Several datasets mixed by weight, by index."""

    same_each_epoch = False  # An epoch continues in each component where the last one ended.

    def __init__(self, datasets: Any, weights: Any, options: MixOptions = _PLAIN) -> None:
        components = components_of(datasets, weights, options)
        super().__init__(components.datasets)
        self._keys = components.names
        _, self._stop, self._max_repetitions, self._seed_by = options
        self._settings = settings_of(self._keys, len(self._parents), weights, options)
        self._weights = fixed_weights(self._keys, len(self._parents), weights)
        self._follow_parents()

    @property
    def checkpoint(self) -> CheckpointSpec:
        used = [name for name in ("stop", "seed_by", "max_repetitions") if _is_set(self, name)]
        return CheckpointSpec(fixed=("weights", *used))

    def _follow_parents(self) -> None:
        lengths = [len(parent) for parent in self._parents]
        empty = [number for number, length in enumerate(lengths) if not length]
        if empty:
            raise ValueError(
                "`mix` cannot take elements from empty datasets, but the components at"
                f" {empty} have none. Leave them out."
            )
        settings = self._settings
        self._mixture: Mixture | MixturePlan
        if settings.pattern is None:
            plan = self._mixture = plan_of(settings, lengths)
            self._length = plan.length if self._stop != "first" else plan.length_with(lengths)
            return
        self._mixture = settings.pattern
        total = sum(self._weights)
        # The order of these float operations matters: the lengths have to equal Grain's.
        longest = min(
            length / (weight / total) for length, weight in zip(lengths, self._weights, strict=True)
        )
        self._length = min(sys.maxsize, int(longest))

    def __len__(self) -> int:
        return self._length

    @property
    def _period(self) -> int | None:
        found = [parent._period for parent in self._parents]
        if None in found or self._settings.pattern is None:
            return None
        # The mixture repeats when the component that takes longest has repeated.
        weights: list[int] = self._weights
        total, pairs = sum(weights), zip(found, weights, strict=True)
        return max((length or 0) * total // weight + 1 for length, weight in pairs)

    def describe(self, index: int) -> MixtureReport:
        """Return what the mixture gives before `index`."""
        settings, counts = self._settings, self._mixture.counts(index)
        pairs = zip(counts, self._parents, strict=True)
        return report_of(
            index,
            range(len(counts)) if self._keys is None else self._keys,
            settings.weights[settings.schedule.piece_at(index)],
            counts,
            None,
            [epochs_read(parent, count) for count, parent in pairs],
        )

    def locate(self, index: int) -> tuple[int, int]:
        return self._mixture.locate(index)

    def locate_many(self, indices: Indices) -> tuple[Indices, Indices]:
        return self._mixture.locate_many(indices)

    def _stop_in_parent(self, number: int, stop: int) -> int | None:
        if not isinstance(self._mixture, Mixture):  # The weights change.
            return super()._stop_in_parent(number, stop)
        return self._mixture.reach(number, stop)

    def _positions_of(self, keys: Sequence[Indices], stop: int) -> Indices:
        mixture = self._mixture
        if not isinstance(mixture, Mixture):
            return super()._positions_of(keys, stop)
        found = [mixture.positions_of(n, own, stop) for n, own in enumerate(keys)]
        return np.concatenate(found)

    def _label(self) -> str:
        return f"mix ({outline.counted(len(self.parents), 'dataset')})"

    def __str__(self) -> str:
        return f"MixedMapDataset[{len(self._parents)} parents]"

    def __repr__(self) -> str:
        lengths = [len(parent) for parent in self._parents]
        return f"MixedMapDataset(parent_lengths={lengths}, weights={self._weights})"


class SelectedMapDataset(ManyParentsMapNode[T]):
    """Several datasets mixed by a user's map, by index."""

    checkpoint = CheckpointSpec(fixed=("selection_map", "length"))
    same_each_epoch = False

    def __init__(
        self, datasets: Sequence[MapDataset[T]], selection_map: DatasetSelectionMap
    ) -> None:
        super().__init__(several("select_from_datasets", datasets))
        self._selection_map = selection_map

    def __len__(self) -> int:
        return len(self._selection_map)

    def locate(self, index: int) -> tuple[int, int]:
        return self._selection_map[index]

    def getitems(self, indices: Indices) -> Sequence[T | None]:
        select = self._selection_map.__getitem__
        pairs = read_singly(select, indices.tolist(), self, indices)
        if type(pairs) is not PartlyFailed:
            return self.read_at(*self._located(pairs))
        return for_each(
            lambda out, some: out.extend(itertools.starmap(self._read_at, some)),
            self,
            indices,
            pairs,
        )

    def locate_many(self, indices: Indices) -> tuple[Indices, Indices]:
        return self._located([self._selection_map[index] for index in indices.tolist()])

    @staticmethod
    def _located(pairs: Sequence[tuple[int, int]]) -> tuple[Indices, Indices]:
        located = _as_array(pairs)
        return located[:, 0], located[:, 1]

    def __str__(self) -> str:
        return f"SelectedMapDataset[{len(self._parents)} parents]"


def _as_array(pairs: Sequence[tuple[int, int]]) -> Any:
    return np.array(pairs, dtype=np.int64).reshape(-1, 2)


class MixedIterDataset(IterNode[T]):
    """Several datasets mixed by weight, in order, until one ends."""

    keeps_journal = True
    """Whether its states have the changes of its weights."""

    def __init__(self, datasets: Any, weights: Any, options: MixOptions = _PLAIN) -> None:
        components = components_of(datasets, weights, options)
        super().__init__(components.datasets)
        self._keys = components.names
        self._unit, self._stop, self._max_repetitions, self._seed_by = options
        self.settings = settings_of(self._keys, len(self._parents), weights, options)
        self._weights = fixed_weights(self._keys, len(self._parents), weights)

    @property
    def checkpoint(self) -> CheckpointSpec:
        used = [name for name in ("unit", "stop", "seed_by") if _is_set(self, name)]
        free = ("max_repetitions",) if _is_set(self, "max_repetitions") else ()
        if self._keys is None:
            return CheckpointSpec(fixed=("weights", *used), free=free)
        # Components with names may change between runs, and so may their weights.
        return CheckpointSpec(fixed=tuple(used), free=("weights", *free), names="keys")

    def _traced(self, tracer: "Tracer") -> Any:
        traced, measure = tracer.passing(self), self.settings.measure
        if measure is not None:
            traced.settings = dataclasses.replace(self.settings, measure=TracedTest(measure))
        return traced

    def open(self) -> DatasetIterator[T]:
        context = run.current()
        shared = SharedReaders.of(len(self._parents), context.shared_readers)
        # Without a run, each component starts one of its own.
        if shared is not context.shared_readers and run.is_opening():
            context = context.but(shared_readers=shared)
            with run.entered(context):
                parents = [parent.__iter__() for parent in self._parents]
        else:
            parents = [parent.__iter__() for parent in self._parents]
        opened = MixedDatasetIterator(parents, self.settings, self._open_later, context)
        if self.settings.pattern is None:
            opened.be_steered()
        return opened

    def _open_later(self, component: int, epoch: int, context: run.RunContext) -> Any:
        """Open a later epoch of a component."""
        return open_later(self._parents[component], epoch, context)

    @property
    def _element_spec(self) -> Any:
        return self._parents[0]._element_spec

    def _label(self) -> str:
        return f"mix ({outline.counted(len(self.parents), 'dataset')})"

    def __str__(self) -> str:
        return f"MixedIterDataset([{len(self._parents)} parents], proportions={self._weights})"


class MixedDatasetIterator(StageIterator[T]):
    """A position in the pattern of a mixture, and one in each component."""

    closes_when_dropped = False

    def __init__(
        self,
        parents: list[DatasetIterator[T]],
        settings: Settings,
        open_later: Callable[[int, int, Any], DatasetIterator[T]],
        context: run.RunContext,
    ) -> None:
        super().__init__(parents)
        self.settings = settings
        self._pattern = None if settings.pattern is None else settings.pattern.pattern
        self._open_later = open_later
        self._context = context
        self._index = 0
        self._stop = False
        self._closed = False
        self._steering: Steering | None = None
        self._plain = True  # Neither stopped, closed nor steered: a single check per element.

    def be_steered(self) -> Steering:
        """Follow options or journaled weights instead of Grain's pattern."""
        self._steering = Steering(self.settings, self._context.worker_count)
        self._plain = False
        return self._steering

    def __next__(self) -> T:
        if not self._plain:
            return self._next_specially()
        index = self._index
        pattern = self._pattern
        if pattern is None:
            component = self.settings.pattern.component(index)  # type: ignore[union-attr]
        else:
            component = pattern[index % len(pattern)]
        self._index = index + 1
        try:
            element: T = next(self._parents[component])
            return element
        except StopIteration:
            self._stop, self._plain = True, False
            raise
        except Exception as error:
            self._note(error, component)
            raise

    def _next_specially(self) -> T:
        if self._closed:
            raise closed_error()
        steering = self._steering
        if self._stop or steering is None:
            raise StopIteration
        measure = self.settings.measure
        while (component := steering.choose(self._index)) >= 0:
            try:
                element: T = next(self._parents[component])
                size = 1 if measure is None else size_of(element, measure)
            except StopIteration:
                if self._goes_on_without(component, steering):
                    continue
                break
            except Exception as error:
                # It counts as a step, but its tokens are not known.
                self._index += 1
                steering.give(component, int(measure is None))
                self._note(error, component)
                raise
            self._index += 1
            steering.give(component, size)
            return element
        self._stop = True
        raise StopIteration

    def _goes_on_without(self, component: int, steering: Steering) -> bool:
        """Leave a component out that has ended, or start it again; return False to stop."""
        if self.settings.stop == "first":
            self._index += 1  # As without steering.
            return False
        if steering.goes_on_after_end_of(component):
            self._reopen(component, steering.epochs[component])
        return True

    def _reopen(self, component: int, epoch: int) -> None:
        """Replace the iterator of a component by one over another of its epochs."""
        before = self._parents[component]
        opened = self._open_later(component, epoch, self._context)
        parents = list(self._parents)
        parents[component] = opened
        self._parents = tuple(parents)
        before.close()

    def _note(self, error: BaseException, component: int) -> None:
        add_stage_note(error, f"It came from component {self._name(component)} of a mixture.")

    def _name(self, component: int) -> Any:
        names = self.settings.names
        return component if names is None else names[component]

    @property
    def step(self) -> int:
        """How many elements were taken from the mixture."""
        return self._index

    def get_state(self) -> State:
        states = [parent.get_state() for parent in self._parents]
        state = {
            "parents": self.settings.by_component(states),
            "index": self._index,
            "stop": self._stop,
        }
        if self._steering is not None:
            state["mixture"] = self._steering.get_state()
        return state

    def _states_of_parents(self, state: State) -> list[tuple[int, State]]:
        """Return the components that a state mentions, each with its own state."""
        states: Any = part_of(state, "parents", self)
        names = self.settings.names
        kind: Any = (list, tuple) if names is None else Mapping
        if not isinstance(states, kind):
            kinds = "a list" if names is None else "a dict"
            raise wrong_state(self, f"its parents are {shortened(states)}, not {kinds} of states")
        if names is None:
            return list(zip(range(len(self._parents)), states, strict=False))
        return [(number, states[name]) for number, name in enumerate(names) if name in states]

    def check_state(self, state: State) -> None:
        number_of(state, "index", self)
        flag_of(state, "stop", self)
        for component, parent_state in self._states_of_parents(state):
            check_state_of(self._parents[component], parent_state)
        if "mixture" in state:
            Steering(self.settings).check_state(check_mapping(state["mixture"], self), self)

    def go_to(self, state: State) -> None:
        index, steered = operator.index(state["index"]), state.get("mixture")
        before = self._steering
        if steered is not None or self.settings.pattern is None:
            self.be_steered().go_to(index, steered or {})
        else:
            self._steering = None
        for component in range(len(self._parents)):
            epochs = [
                0 if one is None else one.epoch_of(component) for one in (before, self._steering)
            ]
            if epochs[0] != epochs[1]:
                self._reopen(component, epochs[1])
        for component, parent_state in self._states_of_parents(state):
            go_to_state_of(self._parents[component], parent_state)
        self._index, self._stop = index, bool(state["stop"])
        self._plain = not (self._stop or self._closed) and self._steering is None

    def get_shard_states(self) -> list[State]:
        """Return for each shard of the components its state, and whether it has ended."""
        self._check_has_shards()
        shards = shard_states.joined(self._parents)
        for shard in shards:
            shard["state"] |= {"index": self._index, "stop": self._stop}
        return shards

    def _check_has_shards(self) -> None:
        if self._steering is not None:
            raise ValueError(
                "What each component has given cannot be redistributed over other processes, so"
                " `ElasticIterator` needs a mixture with constant weights for elements that ends"
                " with its first component; or use lanes."
            )

    def set_shard_states(self, states: Sequence[Any]) -> None:
        """Go to the position at which each shard has the given state.

        Shards of several mixtures may have stood at different positions of the pattern. The first
        one's is used then: the components do not depend on it.
        """
        self._check_has_shards()
        given = [part_of(shard, "state", self) for shard in states]
        for one in given:
            number_of(one, "index", self)
            flag_of(one, "stop", self)
        shard_states.distribute(self._parents, states, self)
        if given:
            self._index = operator.index(given[0]["index"])
            self._stop = all(bool(one["stop"]) for one in given)
            self._plain = not (self._stop or self._closed)

    def close(self) -> None:
        self._closed, self._plain = True, False
        super().close()

    def __str__(self) -> str:
        return f"MixedDatasetIterator([{len(self._parents)} parents])"
