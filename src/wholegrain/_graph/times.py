"""What is known of a stage: how long it took, and how many elements it made."""


class Times:
    """Seconds of all threads together.

    Attributes:
        own: At work in the stage itself.
        computing: The part of it in which a processor was busy.
        waited: Waiting for those who run ahead behind the stage.
        reading: Reading a MapDataset right here, instead of having others do it.
        elements: How many elements it made.
        size: Bytes of one element, where one was looked at.
        clocked: Whether `own` was taken with clocks that were on some of the time only.
        busy: Which share of `own` a processor was busy, where that was looked at.
    """

    # Until they are set. All workers wait for this class: as a dataclass it would take longer.
    waited = 0.0
    reading = 0.0
    elements = 0.0
    size = 0.0
    clocked = False
    busy = 1.0
    looked = 0.0

    def __init__(self, own: float = 0.0, computing: float = 0.0) -> None:
        self.own = own
        self.computing = computing

    def look(self, own: float, computing: float) -> None:
        """Note for how much of the time, which is counted elsewhere, a processor was busy."""
        self.computing += computing
        self.looked += own
        if self.looked:
            self.busy += (computing - own * self.busy) / self.looked


class Reads:
    """How many elements were read of a MapDataset: as clocks have told, and since then."""

    noted = 0
    pending = 0
