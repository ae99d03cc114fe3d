"""Checks for datasets and sources, including your own. Call them from your tests.

Each check reads a dataset in every way in which training may read it, and raises an
`AssertionError` if two ways return different elements. The message says at which step that
happened, what was expected and what was found.

Example:
    >>> from wholegrain import testing
    >>> testing.check_source(MyDataSource("train"))
    >>> testing.check_map_dataset(MyMapDataset("train").shuffle(seed=1))
    >>> testing.check_iter_dataset(MyIterDataset("train").batch(8))
    >>> testing.check_resume(training_pipeline())
"""

from wholegrain._core.difference import difference as difference
from wholegrain.testing.backends import check_backend as check_backend
from wholegrain.testing.checks import (
    assert_equal_output_after_checkpoint as assert_equal_output_after_checkpoint,
)
from wholegrain.testing.datasets import check_iter_dataset as check_iter_dataset
from wholegrain.testing.datasets import check_map_dataset as check_map_dataset
from wholegrain.testing.resume import check_resume as check_resume
from wholegrain.testing.sources import check_source as check_source

__all__ = [
    "assert_equal_output_after_checkpoint",
    "check_backend",
    "check_iter_dataset",
    "check_map_dataset",
    "check_resume",
    "check_source",
    "difference",
]
