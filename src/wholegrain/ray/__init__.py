"""Pipelines on a Ray cluster, with the elements, the order and the states of local workers."""

from importlib.util import find_spec

if find_spec("ray") is None:
    from wholegrain._core.install import install_command

    raise ImportError(
        "`wholegrain.ray` needs the package `ray`, which is not installed. Install it with"
        f" `{install_command('ray')}`: that is the extra `wholegrain[ray]`.",
        name="ray",
    )

from wholegrain.ray._backend import RayBackend as RayBackend
from wholegrain.ray._consumer import connect as connect
from wholegrain.ray._materialize import materialize as materialize
from wholegrain.ray._server import Served as Served
from wholegrain.ray._server import serve as serve
