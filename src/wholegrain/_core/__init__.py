"""Numbers, trees, permutations and random streams: imports numpy, knows no dataset."""
