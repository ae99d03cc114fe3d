"""Numbers, trees, permutations and random streams: knows numpy, knows no dataset."""
