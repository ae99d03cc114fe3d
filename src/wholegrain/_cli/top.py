"""`wholegrain top`: a live view of a running program."""

import argparse
import json
import os
import time
from typing import Any

from wholegrain._cli.console import Console, printable, rich_module
from wholegrain._cli.errors import BadInput
from wholegrain._core.install import install_command
from wholegrain._observe import live
from wholegrain._observe.live_view import Values, Viewer
from wholegrain._observe.report_text import seconds, size

_WIDTH = 10


def run(arguments: argparse.Namespace) -> int:
    """Show what a program is doing, again and again, until it ends or Ctrl-C."""
    pid = arguments.pid if arguments.pid is not None else the_only_program()
    viewer = Viewer()
    viewer.see(ask(pid))
    if arguments.once or arguments.json:
        time.sleep(min(arguments.interval, 1.0))
        view = viewer.see(ask(pid))
        if arguments.json:
            print(json.dumps(view, indent=2))
        else:
            Console().line(plain(view))
        return 0
    return _follow(pid, viewer, arguments.interval)


def ask(pid: int) -> Values:
    """Return a snapshot of a program, or explain why there is none."""
    try:
        return live.ask(pid)
    except PermissionError:
        raise BadInput(
            f"Process {pid} belongs to another user, who alone may look at it."
        ) from None
    except (OSError, ValueError) as error:
        if not os.path.exists(f"/proc/{pid}") and os.path.exists("/proc/self"):
            raise BadInput(f"There is no process {pid}.") from None
        raise BadInput(
            f"Process {pid} does not answer ({error}). It has to run a pipeline of wholegrain for"
            " a second first, without WHOLEGRAIN_TOP=0 in its environment."
        ) from None


def the_only_program() -> int:
    """Return the id of the one program that runs pipelines; raise if there is none, or more."""
    found = []
    for pid in live.visible_pids():
        try:
            found.append((pid, live.ask(pid)["program"]))
        except (OSError, ValueError):
            continue  # Another user's, or it has just ended.
    if not found:
        raise BadInput(
            "No program of yours is running a pipeline of wholegrain. It becomes visible a second"
            " after its first element."
        )
    if len(found) > 1:
        programs = "; ".join(f"{pid} ({printable(name)})" for pid, name in found)
        raise BadInput(f"Several programs are running. Name one: {programs}")
    return found[0][0]


def _follow(pid: int, viewer: Viewer, interval: float) -> int:
    module = rich_module("live")
    if module is None:
        raise BadInput(
            "A live view needs the package `rich`: "
            f"`{install_command('cli')}`. `wholegrain top --once` prints one view without it."
        )
    with module.Live(auto_refresh=False, screen=Console().is_terminal) as screen:
        while True:
            try:
                view = viewer.see(ask(pid))
            except BadInput:
                break
            screen.update(rich_view(view), refresh=True)
            time.sleep(interval)
    Console().line(f"Process {pid} has ended.")
    return 0


def plain(view: Values) -> str:
    """Return a view as lines of text."""
    lines = [_headline(view)]
    for one in view["runs"]:
        lines += ["", one["pipeline"], _about_run(one), ""]
        rows = [_HEADERS, *(_cells(stage, one) for stage in one["stages"])]
        widths = [max(len(row[column]) for row in rows) for column in range(len(_HEADERS))]
        for row in rows:
            cells = [text.ljust(width) for text, width in zip(row, widths, strict=True)]
            lines.append("  ".join(cells).rstrip())
        lines += ["", *_worker_lines(one), one["verdict"], *(f"- {line}" for line in one["advice"])]
        lines += _more_lines(one)
    return "\n".join(lines)


def rich_view(view: Values) -> Any:
    """Return a view for the library `rich`."""
    from rich.console import Group  # type: ignore[import-not-found,unused-ignore]
    from rich.table import Table  # type: ignore[import-not-found,unused-ignore]
    from rich.text import Text  # type: ignore[import-not-found,unused-ignore]

    parts: list[Any] = [Text(_headline(view), style="bold")]
    for one in view["runs"]:
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
        for number, header in enumerate(_HEADERS):
            table.add_column(header, justify="right" if number in (1, 2, 3, 4) else "left")
        for stage in one["stages"]:
            style = "bold red" if stage["id"] == one["limiting"] else None
            table.add_row(*(Text(cell) for cell in _cells(stage, one)), style=style)
        parts += [
            Text(f"\n{printable(one['pipeline'])}", style="cyan"),
            Text(_about_run(one)),
            table,
        ]
        parts += [Text(line, style="dim") for line in _worker_lines(one)]
        parts += [Text(printable(f"\n{one['verdict']}", keep="\n"), style="bold")]
        parts += [Text(printable(f"• {line}")) for line in one["advice"]]
        parts += [Text(printable(line)) for line in _more_lines(one)]
    return Group(*parts)


_HEADERS = ("stage", "per second", "bytes/s", "time", "wait", "buffer", "runs in")


def _headline(view: Values) -> str:
    usage = _usage(view)
    return printable(f"{view['program']}  (process {view['pid']} on {view['host']}{usage})")


def _usage(values: Values) -> str:
    cpus = "" if values["cpus"] is None else f", {values['cpus']:.0%} CPU"
    memory = "" if values["nbytes"] is None else f", {size(values['nbytes'])}"
    return cpus + memory


def _about_run(run: Values) -> str:
    rate = "" if run["rate"] is None else f", {run['rate']:,.4g} a second"
    return (
        f"{run['elements']:,} elements in {seconds(run['seconds'])}{rate}; the training loop waits"
        f" {run['wait_share']:.0%} of the time"
    )


def _cells(stage: Values, run: Values) -> tuple[str, ...]:
    mark = "  <-- limits" if stage["id"] == run["limiting"] else ""
    return (
        printable(stage["name"]),
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


def _worker_lines(run: Values) -> list[str]:
    here = [f"{one['name']}: process {one['pid']}{_usage(one)}" for one in run["workers"]]
    return [*here, *map(printable, run["remote_workers"])]


def _more_lines(run: Values) -> list[str]:
    lines = []
    if run["mixture"]:
        lines.append(f"mixture: {run['mixture']}")
    if run["errors"]:
        lines.append(f"errors: {len(run['errors']):,}, the last one {run['errors'][-1]}")
    return lines
