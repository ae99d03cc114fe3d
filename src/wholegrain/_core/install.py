"""The command that installs a missing library, for error messages."""

import shlex
from pathlib import Path


def install_command(extra: str) -> str:
    """Return the command that installs the requirements of an extra of this package.

    The package name would install the released version. If this is a checkout, as after
    `pip install -e .`, the command names its path instead, so that the checkout stays installed.
    """
    package = Path(__file__).resolve().parent.parent
    root = package.parent.parent
    is_checkout = package.parent.name == "src" and (root / "pyproject.toml").is_file()
    if is_checkout:
        return f"pip install -e {shlex.quote(f'{root}[{extra}]')}"
    return f"pip install 'wholegrain[{extra}]'"
