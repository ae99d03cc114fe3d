"""`quarantine`: a pipeline that never reads some of its records."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any

from wholegrain._core.whole_number import whole_number
from wholegrain._graph import nodes
from wholegrain._graph.error_log import read_log
from wholegrain._graph.error_rules import source_name
from wholegrain._graph.iter_dataset import IterDataset
from wholegrain._graph.map_dataset import MapDataset

Records = str | os.PathLike[str] | Iterable[int] | Mapping[str, Iterable[int]]


def quarantine(ds: Any, records: Records) -> Any:
    """Return the same pipeline with some records of its sources missing; they are never read.

    Every other element keeps its place. If `on_error("replace")` follows, it replaces a missing
    record as it replaces one that fails, so the elements are those of the run that wrote the log.

    Args:
        ds: A MapDataset, or an IterDataset that reads MapDatasets.
        records: The path of a log of `on_error`, or the indices of the records in the source. If
            the pipeline has several sources, a mapping from the name of a source to indices, with
            the names that the log has under "source".

    Example:
        >>> ds = wholegrain.quarantine(ds, "bad_records.jsonl")
    """
    if not isinstance(ds, (MapDataset, IterDataset)):
        raise TypeError(f"`quarantine` takes a dataset, but got {ds!r}.")
    names = [source_name(source) for source in _sources_of(ds)]
    by_name = _by_name(records, names)
    unknown = sorted(set(by_name) - set(names))
    if unknown:
        raise ValueError(
            f"The pipeline has no source {unknown[0]!r} for `quarantine`. Its sources are:"
            f" {', '.join(names) or 'none'}."
        )
    for name in by_name:
        if names.count(name) > 1:
            raise ValueError(
                f"The pipeline has {names.count(name)} sources {name!r}, so it is not known which"
                " of them the records belong to. Call `quarantine` on each source instead."
            )
    return _with_gaps(ds, by_name)


def _sources_of(ds: Any) -> list[Any]:
    if isinstance(ds, MapDataset) and not ds.parents:
        return [ds]
    return [source for parent in ds.parents for source in _sources_of(parent)]


def _by_name(records: Records, names: list[str]) -> dict[str, list[int]]:
    if isinstance(records, (str, os.PathLike)):
        path = os.fspath(records)
        found: dict[str, list[int]] = {}
        for entry in read_log(path):
            if entry.get("index") is None:
                raise ValueError(
                    f"{path} has a failure without the index of its record, so it cannot be put in"
                    f" quarantine: {entry['error']}. Use `on_error` on the MapDataset, which knows"
                    " its records."
                )
            name = entry.get("source") or (names[0] if len(names) == 1 else "")
            found.setdefault(name, []).append(int(entry["index"]))
        return found
    if isinstance(records, Mapping):
        return {name: _numbers(some) for name, some in records.items()}
    if len(names) != 1:
        raise ValueError(
            f"The pipeline has {len(names)} sources, so the records need the name of theirs: a"
            f" mapping with some of the keys {names}."
        )
    return {names[0]: _numbers(records)}


def _numbers(records: Iterable[int]) -> list[int]:
    return [whole_number("record", record) for record in records]


def _with_gaps(ds: Any, by_name: Mapping[str, list[int]]) -> Any:
    if isinstance(ds, MapDataset) and not ds.parents:
        records = by_name.get(source_name(ds))
        if not records:
            return ds
        for record in records:
            if not 0 <= record < len(ds):
                raise ValueError(
                    f"`quarantine` got record {record}, but {ds} has {len(ds)} records."
                )
        return nodes.QuarantineMapDataset(ds, records)
    parents = [_with_gaps(parent, by_name) for parent in ds.parents]
    changed = ds.with_parents(parents)
    if isinstance(ds, nodes.BatchMapDataset) and parents[0].sparse:
        raise ValueError(
            f"After `quarantine` some members of {ds} would be missing. Put"
            ' `on_error("replace")` before `batch`, or batch after `to_iter_dataset()`.'
        )
    return changed
