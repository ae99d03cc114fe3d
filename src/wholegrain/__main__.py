"""`python -m wholegrain`: runs a program with `import grain` giving wholegrain, or a command.

Usage:
    python -m wholegrain SCRIPT [ARGUMENT...]
    python -m wholegrain -m MODULE [ARGUMENT...]
    python -m wholegrain -c CODE [ARGUMENT...]
    python -m wholegrain COMMAND ...            as the `wholegrain` command: see --help
"""

import os
import sys

_COMMANDS = ("inspect", "convert", "bench", "check", "demo")


def main(arguments: list[str]) -> int:
    """Run what the command line names; return the exit code, unless it ends the process itself."""
    from wholegrain.compat import program

    first = arguments[0] if arguments else "--help"
    try:
        if first in ("-m", "-c"):
            if len(arguments) < 2:
                raise program.NoProgramError(f"{first} needs the program to run after it.")
            run = program.run_module if first == "-m" else program.run_code
            run(arguments[1], arguments[2:])
        elif first.startswith("-") or (first in _COMMANDS and not os.path.isfile(first)):
            from wholegrain._cli import main as run_command

            return run_command(arguments or [first])
        elif os.path.exists(first):
            program.run_script(first, arguments[1:])
        else:
            raise program.NoProgramError(
                f"There is no script {first!r}, and no such command. Commands are"
                f" {', '.join(_COMMANDS)}."
            )
    except program.NoProgramError as error:
        print(f"python -m wholegrain: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
