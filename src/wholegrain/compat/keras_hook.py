"""Makes Keras accept wholegrain's datasets and DataLoader, with or without Grain installed.

Keras recognises Grain's datasets by the names of their classes and modules. It takes wholegrain's
for Grain's, because its module names contain "grain" too, and then checks them with Grain. So this
module changes two modules of Keras after they are imported: they handle wholegrain's objects here,
and everything else as before.
"""

import functools
import os
import sys
from collections.abc import Callable
from types import FrameType, ModuleType
from typing import Any

from wholegrain._core.import_hooks import after_import

_OWN = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_PIPELINES = tuple(os.path.join(_OWN, name) + os.sep for name in ("_graph", "_loader"))


def watch() -> None:
    """Change Keras's modules now if they are imported, or else when they are."""
    for name, change in _CHANGES.items():
        after_import(name, functools.partial(_apply, change))


def _apply(change: Callable[[Any], None], module: ModuleType) -> None:
    if getattr(module, "_changed_by_wholegrain", False):
        return
    try:
        change(module)
    except AttributeError:
        return  # A version of Keras with other internals is left unchanged.
    setattr(module, "_changed_by_wholegrain", True)  # noqa: B010


def _change_adapter(module: Any) -> None:
    """Handle wholegrain's data with an adapter that does not use Grain."""
    theirs: Any = module.GrainDatasetAdapter
    tree, tools = module.tree, module.data_adapter_utils

    class WholegrainAdapter(theirs):  # type: ignore[misc]
        """Handles a MapDataset, an IterDataset or a DataLoader of wholegrain."""

        def __init__(self, dataset: Any) -> None:
            self._dataset = dataset
            self._batch_size, self._output_signature = self._get_dataset_info(dataset)
            self._output_tf_signature = None

        def get_numpy_iterator(self) -> Any:
            def to_numpy(leaf: Any) -> Any:
                if hasattr(leaf, "__array__"):
                    leaf = leaf.cpu() if tools.is_torch_tensor(leaf) else leaf
                    return module.np.asarray(leaf)
                return leaf

            return _Mapped(self._dataset, _on_leaves(tree, to_numpy))

        def get_jax_iterator(self) -> Any:
            def to_jax(leaf: Any) -> Any:
                if tools.is_scipy_sparse(leaf):
                    return tools.scipy_sparse_to_jax_sparse(leaf)
                if tools.is_tensorflow_sparse(leaf):
                    return tools.tf_sparse_to_jax_sparse(leaf)
                return leaf

            return _Mapped(self._dataset, _on_leaves(tree, to_jax))

        def get_tf_dataset(self) -> Any:
            def to_tf(leaf: Any) -> Any:
                if leaf is None:
                    return module.tf.experimental.Optional.empty(None)
                if tools.is_scipy_sparse(leaf):
                    return tools.scipy_sparse_to_tf_sparse(leaf)
                if tools.is_jax_sparse(leaf):
                    return tools.jax_sparse_to_tf_sparse(leaf)
                return leaf

            def convert(element: Any) -> Any:
                # TensorFlow does not accept lists.
                return tree.lists_to_tuples(tree.map_structure(to_tf, element))

            return module.tf.data.Dataset.from_generator(
                lambda: _Mapped(self._dataset, convert),
                output_signature=tree.map_structure(
                    tools.convert_to_tf_tensor_spec, self._output_signature
                ),
            )

    def choose(cls: Any, *args: Any, **kwargs: Any) -> Any:
        given = args[0] if args else kwargs.get("dataset")
        if cls is theirs and _is_ours(given):
            cls = WholegrainAdapter
        return object.__new__(cls)

    theirs.__new__ = staticmethod(choose)


def _on_leaves(tree: Any, function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return functools.partial(tree.map_structure, function, none_is_leaf=False)


class _Mapped:
    """An iterable with a function applied to its elements."""

    def __init__(self, iterable: Any, function: Callable[[Any], Any]) -> None:
        self._iterable = iterable
        self._function = function

    def __iter__(self) -> Any:
        return map(self._function, iter(self._iterable))


def _is_ours(value: Any) -> bool:
    import wholegrain

    return isinstance(value, (wholegrain.MapDataset, wholegrain.IterDataset, wholegrain.DataLoader))


def _change_pipeline_check(module: Any) -> None:
    """Make layers in a pipeline compute on the CPU, as in Grain's pipelines."""
    in_grain = module.in_grain_data_pipeline

    def in_grain_data_pipeline() -> bool:
        return _is_below_a_pipeline(sys._getframe(1)) or in_grain()  # noqa: SLF001

    module.in_grain_data_pipeline = in_grain_data_pipeline


def _is_below_a_pipeline(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_filename.startswith(_PIPELINES):
            return True
        frame = frame.f_back
    return False


_CHANGES: dict[str, Callable[[Any], None]] = {
    "keras.src.trainers.data_adapters.grain_dataset_adapter": _change_adapter,
    "keras.src.utils.backend_utils": _change_pipeline_check,
}
