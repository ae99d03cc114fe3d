"""Iterators in worker processes: knows messages, states and errors, nothing of datasets."""
