"""`ds.explain()`: what runs where, in words; and how a dataset shows itself in a notebook."""

from __future__ import annotations

import html
import textwrap
from typing import Any

from wholegrain._graph import outline
from wholegrain._graph.map_dataset import MapDataset
from wholegrain._observe.blame import LOOP, READERS, THREAD, THREADS, WORKERS, Place


class Explanation(str):
    """Text that shows itself as it is printed."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(str(self))}</pre>"


def explain(dataset: Any) -> Explanation:
    """Return what runs where in a pipeline: threads, workers, chunks, seeds."""
    lines: list[str] = []
    who = LOOP
    if isinstance(dataset, MapDataset):
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
    upstream = Place("", dataset, []).ahead or who
    for parent in outline.inputs(dataset)[:8]:
        _explain(parent, WORKERS if who == WORKERS else upstream, lines)


def _about(dataset: Any, who: str) -> list[str]:
    name = outline.label(dataset)
    kind = type(dataset).__name__
    runner = {
        LOOP: "in the thread that calls `next`",
        READERS: "in the thread that calls `next` while it is quick, else in reader threads",
        THREAD: "in a background thread",
        THREADS: "in background threads",
        WORKERS: "in worker processes",
    }[who]
    transform = getattr(dataset, "_transform", None)
    found = []
    if transform is not None or kind.startswith("Operation"):
        found.append(f"{name} runs {runner}.")
    seed = getattr(dataset, "_seed", None)
    if isinstance(seed, int):
        found.append(f"{name} uses the seed {seed}, so it is the same in every run.")
    more = _about_kind(dataset, name, kind)
    return [*found, more] if more else found


def _about_kind(dataset: Any, name: str, kind: str) -> str:
    match kind:
        case "PrefetchIterDataset":
            return _about_reading(dataset, name)
        case "ProcessPrefetchIterDataset":
            count, buffer = dataset._num_workers, dataset._iter_buffer_size
            share = "in contiguous parts" if dataset._sequential else "in turn"
            where = (
                "1 process" if count == 1 else f"{count} processes, which share the data {share}"
            )
            return (
                f"{name}: everything upstream runs in {where}. Each"
                f" keeps about {2 * buffer + 1} finished elements ready. Arrays are passed through"
                " shared memory, without a copy."
            )
        case "MultithreadPrefetchIterDataset":
            count = dataset._num_workers
            return f"{name}: everything upstream runs in {count} threads, each on its share."
        case "AutoPrefetchIterDataset":
            return (
                f"{name}: everything upstream runs in worker processes. Their number is adapted"
                " while they run, which changes neither the elements nor their order."
            )
        case "ThreadPrefetchIterDataset":
            ahead = dataset._prefetch_buffer_size
            return f"{name}: a thread runs everything upstream, up to {ahead} elements ahead."
        case "FilterMapDataset" | "FlatMapMapDataset":
            return f"{name} leaves gaps: `ds[i]` may be None, and iteration skips those."
        case "CacheIterDataset":
            return f"{name} keeps all elements of the first epoch in memory."
        case "WindowShuffleIterDataset":
            return (
                f"{name} keeps a window of elements in memory. A restored iterator reads the window"
                " again."
            )
    return ""


def _about_reading(dataset: Any, name: str) -> str:
    options = dataset._read_options
    threads = options.num_threads if options.prefetch_buffer_size else 0
    parent = dataset.parents[0]
    gaps = "" if dataset.gives_all else " Missing elements are skipped."
    how = "The thread that calls `next` reads them, in chunks of about a millisecond."
    if threads:
        how = (
            "The thread that calls `next` reads them while that is quick. If reads wait or compute"
            f" for long, up to {threads} threads read up to {options.prefetch_buffer_size} elements"
            " ahead."
        )
    count = outline.length_text(parent)
    what = "an infinite number of" if outline.is_infinite(parent) else count
    return f"{name} reads {what} indices in order.{gaps} {how}"


def to_html(dataset: Any) -> str:
    """Return a pipeline as a small tree, for a notebook."""
    return f"<pre>{html.escape(outline.tree(dataset))}</pre>"
