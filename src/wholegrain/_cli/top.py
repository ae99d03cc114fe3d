"""`wholegrain top`: a live view of a running program."""

import argparse
import json
import os
import time

from wholegrain._cli.console import Console, printable, rich_module
from wholegrain._cli.errors import BadInput
from wholegrain._cli.top_view import plain, rich_view
from wholegrain._core.install import install_command
from wholegrain._observe import live
from wholegrain._observe.live_view import Values, Viewer


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
            " after `iter(ds)`."
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
