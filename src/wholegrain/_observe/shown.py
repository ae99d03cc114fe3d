"""What every dataset tells of itself: its label, what runs it, and how it shows itself."""

from __future__ import annotations

import copy
from typing import Any, ClassVar, Self

from wholegrain._observe import outline

LOOP, READERS, THREAD, THREADS, WORKERS = (
    "training loop",
    "reader threads",
    "thread",
    "threads",
    "workers",
)
"""Who runs a stage."""


class Shown:
    """What a dataset says of itself, in reports, in a terminal and in a notebook."""

    _shown_name: str | None = None

    runs_ahead: ClassVar[str | None] = None
    """Who runs what is upstream of it, such as `WORKERS`; None for whoever runs the stage."""

    splits_own_time: ClassVar[bool] = True
    """Whether a stage that runs ahead notes which part of its own time it waits."""

    keeps_size: ClassVar[bool] = False
    """Whether its elements take as many bytes each as those of its parent."""

    makes_batches: ClassVar[bool] = False
    """Whether its elements are made of several of its parent's, for workers to pass on at once."""

    opens_later: ClassVar[bool] = False
    """Whether it opens what it reads from while it runs, here or in workers."""

    def _label(self) -> str:
        """Say what the stage does, as its user would call it: `map(decode)`, `batch(32)`."""
        kind = type(self).__name__
        if not type(self).__module__.startswith("wholegrain."):
            return kind  # A class of the user's is known by its own name.
        name = kind.removesuffix("MapDataset").removesuffix("IterDataset").removesuffix("Dataset")
        transform = getattr(self, "_transform", None)
        end = "" if transform is None else f"({outline.function_name(transform)})"
        return outline.snake_case(name) + end

    def _about(self, name: str) -> str:
        """Say for `explain()` what is particular to the stage, which is called `name` there."""
        return ""

    def _size_from(self, size: float) -> float:
        """Return the bytes of an element, by those of the parent's; 0 if that does not follow."""
        return size if self.keeps_size else 0.0

    def named(self, name: str) -> Self:
        """Return the same dataset under a name, which reports, `repr` and `explain()` show.

        Elements, seeds, states and checkpoints do not depend on names.

        Example:
            >>> train = MapDataset.source(files).named("train files").map(decode)
        """
        given: object = name
        if not (isinstance(given, str) and given.strip()):
            raise ValueError(f"The name of a stage is a text that is not empty, but got {name!r}.")
        clone = copy.copy(self)
        clone._shown_name = name
        return clone

    def explain(self) -> str:
        """Say what runs where in this pipeline: threads, workers, chunks, seeds, in words.

        Example:
            >>> print(ds.explain())
        """
        from wholegrain._observe import explain  # Few need it, and it takes a while to import.

        return explain.explain(self)

    def __repr__(self) -> str:
        return outline.tree(self)

    def _plain_repr(self) -> str:
        """Return `repr(self)` without the names that the user gave to stages."""
        is_ours = type(self).__repr__ is Shown.__repr__
        return outline.tree(self, outline.plain_label) if is_ours else repr(self)

    def _repr_html_(self) -> str:
        from wholegrain._observe import explain

        return explain.to_html(self)


def runs_ahead_of(dataset: Any) -> str | None:
    """Return who runs what is upstream of a dataset, if that is not whoever runs itself."""
    found = getattr(dataset, "runs_ahead", None)
    return found if isinstance(found, str) else None
