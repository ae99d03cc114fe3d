"""Compares the elements of two runs by their digests, which the first one has written to a file."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import islice, zip_longest
from pathlib import Path
from typing import Any

import numpy as np

from wholegrain._cli.errors import BadInput
from wholegrain._core import digest, tree
from wholegrain._graph import epochs

_VERSION = 1
_SHORT = 16
"""How many digits of the digest of a row are kept."""


def compare(pipeline: Any, path: Path, count: int) -> str | None:
    """Compare the elements of a pipeline with those of the run that wrote `path`.

    Returns:
        What differs first; None if nothing does.
    """
    start, recorded = _read(path)
    problem = None
    with epochs.meant():
        it = iter(pipeline)
        first = _first_row(it)
        pairs = zip_longest(recorded[:count], _lines(islice(it, min(count, len(recorded)))))
        for step, (before, now) in enumerate(pairs):
            if now is None:
                problem = f"step {step}: the pipeline has ended, and the recorded run has not"
            elif first is not None and start is not None:
                # The rows of a host: those that were recorded, too.
                rows = _shared_rows(start, before["rows"], first, now["rows"])
                if rows[0] != rows[1]:
                    problem = f"step {step}{_where(it, step, *rows, max(0, start - first))}"
            elif now["digest"] != before["digest"]:
                problem = f"step {step}{_where(it, step, before['rows'], now['rows'], 0)}"
            if problem is not None:
                break
        it.close()
    return problem


def _first_row(it: Any) -> int | None:
    """Return which row of the global batch the first one of this host is; None without lanes."""
    owned: range | None = getattr(it, "owned", None)
    return None if owned is None else owned.start * it.rows_per_lane


def _shared_rows(
    start: int, before: list[str], first: int, now: list[str]
) -> tuple[list[str], list[str]]:
    begin, end = max(start, first), min(start + len(before), first + len(now))
    if begin >= end:
        raise BadInput(
            f"the file has the rows from {start} on, and this host has those from {first} on: they"
            " have none in common. Record the digests with all lanes, on one host."
        )
    return before[begin - start : end - start], now[begin - first : end - first]


def record(pipeline: Any, path: Path, count: int) -> tuple[int, str]:
    """Write the digests of a pipeline's elements; return how many, and the digest of all."""
    running = digest.EMPTY
    with epochs.meant():
        it = iter(pipeline)
        first = _first_row(it)
        lines = list(_lines(islice(it, count)))
        it.close()
    for line in lines:
        running = digest.after(running, line["digest"])
    content = {"version": _VERSION, "digest": running, "first_row": first, "steps": lines}
    path.write_text(json.dumps(content))
    return len(lines), running


def _lines(elements: Iterator[Any]) -> Iterator[dict[str, Any]]:
    for element in elements:
        yield {"digest": digest.element_digest(element), "rows": _row_digests(element)}


def _row_digests(element: Any) -> list[str]:
    """Return the digest of each row of a batch: an element whose arrays have the same rows."""
    leaves = tree.leaves(element)
    rows = {len(leaf) if isinstance(leaf, np.ndarray) and leaf.ndim else None for leaf in leaves}
    if len(rows) != 1 or None in rows:
        return []
    (count,) = rows
    return [
        digest.element_digest([leaf[row] for leaf in leaves])[:_SHORT] for row in range(count or 0)
    ]


def _where(it: Any, step: int, before: list[str], now: list[str], offset: int) -> str:
    """Describe the first row that differs, and the records it comes from.

    Args:
        it: The iterator.
        step: The step that differs.
        before: The digests of recorded rows.
        now: Those of this run.
        offset: The number of rows of this run before them.
    """
    row = None
    if before and now:
        pairs = enumerate(zip_longest(before, now))
        row = next((offset + number for number, (one, other) in pairs if one != other), None)
    text = "" if row is None else f", row {row}"
    if len(before) != len(now):
        text += f" ({len(now)} rows instead of {len(before)})"
    try:
        origins = it.provenance(step)
    except Exception as error:  # The digests differ, whether or not it is known where they do.
        from wholegrain._core.interruption import is_interruption

        if is_interruption(error):
            raise
        return text
    found = [one for one in origins if row is None or one.row in (None, row)]
    names = [
        f"record {one.index} of {one.source}" + (f" ({one.path})" if one.path else "")
        for one in found[:3]
    ]
    more = f" and {len(found) - 3} more" if len(found) > 3 else ""
    return f"{text}: {', '.join(names)}{more}" if names else text


def _read(path: Path) -> tuple[int | None, list[dict[str, Any]]]:
    try:
        content = json.loads(path.read_text())
        if content["version"] != _VERSION:
            raise BadInput(f"{str(path)!r} was written by another release: record it again")
        steps = [
            {"digest": str(one["digest"]), "rows": list(one["rows"])} for one in content["steps"]
        ]
        first = content.get("first_row")
        return None if first is None else int(first), steps
    except (ValueError, KeyError, TypeError, OSError) as error:
        raise BadInput(f"{str(path)!r} is not a file of digests: {error!r}") from error
