"""Watching a pipeline from outside: knows the graph, and nothing here exists unless asked for."""
