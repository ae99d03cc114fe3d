"""Makes `import grain` import wholegrain, for programs that should not be changed.

    python -m wholegrain train.py --steps 100

or, before anything imports Grain, `wholegrain.install_as_grain()`; in a notebook
`%load_ext wholegrain`. Worker processes do the same. Otherwise nothing is replaced.
"""

from typing import TYPE_CHECKING, Any

from wholegrain._core import lazy

if TYPE_CHECKING:
    from wholegrain.compat.alias import install_as_grain as install_as_grain
    from wholegrain.compat.alias import uninstall_as_grain as uninstall_as_grain

_ALIAS = "wholegrain.compat.alias"
__getattr__ = lazy.importer(__name__, {"install_as_grain": _ALIAS, "uninstall_as_grain": _ALIAS})


def load_ipython_extension(ipython: Any) -> None:
    """Make `import grain` import wholegrain, on `%load_ext wholegrain`."""
    from wholegrain.compat.alias import install_as_grain

    install_as_grain()


def unload_ipython_extension(ipython: Any) -> None:
    """Make `import grain` import Grain again, on `%unload_ext wholegrain`."""
    from wholegrain.compat.alias import uninstall_as_grain

    uninstall_as_grain()
