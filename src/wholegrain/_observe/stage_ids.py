"""The ids of the stages of a pipeline, the same in the main process and in workers."""

from __future__ import annotations

from typing import Any

from wholegrain._observe import outline


class StageIds:
    """The ids of stages.

    The id of a stage is its path in the graph: "0" is the output, "0.0" its first parent. A
    dataset that a stage opens while it runs is not part of the graph; its id is its name.
    """

    def __init__(self) -> None:
        self._ids: dict[int, str] = {}
        self._kept: list[Any] = []  # Keeps the datasets alive, so that their `id()` stays unique.

    def add(self, dataset: Any) -> None:
        """Add all stages of a graph, given its output."""
        self._kept.append(dataset)
        self._add(dataset, "0")

    def _add(self, dataset: Any, name: str) -> None:
        self._ids[id(dataset)] = name
        for number, parent in enumerate(getattr(dataset, "parents", ())):
            self._add(parent, f"{name}.{number}")

    def add_share(self, share: Any, whole: Any) -> None:
        """Give the stages of a worker's shard the ids of the stages of the whole pipeline."""
        self._kept.append(share)
        name = self._ids.get(id(whole))
        if name is None or share is whole:
            return
        self._ids[id(share)] = name
        parents = getattr(share, "parents", ())
        if type(share) is not type(whole) or len(parents) != len(whole.parents):
            for parent in parents:  # Sharding inserted a slice here.
                self.add_share(parent, whole)
            return
        for part, parent in zip(parents, whole.parents, strict=True):
            self.add_share(part, parent)

    def of(self, dataset: Any) -> str:
        """Return the id of a stage."""
        return self._ids.get(id(dataset)) or f"inside {outline.plain_label(dataset)}"
