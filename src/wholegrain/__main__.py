"""`python -m wholegrain`: runs a program with `import grain` giving wholegrain, or a command.

Usage:
    python -m wholegrain SCRIPT [ARGUMENT...]
    python -m wholegrain -m MODULE [ARGUMENT...]
    python -m wholegrain -c CODE [ARGUMENT...]
    python -m wholegrain COMMAND ...            as the `wholegrain` command: see --help
"""

import os
import sys


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
        elif os.path.isfile(first) and not first.startswith("-"):
            program.run_script(first, arguments[1:])
        else:
            from wholegrain._cli import main as run_command
            from wholegrain._cli.arguments import command_names

            if first.startswith("-") or first in command_names():
                return run_command(arguments or [first])
            if os.path.exists(first):  # A folder with a `__main__.py`.
                program.run_script(first, arguments[1:])
                return 0
            raise program.NoProgramError(
                f"There is no script {first!r}, and no such command. Commands are"
                f" {', '.join(command_names())}."
            )
    except program.NoProgramError as error:
        print(f"python -m wholegrain: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
