"""What the elements of a dataset look like, without reading any."""

from typing import Any

from wholegrain._graph.iter_dataset import IterDataset
from wholegrain._graph.map_dataset import MapDataset


def get_element_spec(ds: MapDataset[Any] | IterDataset[Any]) -> Any:
    """Return a tree of objects with `shape` and `dtype`, like the elements of `ds`.

    Transformations have to say what they do with a method `output_spec(input_spec)`.

    Raises:
        NotImplementedError: If a stage cannot know, such as a source of any objects.
        ValueError: If a transformation does not say what it does.
    """
    return ds._element_spec
