"""Apply transformation objects to a dataset according to their type."""

from collections.abc import Sequence
from typing import Any

from wholegrain import transforms
from wholegrain._graph import nodes
from wholegrain._graph.map_dataset import MapDataset


def apply_transformations(
    ds: Any, transformations: transforms.Transformation | transforms.Transformations
) -> Any:
    """Apply one transformation object to a dataset, or a sequence of them in turn.

    Args:
        ds: A MapDataset or an IterDataset.
        transformations: Instances of the classes in `wholegrain.transforms`.
    """
    if not isinstance(transformations, Sequence):
        transformations = (transformations,)
    for transformation in transformations:
        ds = _apply_one(ds, transformation)
    return ds


def _apply_one(ds: Any, transformation: Any) -> Any:
    match transformation:
        case transforms.Batch(batch_size, drop_remainder, batch_fn):
            return ds.batch(batch_size, drop_remainder=drop_remainder, batch_fn=batch_fn)
        case transforms.Map():
            return ds.map(transformation)
        case transforms.RandomMap():
            return ds.random_map(transformation)
        case transforms.MapWithIndex():
            return ds.map_with_index(transformation)
        case transforms.FlatMap():
            return _flat_map(ds, transformation)
        case transforms.Filter():
            return ds.filter(transformation)
    raise NotImplementedError(
        f"`apply` takes objects of the classes in `transforms`, but got {transformation!r}."
        " Pass a function to `ds.map(function)` instead."
    )


def _flat_map(ds: Any, transformation: transforms.FlatMap) -> Any:
    if isinstance(ds, MapDataset):
        return nodes.FlatMapMapDataset(ds, transformation)
    return nodes.FlatMapIterDataset(ds, transformation)
