"""How to install what is missing, for the message that says so."""

import shlex
from pathlib import Path


def install_command(extra: str) -> str:
    """Return the command that installs what an extra of this package needs.

    The name of the package stands for the released one. Where this is a checkout, as after
    `pip install -e .`, its path is named, so that it stays what is installed.
    """
    package = Path(__file__).resolve().parent.parent
    root = package.parent.parent
    is_checkout = package.parent.name == "src" and (root / "pyproject.toml").is_file()
    if is_checkout:
        return f"pip install -e {shlex.quote(f'{root}[{extra}]')}"
    return f"pip install 'wholegrain[{extra}]'"
