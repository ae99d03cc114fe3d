"""Mixes datasets by weight, evenly and without randomness."""

import itertools
import operator
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from wholegrain._core import tree
from wholegrain._core.errors import add_stage_note
from wholegrain._core.failure import PartlyFailed
from wholegrain._core.mixture import Mixture, integer_weights
from wholegrain._core.names import kind_of
from wholegrain._core.types import Indices, State, T
from wholegrain._graph import shard_states
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
from wholegrain._observe import outline
from wholegrain._state.spec import CheckpointSpec
from wholegrain._state.validate import flag_of, number_of, part_of, shortened, wrong_state
from wholegrain.transforms import DatasetSelectionMap


class MixedMapDataset(ManyParentsMapNode[T]):
    """Several datasets mixed by weight, by index."""

    checkpoint = CheckpointSpec(fixed=("weights",))

    def __init__(self, datasets: Sequence[MapDataset[T]], weights: Sequence[float] | None) -> None:
        super().__init__(several("mix", datasets))
        self._weights = integer_weights(len(self._parents), weights)
        self._mixture = Mixture(self._weights)
        self._follow_parents()

    def _follow_parents(self) -> None:
        lengths = [len(parent) for parent in self._parents]
        empty = [number for number, length in enumerate(lengths) if not length]
        if empty:
            raise ValueError(
                "`mix` cannot take elements from empty datasets, but the components at"
                f" {empty} have none. Leave them out."
            )
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
        if None in found:
            return None
        # The mixture repeats when the component that takes longest has repeated.
        total = sum(self._weights)
        pairs = zip(found, self._weights, strict=True)
        return max((length or 0) * total // weight + 1 for length, weight in pairs)

    def locate(self, index: int) -> tuple[int, int]:
        return self._mixture.locate(index)

    def locate_many(self, indices: Indices) -> tuple[Indices, Indices]:
        return self._mixture.locate_many(indices)

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

    def __init__(
        self,
        datasets: Sequence[Any] | Mapping[str, Any],
        weights: Sequence[float] | Mapping[str, float] | None,
    ) -> None:
        self._keys: tuple[str, ...] | None = None
        if isinstance(datasets, Mapping):
            self._keys = _component_order(datasets)
            weights = _weights_by_key(self._keys, weights)
            datasets = [datasets[key] for key in self._keys]
        super().__init__(several("mix", datasets))
        self._weights = integer_weights(len(self._parents), weights)  # type: ignore[arg-type]

    @property
    def checkpoint(self) -> CheckpointSpec:
        if self._keys is None:
            return CheckpointSpec(fixed=("weights",))
        # Components with names may change between runs, and so may their weights.
        return CheckpointSpec(free=("weights",), names="keys")

    def open(self) -> DatasetIterator[T]:
        return MixedDatasetIterator(
            [parent.__iter__() for parent in self._parents], Mixture(self._weights), self._keys
        )

    @property
    def _element_spec(self) -> Any:
        return self._parents[0]._element_spec

    def _label(self) -> str:
        return f"mix ({outline.counted(len(self.parents), 'dataset')})"

    def __str__(self) -> str:
        return f"MixedIterDataset([{len(self._parents)} parents], proportions={self._weights})"


def _component_order(datasets: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the keys in the order in which Grain visits them, which depends on jax."""
    return tuple(sorted(datasets)) if tree.follows_jax() else tuple(datasets)


def _weights_by_key(keys: tuple[str, ...], weights: Any) -> Sequence[float] | None:
    if weights is None:
        return None
    if not isinstance(weights, Mapping):
        raise ValueError(
            "`mix` got a mapping of datasets, so `weights` has to be a mapping with the same keys,"
            f" but it is {kind_of(weights)}."
        )
    if set(weights) != set(keys):
        raise ValueError(
            f"`mix` got datasets for {sorted(keys)}, but weights for {sorted(weights)}."
        )
    return [weights[key] for key in keys]


class MixedDatasetIterator(StageIterator[T]):
    """A position in the pattern of a mixture, and one in each component."""

    closes_when_dropped = False

    def __init__(
        self,
        parents: list[DatasetIterator[T]],
        mixture: Mixture,
        keys: tuple[str, ...] | None,
    ) -> None:
        super().__init__(parents)
        self._mixture = mixture
        self._pattern = mixture.pattern
        self._keys = keys
        self._index = 0
        self._stop = False
        self._closed = False
        self._halted = False  # Stopped or closed: a single check per element.

    def __next__(self) -> T:
        if self._halted:
            if self._closed:
                raise closed_error()
            raise StopIteration
        index = self._index
        pattern = self._pattern
        component = (
            self._mixture.component(index) if pattern is None else pattern[index % len(pattern)]
        )
        self._index = index + 1
        try:
            element: T = next(self._parents[component])
            return element
        except StopIteration:
            self._stop = self._halted = True
            raise
        except Exception as error:
            add_stage_note(error, f"It came from component {self._name(component)} of a mixture.")
            raise

    def _name(self, component: int) -> Any:
        return component if self._keys is None else self._keys[component]

    def get_state(self) -> State:
        states = [parent.get_state() for parent in self._parents]
        return {
            "parents": (
                states if self._keys is None else dict(zip(self._keys, states, strict=True))
            ),
            "index": self._index,
            "stop": self._stop,
        }

    def _states_of_parents(self, state: State) -> list[tuple[DatasetIterator[T], State]]:
        """Return the components that a state mentions, each with its own state."""
        states: Any = part_of(state, "parents", self)
        kind: Any = (list, tuple) if self._keys is None else Mapping
        if not isinstance(states, kind):
            kinds = "a list" if self._keys is None else "a dict"
            raise wrong_state(self, f"its parents are {shortened(states)}, not {kinds} of states")
        if self._keys is None:
            return list(zip(self._parents, states, strict=False))
        pairs = zip(self._keys, self._parents, strict=True)
        return [(parent, states[key]) for key, parent in pairs if key in states]

    def check_state(self, state: State) -> None:
        number_of(state, "index", self)
        flag_of(state, "stop", self)
        for parent, parent_state in self._states_of_parents(state):
            check_state_of(parent, parent_state)

    def go_to(self, state: State) -> None:
        for parent, parent_state in self._states_of_parents(state):
            go_to_state_of(parent, parent_state)
        stop = bool(state["stop"])
        self._index, self._stop = operator.index(state["index"]), stop
        self._halted = stop or self._closed

    def get_shard_states(self) -> list[State]:
        """Return for each shard of the components its state, and whether it has ended."""
        shards = shard_states.joined(self._parents)
        for shard in shards:
            shard["state"] |= {"index": self._index, "stop": self._stop}
        return shards

    def set_shard_states(self, states: Sequence[Any]) -> None:
        """Go to the position at which each shard has the given state.

        Shards of several mixtures may have stood at different positions of the pattern. The first
        one's is used then: the components do not depend on it.
        """
        given = [part_of(shard, "state", self) for shard in states]
        for one in given:
            number_of(one, "index", self)
            flag_of(one, "stop", self)
        shard_states.distribute(self._parents, states, self)
        if given:
            self._index = operator.index(given[0]["index"])
            self._stop = all(bool(one["stop"]) for one in given)
            self._halted = self._stop or self._closed

    def close(self) -> None:
        self._closed = self._halted = True
        super().close()

    def __str__(self) -> str:
        return f"MixedDatasetIterator([{len(self._parents)} parents])"
