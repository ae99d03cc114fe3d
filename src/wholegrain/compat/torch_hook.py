"""Makes torch's DataLoader accept an IterDataset as what it is: a dataset without indices.

torch asks `isinstance(dataset, torch.utils.data.IterableDataset)`. A class can be registered for
that without importing torch first.
"""

from typing import Any

from wholegrain._core.import_hooks import after_import
from wholegrain._graph.kinds import IterNode


def watch() -> None:
    """Register the datasets now if torch is imported, or else when it is."""
    after_import("torch.utils.data.dataset", _register)


def _register(module: Any) -> None:
    # Not `IterDataset`: the iterator of a user's own class would not take its share in a worker.
    module.IterableDataset.register(IterNode)
