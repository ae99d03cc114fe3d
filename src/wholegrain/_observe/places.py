"""The stages of a pipeline as views show them: a tree, output first."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

from wholegrain._observe import outline
from wholegrain._observe.shown import runs_ahead_of
from wholegrain._observe.stage_ids import IMPLICIT_READER, About, inputs_of


@dataclasses.dataclass
class Place:
    """A stage of the graph.

    Args:
        key: Its id.
        dataset: The stage; None for a stage that another one opened while it ran.
        parents: The ids of the stages it reads from.
        about: What is known of a stage without a dataset.
    """

    key: str
    dataset: Any
    parents: list[str]
    about: About | None = None

    @property
    def name(self) -> str:
        """Its label, in the terms of the public API."""
        return outline.label(self.dataset) if self.about is None else f"{self.about.label} (inside)"

    @property
    def ahead(self) -> str | None:
        """What runs the stages upstream; None if the same thread runs them."""
        return runs_ahead_of(self.dataset) if self.about is None else self.about.ahead


def places_of(dataset: Any, inside: Mapping[str, About], key: str = "0") -> Iterator[Place]:
    """Yield the stages of a graph, and those that its stages have opened while they ran.

    Args:
        dataset: The output of the graph.
        inside: The stages that were opened, by their ids.
        key: The id of the output.
    """
    inputs = list(inputs_of(dataset, key))
    opened = [child for child in _children(key, inside) if child not in {one[0] for one in inputs}]
    yield Place(key, dataset, [child for child, _, _ in inputs] + opened)
    for child, parent, is_read in inputs:
        if is_read:
            yield Place(child, None, [f"{child}.0"], IMPLICIT_READER)
        yield from places_of(parent, inside, f"{child}.0" if is_read else child)
    for child in opened:
        yield from _places_inside(child, inside)


def _places_inside(key: str, inside: Mapping[str, About]) -> Iterator[Place]:
    children = _children(key, inside)
    yield Place(key, None, children, inside[key])
    for child in children:
        yield from _places_inside(child, inside)


def _children(key: str, inside: Mapping[str, About]) -> list[str]:
    return [one for one in inside if one.rpartition(".")[0] == key]
