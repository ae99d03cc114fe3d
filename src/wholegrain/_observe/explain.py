"""`ds.explain()`, which says what runs where, and the display of a dataset in a notebook."""

from __future__ import annotations

import html
import textwrap
from typing import Any

from wholegrain._observe import outline
from wholegrain._observe.shown import (
    LOOP,
    READERS,
    THREAD,
    THREADS,
    WORKERS,
    Shown,
    runs_ahead_of,
)


class Explanation(str):
    """A string whose `repr` is the text itself, for interactive use."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(str(self))}</pre>"


def explain(dataset: Any) -> Explanation:
    """Describe what runs where in a pipeline: threads, workers, chunks, seeds."""
    lines: list[str] = []
    who = LOOP
    if hasattr(dataset, "getitems"):
        lines.append(
            "This is a MapDataset: `ds[i]` computes one element when it is called. `iter(ds)` reads"
            " ahead, as `to_iter_dataset()` does."
        )
        who = READERS
    _explain(dataset, who, lines)
    text = [outline.tree(dataset), ""]
    for line in lines:
        text += textwrap.wrap(line, 96, initial_indent="- ", subsequent_indent="  ")
    return Explanation("\n".join(text))


def _explain(dataset: Any, who: str, lines: list[str]) -> None:
    lines += [line for line in _about(dataset, who) if line not in lines]
    upstream = runs_ahead_of(dataset) or who
    for parent in outline.inputs(dataset)[:8]:
        _explain(parent, WORKERS if who == WORKERS else upstream, lines)


def _about(dataset: Any, who: str) -> list[str]:
    name = outline.label(dataset)
    runner = {
        LOOP: "in the thread that calls `next`",
        READERS: "in the thread that calls `next` while it is quick, else in reader threads",
        THREAD: "in a background thread",
        THREADS: "in background threads",
        WORKERS: "in worker processes",
    }[who]
    transform = getattr(dataset, "_transform", None)
    found = []
    if transform is not None:
        found.append(f"{name} runs {runner}.")
    seed = getattr(dataset, "_seed", None)
    if isinstance(seed, int):
        found.append(f"{name} uses the seed {seed}, so it is the same in every run.")
    more = dataset._about(name) if isinstance(dataset, Shown) else ""
    return [*found, more] if more else found


def to_html(dataset: Any) -> str:
    """Return a pipeline as a small tree in HTML, for a notebook."""
    return f"<pre>{html.escape(outline.tree(dataset))}</pre>"
