"""Predicts how fast a pipeline would be with other settings, from what was measured.

The stages of a pipeline run in groups: in the thread of the training loop, in reader threads, in a
background thread, in workers. The groups work at the same time, so the slowest of them determines
the time of the run. The time of a group follows from the work of its stages and from how many
threads or processes share it: all of them wait at the same time, but threads compute one after the
other, as far as was measured, and workers on as many processors as there are.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from wholegrain._observe.places import Place
from wholegrain._observe.shown import LOOP, READERS, WORKERS
from wholegrain._observe.times import Times
from wholegrain._observe.waiting import Lane
from wholegrain._read import machine
from wholegrain.options import plain_read_options

_LEAST_PART = 0.25
"""Reports of workers about less than this part of the elements say nothing about the others."""


@dataclasses.dataclass
class Group:
    """Stages that the same threads or processes run.

    Args:
        computing: The seconds in which they computed, in all threads and processes together.
        idle: The seconds in which they waited for a disk, a network or a lock.
        count: How many threads or processes there are.
        processors: How many of them can compute at the same time.
    """

    computing: float = 0.0
    idle: float = 0.0
    count: int = 1
    processors: float = 1.0

    @property
    def seconds(self) -> float:
        """The time that the group needs for its work."""
        together = min(self.count, self.processors)
        return max(self.computing / together, (self.computing + self.idle) / self.count)


@dataclasses.dataclass
class Basis:
    """What a prediction is computed from.

    Args:
        groups: The groups of stages, by what runs them.
        loop_seconds: The training loop's own time.
        num_threads: The limit of reader threads.
        buffer_size: The limit of elements that are read ahead.
    """

    groups: dict[str, Group]
    loop_seconds: float
    num_threads: int = 0
    buffer_size: int = 0

    def copy(self) -> Basis:
        """Return a basis that can be changed without changing this one."""
        groups = {name: dataclasses.replace(group) for name, group in self.groups.items()}
        return dataclasses.replace(self, groups=groups)

    @property
    def seconds(self) -> float:
        """The time of the run: that of the slowest group. The loop's thread does both."""
        own = self.groups.get(LOOP, Group()).seconds
        return max([self.loop_seconds + own, *(group.seconds for group in self.groups.values())])

    @property
    def is_complete(self) -> bool:
        """Whether every group of stages that runs ahead was measured."""
        return all(group.computing + group.idle > 0 for group in self.groups.values())

    @property
    def data_seconds(self) -> float:
        """The time that the data would need if the training loop took none."""
        return max((group.seconds for group in self.groups.values()), default=0.0)


@dataclasses.dataclass
class Prediction:
    """What a change would give.

    Attributes:
        speedup: How many times as fast the run would be.
        wait_share: The share of the time that the training loop would wait for data.
        text: The same as a sentence.
    """

    speedup: float
    wait_share: float
    text: str

    def __str__(self) -> str:
        return self.text


def basis_of(places: list[Place], lane: Lane, seen: dict[str, Any]) -> Basis:
    """Return what the predictions for a run are computed from."""
    groups: dict[str, Group] = {}
    whole = seen["wait"] + seen["loop"]
    scales = _scales_of_workers(places, seen["stages"])
    for place in places:
        group = groups.setdefault(lane.runs_in[place.key], Group())
        scale = next((s for key, s in scales.items() if place.key.startswith(f"{key}.")), 1.0)
        computing = scale * lane.computing[place.key]
        group.computing += computing
        group.idle += max(0.0, scale * lane.own[place.key] - computing)
    basis = Basis(groups, seen["loop"])
    for place in places:
        options = getattr(place.dataset, "_read_options", None)
        if options is not None and not basis.num_threads:
            limits = plain_read_options(options)
            basis.num_threads, basis.buffer_size = limits.num_threads, limits.prefetch_buffer_size
    if READERS in groups:
        readers = groups[READERS]
        readers.count = max(1, min(basis.num_threads, basis.buffer_size))
        # More than one processor was busy only if the functions release the GIL.
        readers.processors = max(1.0, readers.computing / max(whole, 1e-9))
    if WORKERS in groups:
        groups[WORKERS].count = max(1, len(seen["workers"]))
        groups[WORKERS].processors = machine.available_cpus()
    return basis


def _scales_of_workers(places: list[Place], stages: dict[str, Times]) -> dict[str, float]:
    """Return for each stage with workers by how much their measured work is to be scaled.

    Workers have made elements that the consumer has not got yet, and their last reports are some
    time old. So their work counts for each element, times the elements that the consumer got. It
    counts as not measured if they have reported too few elements.
    """
    scales: dict[str, float] = {}
    for place in places:
        if place.ahead != WORKERS or len(place.parents) != 1 or place.key not in stages:
            continue
        taken = stages[place.key].elements
        made = stages.get(place.parents[0], Times()).elements
        if taken and made:
            scales[place.key] = taken / made if made >= _LEAST_PART * taken else 0.0
    return scales


def gain_of_workers(basis: Basis, num_workers: int) -> float:
    """Return how many times as fast the run would be with another number of workers."""
    other = basis.copy()
    _with_workers(other, num_workers)
    return basis.seconds / other.seconds if other.seconds > 0 else 1.0


def predict(
    basis: Basis,
    stages: list[Any],
    *,
    num_workers: int | None,
    num_threads: int | None,
    prefetch_buffer_size: int | None,
    stage: Any,
    speedup: float | None,
) -> Prediction:
    """Return what the given changes would give together."""
    other = basis.copy()
    if num_threads is not None:
        other.num_threads = num_threads
    if prefetch_buffer_size is not None:
        other.buffer_size = prefetch_buffer_size
    changes = []
    if stage is not None and speedup is not None:
        group = other.groups[stage.runs_in]
        saved = stage.seconds * (1 - 1 / speedup)
        idle = saved * stage.idle_share
        group.idle = max(0.0, group.idle - idle)
        group.computing = max(0.0, group.computing - (saved - idle))
        changes.append(f"{stage.name} {speedup:g} times as fast")
    if num_threads is not None or prefetch_buffer_size is not None:
        changes += [
            f"{name}={value}"
            for name, value in (
                ("num_threads", num_threads),
                ("prefetch_buffer_size", prefetch_buffer_size),
            )
            if value is not None
        ]
        if READERS in other.groups:
            readers = other.groups[READERS]
            readers.count = max(1, min(other.num_threads, other.buffer_size))
            readers.processors = min(readers.processors, readers.count)
    if num_workers is not None:
        _with_workers(other, num_workers)
        changes.append(f"num_workers={num_workers}")
    before, after = basis.seconds, other.seconds
    gain = before / after if after > 0 else math.inf
    wait_share = 1 - other.loop_seconds / after if after > 0 else 0.0
    slowest = max(stages, key=lambda one: one.wait_share, default=None)
    measured = "" if slowest is None else f", {slowest.name} takes {slowest.wait_share:.0%} of it"
    now = 1 - basis.loop_seconds / before if before > 0 else 0.0
    return Prediction(
        gain,
        max(0.0, wait_share),
        f"With {' and '.join(changes)}: {gain:.2g}x (measured basis: the training loop waits"
        f" {now:.0%} of the time{measured}; it would wait {max(0.0, wait_share):.0%}).",
    )


def _with_workers(basis: Basis, num_workers: int) -> None:
    """Move the stages of all groups into workers, or change the number of workers."""
    if not num_workers:
        moved = basis.groups.pop(WORKERS, Group())
        loop = basis.groups.setdefault(LOOP, Group())
        loop.computing += moved.computing
        loop.idle += moved.idle
        return
    workers = basis.groups.setdefault(WORKERS, Group())
    if not workers.computing and not workers.idle:
        for name in [name for name in basis.groups if name != WORKERS]:
            group = basis.groups.pop(name)
            workers.computing += group.computing
            # The threads of a worker still wait at the same time.
            workers.idle += group.idle / group.count
    workers.count = num_workers
    workers.processors = machine.available_cpus()
