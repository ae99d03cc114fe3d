"""Packing sequences into rows of a fixed length: knows arrays, knows no dataset."""
