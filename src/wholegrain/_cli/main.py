"""The entry of the command: reads the arguments, runs a command, and turns errors into a line."""

import importlib
import os
import sys

from wholegrain._cli.arguments import parser
from wholegrain._cli.console import printable
from wholegrain._cli.errors import one_line, with_place

BAD_INPUT = 2
_INTERRUPTED = 130  # as shells say it: 128 and the number of the signal


def main(argv: list[str] | None = None) -> int:
    """Run the `wholegrain` command.

    Args:
        argv: The arguments, without the name of the program; by default those it was called with.

    Returns:
        The exit code: 0 if all is well, 1 if something was found to be wrong, 2 if the command
        could not do what was asked.
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
        # Whoever read the output has seen enough. Python would complain once more at the end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:
        if arguments.traceback:
            raise
        # What `bench` runs is the user's: where it failed is what they need to know.
        text = with_place(error) if arguments.command == "bench" else one_line(error)
        text = text.replace("\n", ". ")
        print(printable(f"wholegrain {arguments.command}: {text}"), file=sys.stderr)
        return BAD_INPUT
