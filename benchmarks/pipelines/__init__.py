"""Random realistic pipelines: drawn from a seed, built with either library or as a plain loop."""
