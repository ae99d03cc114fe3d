"""Packing sequences into rows of a fixed length. Knows arrays, but not datasets."""
