"""What a benchmark file says: cases, the competitors in each, and the targets."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

Epoch = Callable[[int], Iterable[Any]]
"""Opens epoch number `k`: what it yields is what the clock is stopped over."""

Setup = Callable[[Any], Epoch]
"""Gets the competitor's library as a module, prepares (untimed), and returns its `Epoch`."""


@dataclass(frozen=True)
class Competitor:
    """One way to do the work of a case, in a process of its own.

    Attributes:
        name: What the tables call it.
        library: The module that `setup` is given.
        environment: Where it is installed, alone or with others.
        per_item: Units of work in one item it yields, such as 32 elements in a batch.
        lump: Items that are produced together; samples are whole multiples of it.
        ordered: Whether its items equal those of the case's other ordered competitors.
    """

    name: str
    library: str
    environment: str
    case: str
    setup: Setup
    per_item: float = 1
    lump: int = 1
    ordered: bool = True

    @property
    def key(self) -> str:
        return f"{self.case}/{self.name}"


@dataclass(frozen=True)
class Target:
    """What a competitor is to reach, against another one or in absolute terms.

    Attributes:
        over: The competitor to compare with, as `case/name`; None for absolute targets.
        at_least: How many times the speed of `over`.
        at_most: Seconds (or bytes) per unit, when `over` is None.
    """

    who: str
    over: str | None = None
    at_least: float | None = None
    at_most: float | None = None


@dataclass
class Case:
    """A table of its own: competitors that do the same work.

    Attributes:
        unit: What is counted.
        digest_items: How many leading items ordered competitors must agree on.
        measures: "time": the harness times the items. "seconds", "bytes": each item is itself
            a measurement, and samples are their means.
        seconds: How long a sample should take.
        lead: Items to take before the clock starts, so that it starts over full buffers and
            running threads and stops over the same: what was read ahead then cancels out.
        constants: Limits that need no process: name to seconds (or bytes) per unit.
    """

    name: str
    unit: str = "element"
    digest_items: int = 50
    measures: Literal["time", "seconds", "bytes"] = "time"
    seconds: float = 0.5
    lead: int = 0
    note: str = ""
    competitors: list[Competitor] = field(default_factory=list)
    constants: dict[str, float] = field(default_factory=dict)
    targets: list[Target] = field(default_factory=list)

    def competitor(
        self,
        *libraries: str,
        name: str | None = None,
        beside: str | None = None,
        per_item: float = 1,
        lump: int = 1,
        ordered: bool = True,
    ) -> Callable[[Setup], Setup]:
        """Enter the decorated setup function, once for each of the `libraries`.

        With `beside`, they run in environments where that is installed too.
        """

        def enter(setup: Setup) -> Setup:
            for library in libraries:
                environment = library if beside is None else f"{library}-{beside}"
                self.competitors.append(
                    Competitor(
                        name or library,
                        library,
                        environment,
                        self.name,
                        setup,
                        per_item,
                        lump,
                        ordered,
                    )
                )
            return setup

        return enter

    def constant(self, name: str, value: float) -> None:
        """Enter a limit that is known without running anything."""
        self.constants[name] = value

    def target(
        self,
        who: str = "wholegrain",
        *,
        over: str | None = None,
        in_case: str | None = None,
        at_least: float | None = None,
        at_most: float | None = None,
    ) -> None:
        """State what `who` is to reach against `over`, which may be in another case."""
        against = None if over is None else f"{in_case or self.name}/{over}"
        self.targets.append(Target(f"{self.name}/{who}", against, at_least, at_most))


@dataclass
class Benchmark:
    """One question, answered by one or more cases whose competitors run in the same rounds."""

    question: str
    cases: list[Case] = field(default_factory=list)
    prepare: Callable[[], None] | None = None

    def case(self, name: str, **settings: Any) -> Case:
        """Add a table. `settings` are the attributes of `Case`."""
        self.cases.append(Case(name, **settings))
        return self.cases[-1]

    def prepares(self, function: Callable[[], None]) -> Callable[[], None]:
        """Call the decorated function once before all competitors, to write files for them."""
        self.prepare = function
        return function

    def __iter__(self) -> Iterator[tuple[Case, Competitor]]:
        for case in self.cases:
            for competitor in case.competitors:
                yield case, competitor

    def find(self, key: str) -> tuple[Case, Competitor]:
        """Return the competitor called `case/name`, and its case."""
        return next((case, one) for case, one in self if one.key == key)
