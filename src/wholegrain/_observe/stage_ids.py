"""By what a report knows the stages of a pipeline, here and in worker processes."""

from __future__ import annotations

from typing import Any

from wholegrain._observe import outline


class StageIds:
    """Stages by their place in the graph: "0" is the output, "0.0" its first parent.

    A dataset that is opened on the way, and is no part of the graph, is known by its name.
    """

    def __init__(self) -> None:
        self._ids: dict[int, str] = {}
        self._kept: list[Any] = []  # So that no other object gets the `id` of one of them.

    def add(self, dataset: Any) -> None:
        """Take in a graph by its output."""
        self._kept.append(dataset)
        self._add(dataset, "0")

    def _add(self, dataset: Any, name: str) -> None:
        self._ids[id(dataset)] = name
        for number, parent in enumerate(getattr(dataset, "parents", ())):
            self._add(parent, f"{name}.{number}")

    def add_share(self, share: Any, whole: Any) -> None:
        """Know the stages of a worker's share as those of the whole that it is a share of."""
        self._kept.append(share)
        name = self._ids.get(id(whole))
        if name is None or share is whole:
            return
        self._ids[id(share)] = name
        parents = getattr(share, "parents", ())
        if type(share) is not type(whole) or len(parents) != len(whole.parents):
            for parent in parents:  # A slice was put between.
                self.add_share(parent, whole)
            return
        for part, parent in zip(parents, whole.parents, strict=True):
            self.add_share(part, parent)

    def of(self, dataset: Any) -> str:
        """Return by what a stage is known."""
        return self._ids.get(id(dataset)) or f"inside {outline.plain_label(dataset)}"
