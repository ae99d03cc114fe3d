"""The DataLoader: a pipeline made of a source, a sampler and operations."""
