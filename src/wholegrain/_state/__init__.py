"""Positions as data: their format, counting, splitting over workers, description and files."""
