"""Positions as data: how states look, how they are counted, shared out, described and saved."""
