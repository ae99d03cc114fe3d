"""Where the time of a run goes. Knows what stages declare and record, but no dataset classes."""
