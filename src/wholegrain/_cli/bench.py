"""`wholegrain bench`: how fast a pipeline is."""

import argparse
import dataclasses
import json
import time
from typing import Any

import numpy as np

from wholegrain._cli.console import Console, progress, size_text, time_text
from wholegrain._cli.errors import BadInput
from wholegrain._cli.pipelines import describe, load_pipeline

_SECONDS_BETWEEN_UPDATES = 0.1


@dataclasses.dataclass(frozen=True)
class _Measured:
    """The results. Rates exclude the first element."""

    opened_s: float  # from `iter` to the first element
    elements: int
    records: int  # elements times the batch size
    bytes: int
    seconds: float
    slowest_s: float
    ended: bool
    batch_size: int | None

    @property
    def rate(self) -> float:
        """Elements per second."""
        return (self.elements - 1) / self.seconds if self.seconds else 0.0


def run(arguments: argparse.Namespace) -> int:
    """Measure a pipeline."""
    pipeline = load_pipeline(arguments.pipeline)
    console = Console()
    it = iter(pipeline)
    try:
        measured = _measure(it, arguments.seconds)
        report = it.report() if hasattr(it, "report") else None
    finally:
        if hasattr(it, "close"):
            it.close()
    if arguments.json:
        print(json.dumps(_as_json(measured, report), indent=2))
    else:
        console.line(arguments.pipeline, "bold")
        console.line(f"  {describe(pipeline)}")
        _tell(console, measured)
        if report is not None:
            console.headline("Report")
            console.show(report)
    if arguments.report:
        if report is None:
            raise BadInput("This pipeline has no report to save.")
        report.save_html(arguments.report)
        if not arguments.json:
            console.line(f"  As a page: {arguments.report}")
    return 0


def _measure(it: Any, seconds: float) -> _Measured:
    started = time.perf_counter()
    try:
        element = next(it)
    except StopIteration:
        raise BadInput("The pipeline has no elements.") from None
    first = last = time.perf_counter()
    batch_size = _batch_size(element)
    size, elements, slowest, ended = size_of(element), 1, 0.0, False
    records = batch_size or 1
    shown = first
    with progress("Reading", 1000, "") as bar:
        while last - first < seconds:
            try:
                element = next(it)
            except StopIteration:
                ended = True
                break
            now = time.perf_counter()
            slowest = max(slowest, now - last)
            last = now
            elements += 1
            size += size_of(element)
            records += (_batch_size(element) or 1) if batch_size else 1
            if now - shown > _SECONDS_BETWEEN_UPDATES:
                shown = now
                rate = (elements - 1) / (now - first)
                bar.update(int(1000 * (now - first) / seconds), f"{rate:,.0f} elements/s")
    return _Measured(
        first - started, elements, records, size, last - first, slowest, ended, batch_size
    )


def _batch_size(element: Any) -> int | None:
    """Return the common length of the arrays of an element, if it looks like a batch."""
    leaves = list(_leaves(element))
    lengths = {len(leaf) for leaf in leaves if isinstance(leaf, np.ndarray) and leaf.ndim}
    arrays = [leaf for leaf in leaves if isinstance(leaf, np.ndarray)]
    if len(lengths) == 1 and len(arrays) == len(leaves) and all(a.ndim for a in arrays):
        return lengths.pop()
    return None


def _leaves(element: Any) -> Any:
    if isinstance(element, dict):
        for value in element.values():
            yield from _leaves(value)
    elif isinstance(element, (list, tuple)):
        for value in element:
            yield from _leaves(value)
    else:
        yield element


def size_of(element: Any) -> int:
    """Return the size of the arrays, bytes and strings of an element."""
    size = 0
    for leaf in _leaves(element):
        if hasattr(leaf, "nbytes"):
            size += int(leaf.nbytes)
        elif isinstance(leaf, (bytes, str)):
            size += len(leaf)
    return size


def _tell(console: Console, measured: _Measured) -> None:
    facts = [("first element", f"{time_text(measured.opened_s)} after iter()")]
    rest = measured.elements - 1
    if rest:
        facts.append(("throughput", f"{measured.rate:,.1f} elements/s"))
        if measured.batch_size and measured.batch_size > 1:
            rate = (measured.records - measured.batch_size) / measured.seconds
            facts.append(("", f"{rate:,.0f} records/s, in batches of {measured.batch_size}"))
        if measured.bytes:
            share = measured.bytes * rest / measured.elements / measured.seconds
            facts.append(("", f"{size_text(share)}/s"))
        mean = measured.seconds / rest
        slowest = time_text(measured.slowest_s)
        facts.append(("waiting", f"{time_text(mean)} for an element, {slowest} at most"))
    end = ", then it ended" if measured.ended else ""
    facts.append(("read", f"{measured.elements:,} elements in {time_text(measured.seconds)}{end}"))
    console.facts(facts)


def _as_json(measured: _Measured, report: Any) -> dict[str, Any]:
    return {
        "first_element_s": measured.opened_s,
        "elements": measured.elements,
        "elements_per_s": measured.rate,
        "bytes": measured.bytes,
        "batch_size": measured.batch_size,
        "seconds": measured.seconds,
        "slowest_s": measured.slowest_s,
        "ended": measured.ended,
        "report": report.as_dict() if report is not None else None,
    }
