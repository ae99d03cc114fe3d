"""What is known of a stage: how long it took, and how many elements it made."""

from collections.abc import Iterable, Mapping


class Times:
    """Seconds of all threads together.

    Attributes:
        own: At work in the stage itself.
        computing: The part of it in which a processor was busy.
        waited: Waiting for the threads or workers that run what is upstream of the stage.
        reading: Reading a MapDataset right here, instead of having others do it.
        elements: How many elements it made.
        first_elements: How many of those of a stage with clocks it made during the start-up.
        size: Bytes of one element, where one was looked at.
        clocked: Whether `own` was taken with clocks that were on some of the time only.
        busy: Which share of `own` a processor was busy, where that was looked at.
    """

    # Until they are set. All workers wait for this class: as a dataclass it would take longer.
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
        """Note for how much of the time, which is counted elsewhere, a processor was busy."""
        self.looked += own
        if self.looked:
            self.busy += (computing - own * self.busy) / self.looked

    def end_start_up(self) -> None:
        """Forget the seconds of the start-up: they say nothing of how it goes on."""
        self.own = self.computing = self.waited = self.reading = self.looked = 0.0
        if self.clocked:
            self.first_elements += self.elements
            self.elements = 0.0


class Reads:
    """How many elements were read of a MapDataset: as clocks have told, and since then."""

    noted = 0
    pending = 0


def extrapolate(
    stages: Mapping[str, Times],
    factor: float,
    more_elements: float,
    reads: Iterable[tuple[str, Reads]],
) -> None:
    """Have what was seen for a part of the time stand for the whole of it.

    Args:
        stages: What was seen of each stage, by its id.
        factor: How many times as long the run was as what clocks saw.
        more_elements: How many times as many elements there were.
        reads: The MapDatasets that were read, by their ids.
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
