"""Pipelines as values: datasets, their transformations and iterators. Knows no processes."""

# Datasets and nodes need each other: the way into that circle has to be this one.
from wholegrain._graph import map_dataset as map_dataset
