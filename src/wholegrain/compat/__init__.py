"""`import grain` gives wholegrain, for programs that are not to be changed.

    python -m wholegrain train.py --steps 100

or, before anything imports Grain, `wholegrain.install_as_grain()`; in a notebook
`%load_ext wholegrain`. Worker processes follow. Without any of these nothing is replaced.
"""

from typing import Any

from wholegrain.compat.alias import install_as_grain as install_as_grain
from wholegrain.compat.alias import uninstall_as_grain as uninstall_as_grain


def load_ipython_extension(ipython: Any) -> None:
    """Have `import grain` give wholegrain, on `%load_ext wholegrain`."""
    install_as_grain()


def unload_ipython_extension(ipython: Any) -> None:
    """Have `import grain` give Grain again, on `%unload_ext wholegrain`."""
    uninstall_as_grain()
