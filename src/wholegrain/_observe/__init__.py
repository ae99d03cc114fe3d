"""Where the time of a run goes: knows what stages declare and note, not dataset classes."""
