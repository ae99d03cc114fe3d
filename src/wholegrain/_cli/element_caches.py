"""Caches of elements, which `ds.cache(path)` fills: listed, verified, cleared and filled."""

import os
import time
from collections.abc import Callable, Iterator
from typing import Any

import wholegrain as wg
from wholegrain._cli.console import Console, progress, size_text, time_text
from wholegrain._cli.errors import BadInput
from wholegrain._cli.pipelines import load_pipeline
from wholegrain._disk_cache import folder
from wholegrain._disk_cache.store import Store, open_store
from wholegrain._graph.nodes.disk_cache import DiskCacheMapDataset
from wholegrain._observe import outline
from wholegrain._read import machine


def is_one(path: str) -> bool:
    """Return whether a folder is a cache of elements."""
    return os.path.exists(os.path.join(path, folder.MARKER))


def _stores(path: str) -> Iterator[tuple[str, dict[str, Any], Store]]:
    folder.check(path)
    for name in folder.names(path):
        about = folder.described(path, name)
        if isinstance(about.get("length"), int):
            used = folder.last_use(path, name)
            store = open_store(os.path.abspath(path), name, about["length"], about)
            os.utime(os.path.join(path, name, "pipeline.json"), (used, used))
            yield name, about, store


def _list(path: str, console: Console) -> int:
    for name, about, store in _stores(path):
        count = about["length"] - len(store.missing())
        used = time.strftime("%Y-%m-%d %H:%M", time.localtime(folder.last_use(path, name)))
        console.line(name, "bold")
        console.facts(
            [
                ("pipeline", " -> ".join(about["stages"])),
                ("elements", f"{count:,} of {about['length']:,}"),
                ("size", size_text(folder.nbytes_of(path, name))),
                ("last used", used),
            ]
        )
    console.line(f"{folder.usage(path):,} bytes in {len(folder.names(path)):,} pipelines")
    return 0


def _verify(path: str, console: Console) -> int:
    count = bad = 0
    for _, _, store in _stores(path):
        found, damaged = store.verify()
        count, bad = count + found, bad + damaged
    if bad:
        console.line(f"{bad:,} of {count:,} elements were damaged. They will be computed again.")
        return 1
    console.line(f"All {count:,} elements are as they were written.")
    return 0


def _clear(path: str, console: Console) -> int:
    folder.check(path)
    with folder.locked(path):
        nbytes = folder.usage(path)
        for name in folder.names(path):
            folder.remove(path, name, by_force=True)
    console.line(f"{nbytes:,} bytes deleted.")
    return 0


ACTIONS: dict[str, Callable[[str, Console], int]] = {
    "ls": _list,
    "verify": _verify,
    "clear": _clear,
}


def build(spec: str, workers: int | None, console: Console) -> int:
    """Compute the elements that the caches of a pipeline lack; return the exit code."""
    pipeline = load_pipeline(spec)
    caches = list(_caches(getattr(pipeline, "_dataset", pipeline)))
    if not caches:
        raise BadInput(f"{spec!r} has no cache: `ds.cache(path)` adds one.")
    if workers is None:
        workers = machine.available_cpus()
    complete = True
    # A cache upstream of another one is filled first.
    for cache in reversed(caches):
        started = time.perf_counter()
        before = len(cache.store.missing())
        _fill(cache, before, workers)
        after = len(cache.store.missing())
        complete = complete and not after
        console.line(outline.label(cache), "bold")
        console.facts(
            [
                ("elements", f"{len(cache) - after:,} of {len(cache):,}"),
                ("new", f"{before - after:,}, {time_text(time.perf_counter() - started)}"),
            ]
        )
        if after:
            console.line(
                f"The cache is full, or cannot be written: {after:,} elements are missing."
            )
    return 0 if complete else 1


def _caches(dataset: Any) -> Iterator[DiskCacheMapDataset[Any]]:
    """Yield the caches of a pipeline, downstream ones first."""
    if isinstance(dataset, DiskCacheMapDataset):
        yield dataset
    for parent in outline.inputs(dataset):
        yield from _caches(parent)


def _fill(cache: DiskCacheMapDataset[Any], count: int, workers: int) -> None:
    missing = cache.slice(cache.store.missing().tolist()) if count else cache[:0]
    options = wg.ReadOptions(num_threads=0)
    stream = missing.map(_forget).to_iter_dataset(options, allow_nones=True)
    if workers > 1 and count > 1:
        stream = stream.mp_prefetch(wg.MultiprocessingOptions(num_workers=min(workers, count)))
    with progress("Computing", count, "elements") as shown:
        for done, _ in enumerate(stream, 1):
            shown.update(done)


def _forget(_: Any) -> int:
    return 0
