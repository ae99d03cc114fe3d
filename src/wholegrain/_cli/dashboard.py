"""`wholegrain dashboard`: running programs, or a recording of one, as a web page."""

import argparse
import contextlib
from pathlib import Path
from typing import TextIO

from wholegrain._cli import top
from wholegrain._cli.console import Console
from wholegrain._cli.errors import BadInput
from wholegrain._observe.dashboard import Dashboard
from wholegrain._observe.dashboard.feed import Feed, Recording, of_address, of_process


def run(arguments: argparse.Namespace) -> int:
    """Serve the page until Ctrl-C."""
    with contextlib.ExitStack() as stack:
        board = stack.enter_context(
            Dashboard(_feed(arguments, stack), arguments.port, arguments.host)
        )
        console = Console()
        console.line(f"The dashboard is at {board.url}")
        if arguments.host not in ("127.0.0.1", "localhost", "::1"):
            console.line(
                f"It listens on {arguments.host}: who knows this address can look at it. The"
                " connection is not encrypted."
            )
        console.line("Ctrl-C ends it.")
        board.wait()
    return 0


def _feed(arguments: argparse.Namespace, stack: contextlib.ExitStack) -> Feed | Recording:
    if arguments.open is not None:
        if arguments.pids or arguments.also or arguments.record:
            raise BadInput("`--open` shows a recording, and nothing else at the same time.")
        return Recording(arguments.open)
    pids = arguments.pids or ([] if arguments.also else [top.the_only_program()])
    for pid in pids:
        top.ask(pid)
    asks = [*map(of_process, pids), *map(of_address, arguments.also)]
    record: TextIO | None = None
    if arguments.record is not None:
        if Path(arguments.record).exists():
            raise BadInput(f"{arguments.record!r} exists. Record to another file, or delete it.")
        file = open(arguments.record, "x", encoding="utf-8")  # noqa: SIM115  (the stack closes it)
        record = stack.enter_context(file)
    return Feed(asks, arguments.interval, record)
