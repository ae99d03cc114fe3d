"""The entry point: parses arguments, runs a command, and prints errors in one line."""

import importlib
import os
import sys

from wholegrain._cli.arguments import parser
from wholegrain._cli.console import printable
from wholegrain._cli.errors import one_line, with_place

BAD_INPUT = 2
_INTERRUPTED = 130  # as in shells: 128 plus the number of the signal


def main(argv: list[str] | None = None) -> int:
    """Run the `wholegrain` command.

    Args:
        argv: The arguments without the program name; by default those of the process.

    Returns:
        The exit code: 0 on success, 1 if a check failed, 2 if the command could not do what was
        asked.
    """
    commands = parser()
    try:
        arguments = commands.parse_args(argv)
    except SystemExit as end:  # `--help`, `--version` and wrong arguments
        return int(end.code or 0)
    if arguments.command is None:
        commands.print_help()
        return 0
    try:
        command = importlib.import_module(f"wholegrain._cli.{arguments.command}")
        code: int = command.run(arguments)
        sys.stdout.flush()
        return code
    except KeyboardInterrupt as interrupt:
        text = f"wholegrain {arguments.command}: interrupted. {interrupt}"
        print(printable(text.rstrip()), file=sys.stderr)
        return _INTERRUPTED
    except BrokenPipeError:
        # The reader closed the pipe. Avoid another error from Python at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:
        if arguments.traceback:
            raise
        # `bench` runs the user's code, so tell where it failed.
        text = with_place(error) if arguments.command == "bench" else one_line(error)
        text = text.replace("\n", ". ")
        print(printable(f"wholegrain {arguments.command}: {text}"), file=sys.stderr)
        return BAD_INPUT
