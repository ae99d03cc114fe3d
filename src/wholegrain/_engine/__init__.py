"""Threads, processes and memory: knows callables and iterators, knows no dataset."""
