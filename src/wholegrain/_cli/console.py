"""Output for people: coloured in a terminal, plain text in a pipe or a file.

Colours and tables come from `rich` if it is installed; it is optional.
"""

import contextlib
import importlib
import os
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any, Protocol, TextIO

_SECONDS_BETWEEN_LINES = 10.0
_SECONDS_BETWEEN_FRAMES = 0.1


def rich_module(name: str) -> Any:
    """Return a module of `rich`, or None if it is not installed."""
    try:
        return importlib.import_module(f"rich.{name}")
    except ImportError:
        return None


def printable(text: str, keep: str = "") -> str:
    """Return a text with control characters escaped, so that they cannot control the terminal.

    Names of files, columns and errors come from untrusted files.
    """
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() or character in keep else repr(character)[1:-1]
        for character in text
    )


class Console:
    """Prints to a stream. `rich` is a rich console, or None for plain text."""

    def __init__(self, file: TextIO | None = None) -> None:
        self.file = sys.stdout if file is None else file
        self.is_terminal = self.file.isatty() and os.environ.get("TERM") != "dumb"
        self.rich: Any = None
        if self.is_terminal and (module := rich_module("console")) is not None:
            self.rich = module.Console(file=self.file, highlight=False)

    def line(self, text: str = "", style: str = "") -> None:
        """Print a line, in a style if rich is installed."""
        text = printable(text, keep="\n")
        if self.rich is not None:
            self.rich.print(text, style=style or None, markup=False, soft_wrap=True)
        else:
            print(text, file=self.file, flush=True)

    def show(self, value: object) -> None:
        """Print an object, rendered by rich or as its text."""
        if self.rich is not None and hasattr(value, "__rich__"):
            self.rich.print(value)
        else:
            self.line(str(value))

    def headline(self, text: str) -> None:
        """Print a heading."""
        self.line()
        self.line(text, "bold")

    def facts(self, pairs: Sequence[tuple[str, str]]) -> None:
        """Print names and values."""
        pairs = [(printable(name), printable(value)) for name, value in pairs]
        width = max((len(name) for name, _ in pairs), default=0)
        for name, value in pairs:
            if self.rich is not None:
                text = rich_module("text").Text(f"  {name:<{width}}  ", style="cyan")
                self.rich.print(text.append(value, style="default"), soft_wrap=True)
            else:
                self.line(f"  {name:<{width}}  {value}")

    def table(self, header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Print rows under a header."""
        rows = [[printable(cell) for cell in row] for row in rows]
        if self.rich is not None:
            table = rich_module("table").Table(
                box=rich_module("box").SIMPLE_HEAD, header_style="cyan", pad_edge=False
            )
            text = rich_module("text").Text
            for name in header:
                table.add_column(name, overflow="fold")
            for row in rows:
                table.add_row(*[text(cell) for cell in row])
            self.rich.print(rich_module("padding").Padding(table, (0, 0, 0, 2)))
            return
        every = [header, *rows]
        widths = [max(len(row[column]) for row in every) for column in range(len(header))]
        for row in every:
            cells = [f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)]
            self.line(f"  {'  '.join(cells)}".rstrip())


class Progress(Protocol):
    """Shows the progress of a command."""

    def update(self, done: int, note: str = "") -> None:
        """Show that `done` of the total are done."""
        ...


@contextlib.contextmanager
def progress(label: str, total: int, unit: str) -> Iterator[Progress]:
    """Show the progress of a command on standard error.

    In a terminal it is a bar; elsewhere it is a line now and then, for log files.
    """
    console = Console(sys.stderr)
    if console.rich is not None:
        with _rich_progress(console, label, total, unit) as bar:
            yield bar
    else:
        plain = _PlainProgress(console, label, total, unit)
        yield plain
        plain.end()


@contextlib.contextmanager
def _rich_progress(console: Console, label: str, total: int, unit: str) -> Iterator[Progress]:
    module = rich_module("progress")
    columns = [
        module.TextColumn("{task.description}"),
        module.BarColumn(bar_width=None),
        module.TextColumn("{task.percentage:>3.0f}%"),
        module.TextColumn("{task.fields[note]}", style="dim"),
        module.TimeRemainingColumn(),
    ]
    with module.Progress(*columns, console=console.rich, transient=True) as bars:
        task = bars.add_task(label, total=total, note="")

        class Bar:
            def update(self, done: int, note: str = "") -> None:
                bars.update(task, completed=done, note=note or f"{done:,} of {total:,} {unit}")

        yield Bar()


class _PlainProgress:
    def __init__(self, console: Console, label: str, total: int, unit: str) -> None:
        self._console = console
        self._label, self._total, self._unit = label, total, unit
        self._pause = _SECONDS_BETWEEN_FRAMES if console.is_terminal else _SECONDS_BETWEEN_LINES
        self._last = time.monotonic()

    def update(self, done: int, note: str = "") -> None:
        now = time.monotonic()
        if now - self._last < self._pause:
            return
        self._last = now
        share = done / self._total if self._total else 1.0
        note = printable(note) or f"{done:,} of {self._total:,} {self._unit}"
        text = f"{self._label} {share:4.0%}, {note}"
        if self._console.is_terminal:
            print(f"\r\033[K{text}", end="", file=self._console.file, flush=True)
        else:
            self._console.line(text)

    def end(self) -> None:
        if self._console.is_terminal:
            print("\r\033[K", end="", file=self._console.file, flush=True)


def size_text(size: float) -> str:
    """Return a number of bytes as a short text."""
    if size < 1000:
        return f"{size:.0f} B" if size == int(size) else f"{size:.1f} B"
    units = iter(("kB", "MB", "GB", "TB"))
    unit = ""
    while size >= 1000 and unit != "TB":
        size, unit = size / 1000, next(units)
    return f"{size:.1f} {unit}" if size < 100 else f"{size:.0f} {unit}"


def time_text(seconds: float) -> str:
    """Return a duration as a short text."""
    if seconds < 1e-3:
        return f"{seconds * 1e6:.0f} µs"
    if seconds < 1:
        return f"{seconds * 1e3:.1f} ms"
    if seconds < 120:
        return f"{seconds:.1f} s"
    return f"{seconds // 60:.0f} min {seconds % 60:.0f} s"
