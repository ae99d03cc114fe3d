"""The measurements of a stage: its times and the number of its elements."""

from collections.abc import Iterable, Mapping


class Times:
    """The times of a stage in seconds, summed over all threads.

    Attributes:
        own: The work of the stage itself.
        computing: The part of `own` in which it used a processor.
        waited: Waiting for the threads or workers that run the stages upstream.
        reading: Reading a MapDataset in the calling thread instead of in reader threads.
        elements: How many elements it produced.
        first_elements: How many of them were produced during the start-up, if `clocked`.
        size: The bytes of one element, if one was measured.
        clocked: Whether `own` was measured by clocks that were on only part of the time.
        busy: The share of `own` in which it used a processor, if that was measured.
    """

    # Defaults. Not a dataclass, because every worker imports this module when it starts.
    waited = 0.0
    reading = 0.0
    elements = 0.0
    first_elements = 0.0
    size = 0.0
    clocked = False
    busy = 1.0
    looked = 0.0

    def __init__(self, own: float = 0.0, computing: float = 0.0) -> None:
        self.own = own
        self.computing = computing

    def look(self, own: float, computing: float) -> None:
        """Update `busy` with a sample. The caller adds its time to `own`."""
        self.looked += own
        if self.looked:
            self.busy += (computing - own * self.busy) / self.looked

    def end_start_up(self) -> None:
        """Discard the times of the start-up, which are not representative of the run."""
        self.own = self.computing = self.waited = self.reading = self.looked = 0.0
        if self.clocked:
            self.first_elements += self.elements
            self.elements = 0.0


class Reads:
    """The elements read of a MapDataset: until the last measured chunk, and since then."""

    noted = 0
    pending = 0


def extrapolate(
    stages: Mapping[str, Times],
    factor: float,
    more_elements: float,
    reads: Iterable[tuple[str, Reads]],
) -> None:
    """Extrapolate measurements of a part of the run to the whole run.

    Args:
        stages: The times of each stage, by its id.
        factor: The time of the run, divided by the measured time.
        more_elements: The number of elements, divided by the measured number.
        reads: The reads of each MapDataset, by its id.
    """
    for times in stages.values():
        if times.clocked:
            times.own *= factor
            times.computing = times.own * times.busy
            times.elements = times.elements * more_elements + times.first_elements
    for top, read in reads:
        more = 1 + read.pending / read.noted if read.noted else 1.0
        for place, times in stages.items():
            if place == top or place.startswith(f"{top}."):
                times.own *= more
                times.computing *= more
                times.elements *= more
