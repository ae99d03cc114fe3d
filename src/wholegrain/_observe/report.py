"""`it.report()`: where the time of a run went, which stage limits it, and what would help."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from wholegrain._core.whole_number import whole_number
from wholegrain._observe import outline, report_text
from wholegrain._observe.advice import Verdict, judge
from wholegrain._observe.places import Place, places_of
from wholegrain._observe.shown import READERS, WORKERS, Shown
from wholegrain._observe.times import Times, Total
from wholegrain._observe.waiting import Lane, share_out
from wholegrain._observe.what_if import Basis, Prediction, basis_of, predict


@dataclasses.dataclass
class StageReport:
    """One stage of a pipeline, and its measurements.

    Attributes:
        id: 0 for the output; then the stages upstream of it, depth first.
        name: Its label, such as `map(decode)`, after the name that the user gave it, if any.
        node: The dataset as a string.
        inputs: The ids of the stages it reads from.
        runs_in: What runs it: "training loop", "reader threads", "thread" or "workers".
        seconds: Its own time since the start-up, without the stages upstream of it, in all threads
            and workers together.
        share: Its share of the time of all stages. The shares add up to 1.
        idle_share: The part of its own time in which it waited for a disk, a network or a lock
            instead of computing. Time in the run queue does not count.
        wait_share: Its share of the time that the training loop waited for data.
        waited_seconds: How long it waited for the threads or workers that run the stages upstream
            of it.
        elements: How many elements it produced; None if unknown.
        nbytes: The size of those elements, estimated from some of them; None if unknown.
        is_estimated: Whether `elements` is an estimate: either it is extrapolated from a sample,
            or it comes from a worker, whose last report may be 0.25 s old.
        length: How many elements one epoch has; None if unknown or infinite.
        is_infinite: Whether the dataset is infinite, because of a `repeat()` upstream.
        path: Its path in the graph: "0" is the output, "0.1" its second input.
        padding_share: The share of the cells of its rows that are padding; None if it has none.
    """

    id: int
    name: str
    node: str
    inputs: list[int]
    runs_in: str
    seconds: float = 0.0
    share: float = 0.0
    idle_share: float = 0.0
    wait_share: float = 0.0
    waited_seconds: float = 0.0
    elements: int | None = None
    nbytes: int | None = None
    is_estimated: bool = False
    length: int | None = None
    is_infinite: bool = False
    path: str = ""
    padding_share: float | None = None


@dataclasses.dataclass(repr=False)
class Report:
    """What is slow in a pipeline, and why.

    Print it, or use its attributes. A notebook displays it as HTML.

    Attributes:
        stages: The output first, then the stages upstream of it.
        wait_seconds: How long the training loop waited for data, after the start-up.
        loop_seconds: How long the training loop did its own work, between two elements.
        start_seconds: How long the start-up took: until the first element, and until the first
            element of each worker. It counts neither as waiting nor as training.
        limiting: The id of the stage that the training loop waits for most; None if data is not
            the limit, or if there is not enough evidence yet.
        verdict: A sentence about what limits the pipeline.
        advice: Sentences about what would help.
        failures: How many elements `on_error` has tolerated; None without `on_error`.
        remote_workers: Where each worker runs that a backend has started elsewhere, and what
            fetching its elements costs.
        basis: What `what_if` computes its predictions from.
    """

    stages: list[StageReport]
    wait_seconds: float
    loop_seconds: float
    start_seconds: float
    limiting: int | None
    verdict: str
    advice: list[str]
    remote_workers: list[str] = dataclasses.field(default_factory=list)
    basis: Basis = dataclasses.field(default_factory=lambda: Basis({}, 0.0))
    failures: int | None = None

    @property
    def wait_share(self) -> float:
        """The share of its time that the training loop waited for data."""
        return self.wait_seconds / max(self.wait_seconds + self.loop_seconds, 1e-9)

    def stage(self, name: str) -> StageReport:
        """Return the first stage whose name is `name`, or else starts with it."""
        for exact in (True, False):
            for stage in self.stages:
                if stage.name == name if exact else stage.name.startswith(name):
                    return stage
        known = ", ".join(stage.name for stage in self.stages)
        raise KeyError(f"There is no stage {name!r} in the report. The stages are: {known}.")

    @property
    def headspace(self) -> float | None:
        """How many times as fast the training loop could be before data is the limit.

        Below 1, data is the limit already. None if not all threads and workers were measured yet.
        """
        data = self.basis.data_seconds
        if not data or not self.basis.is_complete:
            return None
        return self.basis.loop_seconds / data

    def what_if(
        self,
        *,
        num_workers: int | None = None,
        num_threads: int | None = None,
        prefetch_buffer_size: int | None = None,
        stage: str | None = None,
        speedup: float | None = None,
    ) -> Prediction:
        """Predict how much faster the run would be after a change, from what was measured.

        Args:
            num_workers: Another number of worker processes.
            num_threads: Another number of reader threads.
            prefetch_buffer_size: Another number of elements to read ahead.
            stage: The name of a stage that is `speedup` times as fast, or the beginning of it.
            speedup: How many times as fast that stage is.

        Example:
            >>> print(it.report().what_if(num_workers=8))
            >>> it.report().what_if(stage="map(decode)", speedup=2).speedup
        """
        numbers = {
            "num_workers": num_workers,
            "num_threads": num_threads,
            "prefetch_buffer_size": prefetch_buffer_size,
        }
        for name, value in numbers.items():
            if value is not None and whole_number(name, value) < 0:
                raise ValueError(f"`{name}` cannot be negative, but got {value}.")
        if (stage is None) != (speedup is None):
            raise ValueError("`stage` and `speedup` belong together: pass both.")
        if speedup is not None and not speedup > 0:
            raise ValueError(f"`speedup` has to be more than 0, but got {speedup}.")
        if stage is None and all(value is None for value in numbers.values()):
            raise ValueError("Say what to change, for example `what_if(num_workers=8)`.")
        if not self.basis.seconds:
            raise ValueError("Nothing has been measured yet: take some elements first.")
        chosen = None if stage is None else self.stage(stage)
        return predict(self.basis, self.stages, stage=chosen, speedup=speedup, **numbers)

    def as_dict(self) -> dict[str, Any]:
        """Return the report as plain values, for JSON."""
        return {**dataclasses.asdict(self), "wait_share": self.wait_share}

    def to_html(self) -> str:
        """Return the report as a self-contained HTML page."""
        from wholegrain._observe import report_html

        return report_html.page(self)

    def save_html(self, path: str | Path) -> None:
        """Write the report to a file as a self-contained HTML page."""
        Path(path).write_text(self.to_html(), encoding="utf-8")

    def _repr_html_(self) -> str:
        from wholegrain._observe import report_html

        return report_html.fragment(self)

    def __str__(self) -> str:
        return report_text.plain(self)

    def __repr__(self) -> str:
        return report_text.one_line(self)

    def __rich__(self) -> Any:
        return report_text.rich(self)


def report_of(iterator: Any) -> Report:
    """Return the report of the pipeline whose output is `iterator`."""
    output = observed_iterator(iterator)
    if output is None:
        raise ValueError(
            "This run was not measured: either the environment variable WHOLEGRAIN_REPORT is 0, or"
            " the iterator has no stages of this library."
        )
    seen = snapshot_of(output)
    places = list(places_of(output.observed_as, seen["inside"]))
    lane = share_out(places, seen)
    basis = basis_of(places, lane, seen)
    verdict = judge(lane, places, seen, basis)
    report = _written(places, lane, seen, verdict)
    report.basis = basis
    if verdict.more_workers is not None:
        report.advice.append(report.what_if(num_workers=verdict.more_workers).text)
    report.remote_workers = sorted(output.describe_workers())
    report.failures = output.observed.failures()
    return report


def observed_iterator(iterator: Any) -> Any:
    """Return the iterator, or the first one upstream of it, that belongs to a run of ours."""
    if getattr(iterator, "observed", None) is not None:
        return iterator
    for parent in getattr(iterator, "_parents", ()):
        found = observed_iterator(parent)
        if found is not None:
            return found
    return None


def snapshot_of(output: Any) -> dict[str, Any]:
    """Return the measurements of a run, including those of its workers."""
    output.tell_report()
    seen: dict[str, Any] = output.observed.snapshot()
    for (place, *_), report in seen["workers"].items():
        for part, times in report["stages"].items():
            seen["stages"].setdefault(_key(place, part), Times()).add(times)
        for part, total in report["totals"].items():
            seen["totals"].setdefault(_key(place, part), Total()).add(total)
        for part, about in report["inside"].items():
            seen["inside"][_key(place, part)] = about
    return seen


def _key(place: str, part: str) -> str:
    """Return the id of a stage, given its id in a worker whose pipeline is at `place`."""
    return place + part.removeprefix("0") if part.startswith("0") else part


def _written(places: list[Place], lane: Lane, seen: dict[str, Any], verdict: Verdict) -> Report:
    ids = {place.key: number for number, place in enumerate(places)}
    stages = []
    whole = sum(lane.own.values()) or 1.0
    sizes: dict[str, float] = {}
    for place in reversed(places):  # A size may be derived from the size upstream.
        times = seen["stages"].get(place.key, Times())
        sizes[place.key] = times.size or _size_after(place, sizes)
        elements = _elements(place, seen)
        own = lane.own[place.key]
        stages.append(
            StageReport(
                id=ids[place.key],
                name=place.name,
                node=str(place.dataset) if place.dataset is not None else place.name,
                inputs=[ids[key] for key in place.parents],
                runs_in=lane.runs_in[place.key],
                seconds=own,
                share=own / whole,
                idle_share=1 - min(1.0, lane.computing[place.key] / own) if own > 1e-6 else 0.0,
                wait_share=lane.blame[place.key],
                waited_seconds=lane.waited[place.key],
                elements=None if elements is None else round(elements),
                nbytes=round(elements * sizes[place.key])
                if elements and sizes[place.key]
                else None,
                is_estimated=times.clocked
                or lane.runs_in[place.key] == WORKERS
                or bool(getattr(place.dataset, "sparse", False)),
                length=outline.length(place.dataset),
                is_infinite=outline.is_infinite(place.dataset),
                path=place.key,
                padding_share=1 - times.filled / times.cells if times.cells else None,
            )
        )
    return Report(
        stages=stages[::-1],
        wait_seconds=seen["wait"],
        loop_seconds=seen["loop"],
        start_seconds=seen["start"],
        limiting=None if verdict.limiting is None else ids[verdict.limiting],
        verdict=verdict.text,
        advice=verdict.advice,
    )


def _size_after(place: Place, sizes: dict[str, float]) -> float:
    """Return the size of an element if it can be derived from the parent's; else 0."""
    if len(place.parents) != 1 or not isinstance(place.dataset, Shown):
        return 0.0
    return place.dataset._size_from(sizes.get(place.parents[0], 0.0))


def _elements(place: Place, seen: dict[str, Any]) -> float | None:
    times: Times | None = seen["stages"].get(place.key)
    if times is not None and times.elements:
        return times.elements
    if place.ahead == READERS and place.parents:
        parent = seen["stages"].get(place.parents[0])
        return parent.elements if parent is not None and parent.elements else None
    return None
