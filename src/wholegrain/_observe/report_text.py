"""Reports as text: plain, or with colours if the library `rich` is installed."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from wholegrain._observe.report import Report, StageReport

_BAR = 20
_HEADERS = ("stage", "time", "", "wait", "idle", "elements", "bytes", "runs in")
_RIGHT = (1, 3, 4, 5, 6)


def plain(report: Report) -> str:
    """Return a report as lines of text."""
    rows = [_cells(report, stage) for stage in report.stages]
    widths = [max(len(row[column]) for row in (_HEADERS, *rows)) for column in range(len(_HEADERS))]
    lines = [headline(report), "", _line(_HEADERS, widths)]
    lines += [_line(row, widths) for row in rows]
    lines += ["", *textwrap.wrap(report.verdict, 100)]
    for advice in report.advice:
        lines += textwrap.wrap(advice, 98, initial_indent="- ", subsequent_indent="  ")
    lines += facts(report)
    if report.remote_workers:
        lines += ["", *report.remote_workers]
    return "\n".join(lines)


def facts(report: Report) -> list[str]:
    """Return sentences about failures and padding."""
    lines = [
        f"{stage.padding_share:.1%} of the cells of {stage.name} are padding."
        for stage in report.stages
        if stage.padding_share is not None
    ]
    if report.failures is not None:
        lines.append(f"{report.failures} elements have failed and were tolerated: `it.errors()`.")
    return lines


def one_line(report: Report) -> str:
    """Return a summary of a report on one line."""
    limiting = "" if report.limiting is None else report.stages[report.limiting].name
    name = f"{limiting[:39]}…" if len(limiting) > 40 else limiting
    whole = seconds(report.wait_seconds + report.loop_seconds)
    return (
        f"<Report of {len(report.stages)} stages: waited {report.wait_share:.1%} of {whole}"
        f"{f', mostly for {name}' if name else ''}>"
    )


def rich(report: Report) -> Any:
    """Return a report for a console of the library `rich`."""
    from rich.console import Group  # type: ignore[import-not-found,unused-ignore]
    from rich.table import Table  # type: ignore[import-not-found,unused-ignore]
    from rich.text import Text  # type: ignore[import-not-found,unused-ignore]

    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="dim")
    for number, header in enumerate(_HEADERS):
        align: Any = "right" if number in _RIGHT else "left"
        # On a narrow console, wrap names but not numbers.
        table.add_column(header, justify=align, no_wrap=number in _RIGHT, overflow="fold")
    for stage in report.stages:
        cells = list(_cells(report, stage))
        cells[2] = "█" * round(8 * stage.share)
        style = "bold red" if stage.id == report.limiting else None
        table.add_row(*(Text(cell) for cell in cells), style=style)
    verdict = Text(f"\n{report.verdict}", style="bold")
    return Group(
        Text(headline(report) + "\n"),
        table,
        verdict,
        *(Text(f"• {a}") for a in report.advice),
        *(Text(text) for text in report.remote_workers),
    )


def headline(report: Report) -> str:
    """Return a sentence about how long the training loop waited."""
    whole = report.wait_seconds + report.loop_seconds
    started = ""
    if report.start_seconds >= 0.001:
        started = f" The start-up took {seconds(report.start_seconds)}, which does not count."
    if not whole:
        return f"The training loop has not asked for more than one element yet.{started}"
    return (
        f"The training loop waited for data {report.wait_share:.1%} of the time:"
        f" {seconds(report.wait_seconds)} of {seconds(whole)}.{started}"
    )


def _cells(report: Report, stage: StageReport) -> tuple[str, ...]:
    mark = " <-- limits" if stage.id == report.limiting else ""
    filled = round(stage.share * _BAR)
    about = "~" if stage.is_estimated else ""
    return (
        stage.name,
        f"{stage.share:.1%}",
        "█" * filled + "·" * (_BAR - filled),
        f"{stage.wait_share:.1%}",
        f"{stage.idle_share:.0%}" if stage.share >= 0.005 else "",
        "" if stage.elements is None else f"{about}{stage.elements:,}",
        "" if stage.nbytes is None else f"~{size(stage.nbytes)}",
        stage.runs_in + mark,
    )


def _line(cells: tuple[str, ...], widths: list[int]) -> str:
    padded = [
        cell.rjust(width) if number in _RIGHT else cell.ljust(width)
        for number, (cell, width) in enumerate(zip(cells, widths, strict=True))
    ]
    return "  ".join(padded).rstrip()


def seconds(value: float) -> str:
    """Return a duration with a suitable unit."""
    for unit, factor in (("s", 1.0), ("ms", 1e3), ("us", 1e6)):
        if value * factor >= 1:
            return f"{value * factor:.3g} {unit}" if value < 100 else f"{value:,.0f} s"
    return f"{value * 1e9:.0f} ns"


def size(nbytes: float) -> str:
    """Return a size with a suitable unit."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if nbytes < 1024:
            return f"{nbytes:.0f} {unit}" if unit == "B" else f"{nbytes:.3g} {unit}"
        nbytes /= 1024
    return f"{nbytes:,.3g} TiB"
