"""What every dataset declares for reports: its label, what runs it, and how it is displayed."""

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
"""What runs a stage."""


class Shown:
    """What a dataset declares for reports, terminals and notebooks."""

    _shown_name: str | None = None

    runs_ahead: ClassVar[str | None] = None
    """What runs the stages upstream, such as `WORKERS`; None if the same thread runs them."""

    splits_own_time: ClassVar[bool] = True
    """Whether a stage with `runs_ahead` records its waiting separately from its own work."""

    keeps_size: ClassVar[bool] = False
    """Whether its elements have the size of its parent's elements."""

    makes_batches: ClassVar[bool] = False
    """Whether an element combines several of the parent's, so that workers pass on fewer."""

    opens_later: ClassVar[bool] = False
    """Whether it opens the datasets that it reads from while it runs, here or in workers."""

    def _label(self) -> str:
        """Return the label of the stage in the terms of the public API: `map(decode)`."""
        kind = type(self).__name__
        if not type(self).__module__.startswith("wholegrain."):
            return kind  # Classes of the user's are shown under their own names.
        name = kind.removesuffix("MapDataset").removesuffix("IterDataset").removesuffix("Dataset")
        transform = getattr(self, "_transform", None)
        end = "" if transform is None else f"({outline.function_name(transform)})"
        return outline.snake_case(name) + end

    def _about(self, name: str) -> str:
        """Return a sentence for `explain()` about the stage, which is called `name` there."""
        return ""

    def _size_from(self, size: float) -> float:
        """Return the size of an element, given the size of the parent's; 0 if unknown."""
        return size if self.keeps_size else 0.0

    def named(self, name: str) -> Self:
        """Return the same dataset with a name, which reports, `repr` and `explain()` show.

        Elements, seeds, states and checkpoints do not depend on names.

        Example:
            >>> train = MapDataset.source(files).named("train files").map(decode)
        """
        given: object = name
        if not (isinstance(given, str) and given.strip()):
            raise ValueError(f"The name of a stage has to be a non-empty string, but got {name!r}.")
        clone = copy.copy(self)
        clone._shown_name = name
        return clone

    def explain(self) -> str:
        """Describe what runs where in this pipeline: threads, workers, chunks, seeds.

        Example:
            >>> print(ds.explain())
        """
        from wholegrain._observe import explain  # Rarely used, and slow to import.

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
    """Return what runs the stages upstream of a dataset; None if the same thread runs them."""
    found = getattr(dataset, "runs_ahead", None)
    return found if isinstance(found, str) else None
