"""Names the stage that limits a pipeline, and what would help."""

from __future__ import annotations

import dataclasses
from typing import Any

from wholegrain._core.interruption import is_interruption
from wholegrain._observe.places import Place
from wholegrain._observe.report_text import seconds
from wholegrain._observe.shown import LOOP, READERS, THREAD, THREADS, WORKERS
from wholegrain._observe.times import Times
from wholegrain._observe.waiting import Lane, is_known
from wholegrain._observe.what_if import Basis, gain_of_workers
from wholegrain._read import machine
from wholegrain.options import MultiprocessingOptions, plain_read_options

_LEAST_SHARE = 0.05
"""Data is not the limit if the training loop waits for it for less than this share of the time."""

_LEAST_RUN_S, _LEAST_WAIT_S, _LEAST_MEASURED_S = 0.1, 0.02, 0.005
"""No verdict if the run, the waiting, or the waiting measured by clocks is shorter than this."""

_BUSY_MACHINE = 1.0
"""The machine is busy if threads are queued for more seconds than this per second of CPU time."""

_LEAST_FOR_WORKERS_S = 200e-6
"""Elements that take less time than this do not arrive sooner from workers."""

_WORTH_SAYING = 1.1
"""A smaller speed-up is not worth another line of advice."""

_WHERE = {
    LOOP: "the thread of the training loop",
    READERS: "reader threads",
    THREAD: "a background thread",
    THREADS: "background threads",
    WORKERS: "worker processes",
}


@dataclasses.dataclass
class Verdict:
    """What limits a run.

    Attributes:
        limiting: The id of the limiting stage; None if there is none.
        text: The sentence about it.
        advice: What would help.
        more_workers: A number of workers that would help, if that is part of the advice.
    """

    limiting: str | None
    text: str
    advice: list[str]
    more_workers: int | None = None


def judge(lane: Lane, places: list[Place], seen: dict[str, Any], basis: Basis) -> Verdict:
    """Return which stage limits a run and what would help, if there is enough evidence."""
    whole = seen["wait"] + seen["loop"]
    if whole <= 0:
        return Verdict(None, "Nothing has been measured yet: take some elements first.", [])
    share = seen["wait"] / whole
    if whole >= _LEAST_RUN_S and share < _LEAST_SHARE:
        text = f"Data is not the limit: the training loop waited for it {share:.1%} of the time."
        return Verdict(None, text, [])
    is_little = seen["wait"] < _LEAST_WAIT_S or seen["measured_wait"] < _LEAST_MEASURED_S
    if whole < _LEAST_RUN_S or is_little:
        text = (
            f"The run is too short to tell what limits it: {seconds(whole)} since the first"
            " element. Take more elements."
        )
        return Verdict(None, text, [])
    place = max(places, key=lambda place: lane.blame[place.key])
    if place.ahead is not None and not is_known(place, seen["stages"]):
        text = (
            "The training loop waits for data, but the stages upstream of"
            f" {place.name} have not been measured yet. Take more elements."
        )
        return Verdict(None, text, [])
    key, who = place.key, lane.runs_in[place.key]
    waits = _waits(place, lane, seen)
    part = f"{lane.blame[key]:.0%} of the time that the training loop waits for data"
    text = f"{place.name} is the bottleneck: it takes {part}."
    if lane.blame[key] < 0.4:
        text = f"No stage stands out. {place.name} takes most: {part}."
    text += f" It runs in {_WHERE[who]}"
    if waits is None:
        text += (
            ". Other programs compete for the processors, so it is unclear whether it computes or"
            " waits."
        )
        return Verdict(key, text, [])
    text += f" and mostly {'waits (for I/O, a lock or a timer)' if waits else 'computes'}."
    if who == WORKERS and place.ahead is None:
        advice, more_workers = advice_for_workers(places, waits, basis)
        return Verdict(key, text, advice, more_workers)
    return Verdict(key, text, _advice(place, places, seen, waits))


def _waits(place: Place, lane: Lane, seen: dict[str, Any]) -> bool | None:
    """Return whether a stage waits for something other than a processor; None if unknown.

    Threads that compute also wait for each other, because of the GIL. In that case their process
    uses CPU time, as far as the machine gives it processors.
    """
    idle = 1 - lane.computing[place.key] / max(lane.own[place.key], 1e-9)
    if lane.runs_in[place.key] == WORKERS:
        reports = seen["workers"].values()
        cpu, wait = (sum(report[what] for report in reports) for what in ("cpu", "wait"))
        queued = max((report["queued"] for report in reports), default=0.0)
    else:
        cpu, wait, queued = seen["cpu"] - seen["loop"], seen["wait"], seen["queued"]
    # Waking up hundreds of threads a second takes CPU time, too.
    least = 0.3 if idle < 0.95 else 0.6
    if idle <= 0.5 or cpu >= least * wait:
        return False
    is_clear = idle > 0.9 and cpu < 0.15 * wait
    return True if is_clear or queued < _BUSY_MACHINE else None


def _advice(place: Place, places: list[Place], seen: dict[str, Any], waits: bool) -> list[str]:
    upstream = [p for p in places if p.key.startswith(f"{place.key}.")]
    downstream = [p for p in places if place.key.startswith(f"{p.key}.")]
    has_batches = any(getattr(p.dataset, "makes_batches", False) for p in upstream)
    if place.ahead is not None:
        line = (
            f"Passing elements on takes most of the time. Pass on fewer, larger ones: call `batch`"
            f" upstream of {place.name}."
        )
        return [] if has_batches else [line]
    has_function = getattr(place.dataset, "_transform", None) is not None
    lines = []
    if waits:
        reader = next((p for p in downstream if hasattr(p.dataset, "_read_options")), None)
        if reader is not None:
            return [_more_threads(reader)]
        if has_function and any(p.ahead == READERS for p in upstream):
            lines.append(
                f"Move {place.name} upstream of `to_iter_dataset()`, whose threads let many"
                " elements wait at the same time."
            )
        return [*lines, f"Run the pipeline in worker processes: {_workers(places[0])}."]
    each = _seconds_for_each(places[0], seen)
    if each is not None and each < _LEAST_FOR_WORKERS_S:
        lines.append(
            f"An element takes {seconds(each)}: too little for worker processes to gain anything."
        )
    elif machine.available_cpus() > 1:
        lines.append(
            f"Use more processors: run the pipeline in worker processes, {_workers(places[0])}."
        )
    if has_function and not has_batches:
        lines.append(f"Do the work of {place.name} on whole batches, downstream of `batch`.")
    return lines


def _workers(output: Place) -> str:
    count: Any = '"auto"'
    try:
        output.dataset.mp_prefetch(MultiprocessingOptions(num_workers="auto"))
    except Exception as error:  # The order of the elements depends on the number of workers here.
        if is_interruption(error):
            raise
        count = machine.available_cpus()
    return f"`mp_prefetch(MultiprocessingOptions(num_workers={count}))`"


def _more_threads(reader: Place) -> str:
    options = plain_read_options(reader.dataset._read_options)
    threads = 4 * max(options.num_threads, 4)
    buffer = max(options.prefetch_buffer_size, 4 * threads)
    return (
        "Read more elements at the same time:"
        f" `to_iter_dataset(ReadOptions(num_threads={threads}, prefetch_buffer_size={buffer}))`."
    )


def advice_for_workers(
    places: list[Place], waits: bool, basis: Basis
) -> tuple[list[str], int | None]:
    """Return what would help workers that limit a run, and how many would be better."""
    counts = [getattr(p.dataset, "_num_workers", None) for p in places if p.ahead == WORKERS]
    count = next((number for number in counts if number is not None), None)
    workers, processors = basis.groups[WORKERS], machine.available_cpus()
    more = 2 * workers.count
    gain = gain_of_workers(basis, more) if basis.is_complete else 1.0
    is_worth_more = count is not None and gain > _WORTH_SAYING
    if waits:
        line = (
            "Let more elements wait at the same time: use more workers, or more threads in each"
            " (`ReadOptions(num_threads=...)`)."
        )
    elif count is None:
        return [], None  # Their number is adapted.
    elif count < processors:
        line = f"Use more workers: there are {count}, and {processors} processors."
    elif is_worth_more:
        share = workers.computing / (workers.computing + workers.idle)
        line = f"Use more workers: those there are compute {share:.0%} of the time, and else wait."
    else:
        line = (
            f"All {processors} processors are in use: only less work for each element, or more"
            " machines, would help."
        )
    return [line], more if is_worth_more else None


def _seconds_for_each(output: Place, seen: dict[str, Any]) -> float | None:
    """Return how long the training loop waited per element; None if unknown."""
    keys = [output.key] + output.parents * (output.ahead == READERS)
    counts = [seen["stages"].get(key, Times()).elements for key in keys]
    most = max(counts)
    return seen["wait"] / most if most else None
