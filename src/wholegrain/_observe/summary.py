"""`get_execution_summary`: the times of all stages of a run, and a table of them."""

from __future__ import annotations

import dataclasses
import textwrap
from collections.abc import Iterable
from typing import Any

from wholegrain._observe.places import Place, places_of
from wholegrain._observe.report import observed_iterator, snapshot_of
from wholegrain._observe.times import NOTHING_YET, Total
from wholegrain._observe.waiting import Spent, shares_of


@dataclasses.dataclass
class Node:
    """One stage of a pipeline, and its measurements. Times are in nanoseconds.

    Attributes:
        id: 0 for the output; then the stages upstream of it, depth first.
        name: The name of the stage.
        inputs: The ids of the stages it reads from.
        wait_time_ratio: Its share of the time that the consumer waited. The shares add up to 1.
        total_processing_time_ns: Its own time, without that of its inputs.
        min_processing_time_ns: The minimum for one element; 2**63 - 1 if there was none.
        max_processing_time_ns: The maximum for one element.
        num_produced_elements: How many elements it has produced.
        output_spec: The shapes and dtypes of its elements.
        is_output: Whether it is the last stage.
        is_prefetch: Whether the stages upstream of it run ahead, in threads or processes.
        bytes_consumed: The bytes that a prefetching stage has read from upstream.
        bytes_produced: The bytes that it has handed out.
    """

    id: int
    name: str
    inputs: list[int]
    wait_time_ratio: float = 0.0
    total_processing_time_ns: int = 0
    min_processing_time_ns: int = NOTHING_YET
    max_processing_time_ns: int = 0
    num_produced_elements: int = 0
    output_spec: str = ""
    is_output: bool = False
    is_prefetch: bool = False
    bytes_consumed: int = 0
    bytes_produced: int = 0


@dataclasses.dataclass
class ExecutionSummary:
    """The measurements of all stages of a pipeline, in this process and in workers.

    Attributes:
        nodes: The stages by their ids.
    """

    nodes: dict[int, Node]

    def as_dict(self) -> dict[str, Any]:
        """Return the summary as dicts, lists, numbers and strings."""
        return dataclasses.asdict(self)

    def __str__(self) -> str:
        return pretty_format_summary(self)


def get_execution_summary(iterator: Any) -> ExecutionSummary:
    """Return the times of all stages of a pipeline so far.

    The pipeline has to be tracked: with
    `DatasetOptions(execution_tracking_mode=ExecutionTrackingMode.STAGE_TIMING)`, or by
    `config.update("py_debug_mode", True)`, before the iterator is made.

    Args:
        iterator: The iterator of a dataset or a DataLoader.

    Raises:
        ValueError: If the pipeline is not tracked.
    """
    output = _tracked_iterator(iterator)
    if output is None or not output.observed.aims.timing:
        raise ValueError(
            "There is no execution summary: the pipeline is not tracked. Before making the"
            " iterator, add `WithOptionsIterDataset(ds, DatasetOptions(execution_tracking_mode="
            "ExecutionTrackingMode.STAGE_TIMING))`, or call `config.update('py_debug_mode', True)`."
        )
    return execution_summary(output)


def _tracked_iterator(iterator: Any) -> Any:
    """Return an iterator of the tracked run that an iterator belongs to; None if there is none."""
    output = observed_iterator(iterator)
    if output is not None:
        return output if output.observed.aims is not None else None
    inner = [getattr(iterator, name, None) for name in ("_iterator", "base_iterator")]
    found = (_tracked_iterator(one) for one in inner if one is not None)
    return next((one for one in found if one is not None), None)


def execution_summary(output: Any) -> ExecutionSummary:
    """Return the execution summary of a tracked run so far, given its output."""
    seen = snapshot_of(output)
    places = _each_once(places_of(output.observed_as, seen["inside"]))
    ids = {place.key: number for number, place in enumerate(places)}
    nodes = {}
    for place in places:
        total = seen["totals"].get(place.key, Total())
        inputs = [key for key in place.parents if key in ids]
        node = nodes[ids[place.key]] = Node(
            id=ids[place.key],
            name=total.name or _name_of(place),
            inputs=[ids[key] for key in inputs],
            total_processing_time_ns=total.own_ns,
            min_processing_time_ns=total.min_ns,
            max_processing_time_ns=total.max_ns,
            num_produced_elements=total.elements,
            output_spec=total.spec,
            is_output=place.key == "0",
            is_prefetch=place.ahead is not None,
        )
        if node.is_prefetch:
            node.bytes_produced = total.nbytes
            read = [seen["totals"].get(key, Total()).nbytes for key in inputs]
            node.bytes_consumed = sum(read)
    _share_waiting(nodes)
    return ExecutionSummary(nodes)


def _each_once(places: Iterable[Place]) -> list[Place]:
    """Return the stages without those that several stages read from, except the first time."""
    found: dict[int, Place] = {}
    for place in places:
        found.setdefault(id(place) if place.dataset is None else id(place.dataset), place)
    return list(found.values())


def _name_of(place: Place) -> str:
    return place.name if place.dataset is None else str(place.dataset)


def _share_waiting(nodes: dict[int, Node]) -> None:
    """Attribute the consumer's waiting to the stages."""
    spent = {}
    for node in nodes.values():
        # A prefetching stage spends all of its time waiting for the stages upstream.
        waits = node.is_prefetch and bool(node.inputs)
        times = (0, node.total_processing_time_ns)
        own, handed_on = times if waits else times[::-1]
        spent[node.id] = Spent(own, handed_on, node.inputs, waits)
    for number, share in shares_of(0, spent, evenly=True).items():
        nodes[number].wait_time_ratio = round(share, 4)


# The table.

_WIDTH, _HEIGHT = 30, 5
_COLUMNS = (
    "id",
    "name",
    "inputs",
    "percent wait time",
    "total processing time",
    "min processing time",
    "max processing time",
    "avg processing time",
    "num produced elements",
    "memory usage",
)


def pretty_format_summary(summary: ExecutionSummary) -> str:
    """Return a table of the stages, sorted by how long the consumer waited for them."""
    ordered = sorted(summary.nodes.values(), key=lambda node: -node.wait_time_ratio)
    rows = [[_wrapped(cell) for cell in _COLUMNS]]
    rows += [[_wrapped(cell) for cell in _cells(node)] for node in ordered]
    widths = [max(len(line) for row in rows for line in row[at]) for at in range(len(_COLUMNS))]
    rule = "|" + "|".join("-" * (width + 2) for width in widths) + "|"
    lines = [rule]
    for row in rows:
        for height in range(max(len(cell) for cell in row)):
            texts = [cell[height] if height < len(cell) else "" for cell in row]
            padded = (text.ljust(width) for text, width in zip(texts, widths, strict=True))
            lines.append("| " + " | ".join(padded) + " |")
        lines.append(rule)
    if ordered and not ordered[0].inputs:
        lines.append(
            f"Of the time in which the consumer waits, {ordered[0].name} takes most: reading is the"
            " bottleneck. More threads (`ReadOptions`), more workers (`mp_prefetch`), larger reads"
            " or faster storage may help."
        )
    return "\n".join(lines)


def _cells(node: Node) -> list[str]:
    made = node.num_produced_elements
    waits_elsewhere = node.is_prefetch and bool(node.inputs)
    times = (
        node.total_processing_time_ns,
        node.min_processing_time_ns,
        node.max_processing_time_ns,
        node.total_processing_time_ns // max(1, made),
    )
    memory = max(0, node.bytes_consumed - node.bytes_produced)
    return [
        str(node.id),
        node.name,
        str(node.inputs),
        "N/A" if waits_elsewhere else f"{100 * node.wait_time_ratio:.2f}%",
        *(_time(one) if made else "N/A" for one in times),
        str(made),
        _memory(memory) if node.is_prefetch else "N/A",
    ]


def _wrapped(text: str) -> list[str]:
    lines = textwrap.wrap(text, _WIDTH) or [""]
    if len(lines) > _HEIGHT:
        lines = [*lines[: _HEIGHT - 1], lines[_HEIGHT - 1][: _WIDTH - 3] + "..."]
    return lines


def _time(nanoseconds: int) -> str:
    if nanoseconds < 1000:
        return f"{nanoseconds}ns"
    value = float(nanoseconds)
    for unit in ("us", "ms"):
        value /= 1000
        if value < 1000:
            return f"{value:.2f}{unit}"
    return f"{value / 1000:.2f}s"


def _memory(nbytes: int) -> str:
    if nbytes < 1024:
        return f"{nbytes} bytes"
    value = float(nbytes)
    for unit in ("KiB", "MiB", "GiB"):
        value /= 1024
        if value < 1024:
            return f"{value:.2f} {unit}"
    return f"{value / 1024:.2f} TiB"
