"""Pipelines as values: datasets, their transformations and iterators. Knows no processes."""

# Datasets and nodes import each other. The cycle resolves only if this module is imported first.
from wholegrain._graph import map_dataset as map_dataset
