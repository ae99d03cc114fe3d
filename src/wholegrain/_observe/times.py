"""The measurements of a stage: its times and the number of its elements."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

NOTHING_YET = 2**63 - 1
"""The minimum time of a stage that has produced no element yet."""


class Times:
    """The times of a stage in seconds, summed over all threads. Reports are made of them.

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
        cells: How many cells its padded or packed rows have.
        filled: How many of them are not padding.
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
    filled = 0
    cells = 0

    def __init__(self, own: float = 0.0, computing: float = 0.0) -> None:
        self.own = own
        self.computing = computing

    def look(self, own: float, computing: float) -> None:
        """Update `busy` with a sample. The caller adds its time to `own`."""
        self.looked += own
        if self.looked:
            self.busy += (computing - own * self.busy) / self.looked

    def add(self, other: Times, factor: float = 1.0) -> None:
        """Add the times of the same stage in another chunk or process."""
        self.own += other.own * factor
        self.computing += other.computing * factor
        self.waited += other.waited
        self.reading += other.reading
        self.elements += other.elements * factor
        self.size = other.size or self.size
        self.clocked = self.clocked or other.clocked
        self.note_cells(other.filled, other.cells)

    def note_cells(self, filled: int, cells: int) -> None:
        """Count the cells of padded or packed rows."""
        self.filled += filled
        self.cells += cells

    def end_start_up(self) -> None:
        """Discard the times of the start-up, which are not representative of the run."""
        self.own = self.computing = self.waited = self.reading = self.looked = 0.0
        if self.clocked:
            self.first_elements += self.elements
            self.elements = 0.0


class Total:
    """What a stage of a tracked run did since its beginning. The execution summary shows it.

    Attributes:
        name: The name of the stage.
        own_ns: Its own time in nanoseconds, without the stages upstream of it.
        min_ns: The minimum of it for one element.
        max_ns: The maximum of it for one element.
        elements: How many elements it produced.
        nbytes: The bytes of those elements, if it runs ahead or is read by a stage that does.
        spec: The shapes and dtypes of its elements.
    """

    name = ""
    own_ns = 0
    min_ns = NOTHING_YET
    max_ns = 0
    elements = 0
    nbytes = 0
    spec = ""

    def record(self, own_ns: int, elements: int, nbytes: int) -> None:
        """Add the time that the stage took for some elements."""
        self.own_ns += own_ns
        if elements:
            self.min_ns = min(self.min_ns, own_ns // elements)
            self.max_ns = max(self.max_ns, own_ns // elements)
            self.elements += elements
            self.nbytes += nbytes

    def add(self, other: Total) -> None:
        """Add what the same stage did in another process."""
        self.name = other.name or self.name
        self.own_ns += other.own_ns
        self.min_ns = min(self.min_ns, other.min_ns)
        self.max_ns = max(self.max_ns, other.max_ns)
        self.elements += other.elements
        self.nbytes += other.nbytes
        self.spec = self.spec or other.spec


class Reads:
    """The elements read of a MapDataset: until the last measured chunk, and since then."""

    noted = 0
    pending = 0
    not_before = 0.0  # When to measure again, if elements are slow; several readers may read.


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
