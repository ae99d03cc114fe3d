"""Which stages the training loop waits for."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

from wholegrain._observe import outline
from wholegrain._observe.shown import LOOP, READERS, WORKERS, runs_ahead_of
from wholegrain._observe.times import Times


@dataclasses.dataclass
class Place:
    """A stage of the graph.

    Args:
        key: By what it is known.
        dataset: The stage; None for one that was opened on the way.
        parents: The keys of those it reads from.
    """

    key: str
    dataset: Any
    parents: list[str]

    @property
    def name(self) -> str:
        """What it does, as its user would call it."""
        if self.dataset is None:
            return f"{self.key.removeprefix('inside ')} (inside)"
        return outline.label(self.dataset)

    @property
    def ahead(self) -> str | None:
        """Who runs what is upstream of it, if that is not whoever runs the stage itself."""
        return runs_ahead_of(self.dataset)


@dataclasses.dataclass
class Lane:
    """By stage: own seconds and those of them spent computing, waiting, blame, and who runs it."""

    own: dict[str, float]
    computing: dict[str, float]
    waited: dict[str, float]
    blame: dict[str, float]
    runs_in: dict[str, str]


def share_out(places: list[Place], seen: dict[str, Any]) -> Lane:
    """Share the waiting of the training loop out among the stages.

    A stage that waits for threads or workers waits for the stages that those run, in proportion to
    the time they take.
    """
    by_key = {place.key: place for place in places}
    stages: dict[str, Times] = seen["stages"]
    lane = Lane({}, {}, {}, dict.fromkeys(by_key, 0.0), {})
    _fit_to_reads(places, by_key, stages)
    for place in places:
        times = stages.get(place.key, Times())
        own, waited = times.own, times.waited
        if place.ahead is not None:
            if seen.get("is_watched") or not place.dataset.splits_own_time:
                own, waited = 0.0, waited + own
            if not is_known(place, stages):
                own, waited = own + waited, 0.0
        lane.own[place.key] = own
        lane.computing[place.key] = min(own, times.computing if times.own else own)
        lane.waited[place.key] = waited
    _say_who_runs(places[0], LOOP, by_key, stages, lane)
    _give(places[0].key, 1.0, by_key, stages, lane)
    return lane


def is_known(place: Place, stages: dict[str, Times]) -> bool:
    """Whether anything is known of what is upstream of a stage."""
    upstream = (f"{place.key}.", "inside ")
    return any(times.own for key, times in stages.items() if key.startswith(upstream))


def _fit_to_reads(places: list[Place], by_key: dict[str, Place], stages: dict[str, Times]) -> None:
    """Where who asks also reads, that time is known, and clocks within it made it longer."""
    for place in places:
        times = stages.get(place.key, Times())
        if place.ahead != READERS or times.waited > 0.5 * times.reading:
            continue
        upstream = [stages[key] for key in _lane_of(place, by_key) if key in stages]
        work = sum(stage.own for stage in upstream)
        if work > times.reading > 0:
            for stage in upstream:
                stage.own *= times.reading / work
                stage.computing *= times.reading / work


def _say_who_runs(
    place: Place, who: str, by_key: dict[str, Place], stages: dict[str, Times], lane: Lane
) -> None:
    lane.runs_in[place.key] = who
    upstream = who
    if place.ahead is not None and who != WORKERS:  # Threads of a worker are part of it.
        times = stages.get(place.key, Times())
        reads_here = place.ahead == READERS and times.reading >= times.waited
        upstream = who if reads_here else place.ahead
    for key in place.parents:
        _say_who_runs(by_key[key], upstream, by_key, stages, lane)


def _lane_of(place: Place, by_key: dict[str, Place]) -> Iterator[str]:
    """Return the stages upstream of one, up to and with those that have threads or workers."""
    for key in place.parents:
        yield key
        if by_key[key].ahead is None:
            yield from _lane_of(by_key[key], by_key)


def _give(
    first: str, amount: float, by_key: dict[str, Place], stages: dict[str, Times], lane: Lane
) -> None:
    """Give an amount of blame to the stages that one thread runs, from `first` on."""
    keys = [first]
    if by_key[first].ahead is None:
        keys += _lane_of(by_key[first], by_key)
    _divide(keys, amount, by_key, stages, lane)


def _divide(
    keys: list[str],
    amount: float,
    by_key: dict[str, Place],
    stages: dict[str, Times],
    lane: Lane,
) -> None:
    spent = {key: lane.own[key] + lane.waited[key] + _reading(stages, key) for key in keys}
    whole = sum(spent.values())
    if whole <= 0:
        return
    for key in keys:
        lane.blame[key] += amount * lane.own[key] / whole
        handed_on = amount * (spent[key] - lane.own[key]) / whole
        if handed_on > 0:
            upstream = list(_lane_of(by_key[key], by_key))
            if sum(lane.own[k] + lane.waited[k] + _reading(stages, k) for k in upstream) > 0:
                _divide(upstream, handed_on, by_key, stages, lane)
            else:
                lane.blame[key] += handed_on


def _reading(stages: dict[str, Times], key: str) -> float:
    return stages.get(key, Times()).reading
