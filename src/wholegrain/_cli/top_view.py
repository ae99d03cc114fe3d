"""How `wholegrain top` shows a program: the same lines and tables as text, or drawn by `rich`."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

from wholegrain._cli.console import printable
from wholegrain._observe.live_view import Values
from wholegrain._observe.report_text import seconds, size

_WIDTH = 10
_SHORT = 60
_MOST_ERRORS = 5


@dataclasses.dataclass
class Line:
    """A line of text, in a style of rich."""

    text: str
    style: str = ""


@dataclasses.dataclass
class Table:
    """A table. The columns in `left` contain text, the others numbers; `hot` is the marked row."""

    headers: Sequence[str]
    rows: list[Sequence[str]]
    left: tuple[int, ...] = (0,)
    hot: int | None = None


def plain(view: Values) -> str:
    """Return a view as lines of text."""
    lines: list[str] = []
    for part in _parts(view):
        if isinstance(part, Line):
            lines.append(printable(part.text))
            continue
        rows = [part.headers, *([printable(cell) for cell in row] for row in part.rows)]
        widths = [max(len(row[column]) for row in rows) for column in range(len(part.headers))]
        for row in rows:
            cells = [
                cell.ljust(width) if column in part.left else cell.rjust(width)
                for column, (cell, width) in enumerate(zip(row, widths, strict=True))
            ]
            lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def rich_view(view: Values) -> Any:
    """Return a view for the library `rich`."""
    from rich.console import Group  # type: ignore[import-not-found,unused-ignore]
    from rich.table import Table as RichTable  # type: ignore[import-not-found,unused-ignore]
    from rich.text import Text  # type: ignore[import-not-found,unused-ignore]

    parts: list[Any] = []
    for part in _parts(view):
        if isinstance(part, Line):
            parts.append(Text(printable(part.text), style=part.style))
            continue
        table = RichTable(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
        for column, header in enumerate(part.headers):
            table.add_column(header, justify="left" if column in part.left else "right")
        for number, row in enumerate(part.rows):
            style = "bold red" if number == part.hot else None
            table.add_row(*(Text(printable(cell)) for cell in row), style=style)
        parts.append(table)
    return Group(*parts)


def _parts(view: Values) -> Iterator[Line | Table]:
    usage = _usage(view)
    yield Line(f"{view['program']}  (process {view['pid']} on {view['host']}{usage})", "bold")
    if not view["runs"]:
        yield Line("It runs no pipeline at the moment.")
    for run in view["runs"]:
        yield from _run_parts(run, view["host"])


def _run_parts(run: Values, host: str) -> Iterator[Line | Table]:
    rate = "" if run["rate"] is None else f", {run['rate']:,.4g} a second"
    yield Line("")
    yield Line(run["pipeline"], "cyan")
    yield Line(
        f"{run['elements']:,} elements in {seconds(run['seconds'])}{rate}; the training loop waits"
        f" {run['wait_share']:.0%} of the time"
    )
    yield Line("")
    stages = run["stages"]
    hot = [number for number, one in enumerate(stages) if one["id"] == run["limiting"]]
    yield Table(
        ("stage", "per second", "bytes/s", "time", "wait", "buffer", "runs in"),
        [_stage(one, run) for one in stages],
        (0, 5, 6),
        hot[0] if hot else None,
    )
    yield Line("")
    if run["stands_still"]:
        yield Line(run["stands_still"], "bold red")
    if run["elements"] or not run["stands_still"]:
        yield Line(run["verdict"], "bold")
    for line in run["advice"]:
        yield Line(f"• {line}")
    if run["workers"]:
        yield Line("")
        yield Table(
            ("worker", "process", "CPU", "memory", "host"),
            [_worker(one, host) for one in run["workers"]],
            (0, 4),
        )
    for line in run["remote_workers"]:
        yield Line(line)
    if run["lanes"]:
        yield Line("")
        yield Table(
            ("lanes", "run by"), [(one["lanes"], one["run_by"]) for one in run["lanes"]], (0, 1)
        )
    if run["mixture"]:
        yield Line("")
        headers = ("mixture", "target", "share", "elements", "tokens", "of tokens", "epochs")
        yield Table(headers, [_component(one) for one in run["mixture"]])
    if run["error_count"]:
        yield Line("")
        yield Line(f"{run['error_count']:,} errors were tolerated. The last ones:")
        last = run["errors"][-_MOST_ERRORS:]
        yield Table(("stage", "record", "done", "error"), [_error(e) for e in last], (0, 1, 2, 3))


def _usage(values: Values) -> str:
    cpus = "" if values["cpus"] is None else f", {values['cpus']:.0%} CPU"
    memory = "" if values["nbytes"] is None else f", {size(values['nbytes'])}"
    return cpus + memory


def _stage(stage: Values, run: Values) -> Sequence[str]:
    mark = "  <-- limits" if stage["id"] == run["limiting"] else ""
    return (
        stage["name"],
        "" if stage["rate"] is None else f"{stage['rate']:,.4g}",
        "" if stage["bytes_rate"] is None else f"{size(stage['bytes_rate'])}",
        f"{stage['share']:.0%}",
        f"{stage['wait_share']:.0%}",
        _bar(stage["ready"], stage["buffer"]),
        stage["runs_in"] + mark,
    )


def _bar(ready: int | None, most: int | None) -> str:
    if ready is None or not most:
        return ""
    filled = min(_WIDTH, round(_WIDTH * ready / most))
    return "█" * filled + "·" * (_WIDTH - filled) + f" {ready:,}/{most:,}"


def _worker(one: Values, host: str) -> Sequence[str]:
    cpus = "" if one["cpus"] is None else f"{one['cpus']:.0%}"
    memory = "" if one["nbytes"] is None else size(one["nbytes"])
    return one["name"], str(one["pid"]), cpus, memory, host


def _component(one: Values) -> Sequence[str]:
    return (
        one["component"],
        f"{one['target']:.1%}",
        f"{one['element_share']:.1%}",
        f"{one['elements']:,}",
        "" if one["tokens"] is None else f"{one['tokens']:,}",
        "" if one["token_share"] is None else f"{one['token_share']:.1%}",
        "" if one["epochs"] is None else f"{one['epochs']:.2f}",
    )


def _error(one: Values) -> Sequence[str]:
    record = "" if one["index"] is None else str(one["index"])
    source = "" if one["source"] is None else f" of {one['source']}"
    return one["stage"], _short(record + source), one["policy"], _short(one["error"])


def _short(text: str) -> str:
    return text if len(text) <= _SHORT else f"{text[: _SHORT - 1]}…"
