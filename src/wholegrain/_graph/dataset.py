"""What MapDataset and IterDataset have in common: their place in the graph."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Concatenate, Generic, ParamSpec, Self, TypeVar

from wholegrain._graph import hints, seeds
from wholegrain._graph.stats import STATS
from wholegrain._observe.shown import Shown

R = TypeVar("R")
P = ParamSpec("P")
ParentT = TypeVar("ParentT")


class Dataset(Shown, Generic[ParentT]):
    """A node of the graph, and the nodes that it reads from."""

    _stats = STATS  # Classes that were written for Grain call it.

    _parents: tuple[ParentT, ...] = ()

    _repeats_itself: ClassVar[bool] = True
    """Whether it transforms an element in the same way in each epoch."""

    @property
    def parents(self) -> tuple[ParentT, ...]:
        """The datasets that this one reads from."""
        return self._parents

    @property
    def _parent(self) -> ParentT:
        (parent,) = self._parents
        return parent

    def with_parents(self, parents: Sequence[ParentT]) -> Self:
        """Return the same transformation with other parents."""
        if all(new is old for new, old in zip(parents, self._parents, strict=True)):
            return self
        clone = copy.copy(self)
        replace_parents(clone, self._parents, tuple(parents))
        clone._follow_parents()
        return clone

    def _follow_parents(self) -> None:
        """Compute what depends on the parents. Called for each new set of parents."""

    @property
    def _default_seed(self) -> int | None:
        return seeds.default_seed(self)

    @property
    def _element_spec(self) -> Any:
        raise NotImplementedError(f"The element spec of {self} is not known without reading.")

    def pipe(
        self, func: Callable[Concatenate[Self, P], R], /, *args: P.args, **kwargs: P.kwargs
    ) -> R:
        """Return `func(self, *args, **kwargs)`."""
        return func(self, *args, **kwargs)

    def __str__(self) -> str:
        return type(self).__name__

    def __dir__(self) -> list[str]:
        return hints.names_of(self)


def upstream(dataset: Any) -> list[Any]:
    """Return a dataset and everything upstream of it, each stage before its parents."""
    found = [dataset]
    for stage in found:  # The list grows while it is walked.
        found.extend(getattr(stage, "parents", ()))
    return found


def replace_parents(dataset: Any, old: tuple[Any, ...], new: tuple[Any, ...]) -> None:
    """Replace the parents of a copied dataset, in every attribute that refers to them.

    A user's class may keep its parent under a name of its own. If that attribute still referred to
    the old parent, every worker would read all of the data.
    """
    dataset._parents = new
    others = {id(before): after for before, after in zip(old, new, strict=True)}
    for name, value in vars(dataset).items():
        if id(value) in others:
            setattr(dataset, name, others[id(value)])
        elif type(value) in (list, tuple) and any(id(item) in others for item in value):
            setattr(dataset, name, type(value)(others.get(id(item), item) for item in value))
        elif type(value) is dict and any(id(item) in others for item in value.values()):
            setattr(dataset, name, {k: others.get(id(item), item) for k, item in value.items()})
