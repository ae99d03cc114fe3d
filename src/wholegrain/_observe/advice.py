"""Which stage limits a pipeline, in words, and what would help."""

from __future__ import annotations

import dataclasses
import math
import os
from typing import Any

from wholegrain._observe.blame import LOOP, READERS, WORKERS, Lane, Place

_HARDLY = 0.05
"""A training loop that waits for less than this share of its time does not wait for data."""


@dataclasses.dataclass
class Verdict:
    """The stage that limits, if one does, the sentence that says so, and what would help."""

    limiting: str | None
    text: str
    advice: list[str]


def judge(lane: Lane, places: list[Place], seen: dict[str, Any]) -> Verdict:
    """Say which stage limits a run, and what would help."""
    whole = seen["wait"] + seen["loop"]
    if whole <= 0 or not any(lane.blame.values()):
        return Verdict(None, "Nothing has been seen yet: take some elements first.", [])
    share = seen["wait"] / whole
    if share < _HARDLY:
        return Verdict(
            None,
            f"The training loop is the bottleneck: it waited for data {share:.1%} of the time.",
            ["Nothing is to be gained in the pipeline."],
        )
    place = max(places, key=lambda place: lane.blame[place.key])
    key = place.key
    who = lane.runs_in[key]
    busy = sum(lane.computing[k] for k in lane.computing if lane.runs_in[k] == who)
    # Threads that share the interpreter wait for each other: then a processor is what is short.
    idle = 1 - lane.computing[key] / max(lane.own[key], 1e-9)
    idles = idle > 0.9 or (idle > 0.5 and (who == WORKERS or busy < 0.6 * whole))
    does = "waits, as for a disk or a network" if idles else "computes"
    where = "training loop's own thread" if who == LOOP else who
    text = (
        f"{place.name} is the bottleneck: {lane.blame[key]:.0%} of the time that the training loop"
        f" waits for data. It runs in the {where}, and mostly {does}."
    )
    return Verdict(key, text, _advice(place, lane, places, idles, share))


def _advice(place: Place, lane: Lane, places: list[Place], idles: bool, share: float) -> list[str]:
    who = lane.runs_in[place.key]
    processors = _processors()
    is_read = any(p.ahead == READERS and place.key.startswith(f"{p.key}.") for p in places)
    wanted = max(1, min(processors, math.ceil(1 / max(1 - share, 0.02))))
    workers = f"`mp_prefetch(MultiprocessingOptions(num_workers={wanted}))`"
    if place.ahead == WORKERS and not _is_known(place, lane):
        return ["Nothing is known yet of what its workers do: ask again after more elements."]
    if place.ahead is not None:
        line = (
            "Handing elements over takes most of the time: hand over fewer and larger ones, for"
            " instance by `batch` in front of it."
        )
        return [line]
    if who == WORKERS:
        return _advice_for_workers(places, idles, processors)
    if idles and is_read:
        line = (
            "Have more of it under way at a time: more threads and a larger buffer, as in"
            " `to_iter_dataset(ReadOptions(num_threads=64, prefetch_buffer_size=1000))`."
        )
        return [line, "Larger files, or a copy on a local disk, would make each wait shorter."]
    if idles:
        line = (
            f"Put {place.name} in front of `to_iter_dataset()`: threads then do its waiting, many"
            " at a time."
        )
        return [line, f"Or run the pipeline in workers: {workers}."]
    lines = []
    if processors > 1:
        alone = "one thread" if who == LOOP else "threads that share one interpreter"
        lines.append(f"It is work for a processor, done by {alone}: use workers, {workers}.")
    else:
        lines.append("There is one processor: only less work would help.")
    lines.append(
        f"Or make {place.name} cheaper: do on whole batches, or once and for all, what can."
    )
    return lines


def _is_known(place: Place, lane: Lane) -> bool:
    """Whether anything is known of those who run ahead behind a stage."""
    return any(own for key, own in lane.own.items() if key.startswith(f"{place.key}."))


def _advice_for_workers(places: list[Place], idles: bool, processors: int) -> list[str]:
    counts = [getattr(p.dataset, "_num_workers", None) for p in places if p.ahead == WORKERS]
    count = next((number for number in counts if number is not None), None)
    if idles:
        line = (
            "The workers wait: more of them, or more threads in each"
            " (`ReadOptions(num_threads=...)`), have more of it under way at a time."
        )
        return [line]
    if count is not None and count < processors:
        return [f"Use more workers: {count} are at work, and there are {processors} processors."]
    if count is None:
        return ["As many workers as help are found: only less work, or more machines, would help."]
    line = (
        f"There are as many workers as processors ({processors}): only less work, or more"
        " machines, would help."
    )
    return [line]


def _processors() -> int:
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:
        return os.cpu_count() or 1
