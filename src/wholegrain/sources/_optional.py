"""Libraries that only some sources need, imported when such a source is created."""

import importlib
from types import ModuleType

from wholegrain._core.install import install_command


def require(module: str, *, extra: str, purpose: str) -> ModuleType:
    """Import `module`, or raise an error that says what to install.

    Args:
        module: The module's full name.
        extra: The extra of wholegrain that installs it.
        purpose: What needs it, as the start of a sentence.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        raise ImportError(
            f"{purpose} needs the package `{package}`, which could not be imported ({error})."
            f" Install it with `{install_command(extra)}`.",
            name=package,
        ) from error
