"""Attributes the waiting of the training loop to stages."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from wholegrain._observe.places import Place
from wholegrain._observe.shown import LOOP, READERS, WORKERS
from wholegrain._observe.times import Times

K = TypeVar("K")


@dataclasses.dataclass
class Lane:
    """By stage id: own seconds, seconds computing, seconds waiting, share of blame, and runner."""

    own: dict[str, float]
    computing: dict[str, float]
    waited: dict[str, float]
    blame: dict[str, float]
    runs_in: dict[str, str]


def share_out(places: list[Place], seen: dict[str, Any]) -> Lane:
    """Attribute the waiting of the training loop to the stages.

    The waiting of a stage for threads or workers is attributed to the stages that they run, in
    proportion to their times.
    """
    by_key = {place.key: place for place in places}
    stages: dict[str, Times] = seen["stages"]
    lane = Lane({}, {}, {}, dict.fromkeys(by_key, 0.0), {})
    _fit_to_reads(places, by_key, stages)
    for place in places:
        times = stages.get(place.key, Times())
        own, waited = times.own, times.waited
        if place.ahead is not None:
            if not getattr(place.dataset, "splits_own_time", True):
                own, waited = 0.0, waited + own
            if not is_known(place, stages):
                own, waited = own + waited, 0.0
        lane.own[place.key] = own
        lane.computing[place.key] = min(own, times.computing if times.own else own)
        lane.waited[place.key] = waited
    _say_who_runs(places[0], LOOP, by_key, stages, lane)
    spent = {
        place.key: Spent(
            lane.own[place.key],
            lane.waited[place.key] + stages.get(place.key, Times()).reading,
            place.parents,
            place.ahead is not None,
        )
        for place in places
    }
    lane.blame.update(shares_of(places[0].key, spent))
    return lane


def is_known(place: Place, stages: dict[str, Times]) -> bool:
    """Return whether any stage upstream of a stage was measured."""
    upstream = (f"{place.key}.", "inside ")
    return any(times.own for key, times in stages.items() if key.startswith(upstream))


def _fit_to_reads(places: list[Place], by_key: dict[str, Place], stages: dict[str, Times]) -> None:
    """Scale stages down to the time of the reads they are part of, which clocks made longer.

    This applies where the consumer reads by itself: then the time of the reads is known.
    """
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
    """Yield the stages upstream that one thread runs, including the first that runs ahead."""
    for key in place.parents:
        yield key
        if by_key[key].ahead is None:
            yield from _lane_of(by_key[key], by_key)


class Spent(NamedTuple):
    """The time that a stage spent.

    Args:
        own: Seconds of its own work.
        handed_on: Seconds of waiting for, or running, the stages upstream.
        inputs: The stages it reads from.
        is_ahead: Whether threads or workers run the stages upstream.
    """

    own: float
    handed_on: float
    inputs: Sequence[Any]
    is_ahead: bool


def shares_of(first: K, stages: Mapping[K, Spent], evenly: bool = False) -> dict[K, float]:
    """Return the share of each stage in the consumer's waiting. The shares add up to 1.

    The stages that one thread runs, including the first that runs ahead, share in proportion to
    the time they spent. The part that a stage spent waiting is passed on to the stages upstream
    in the same way.

    Args:
        first: The output.
        stages: The time that each stage spent.
        evenly: Whether stages without measurements get equal shares; else they get none.
    """
    shares = dict.fromkeys(stages, 0.0)

    def run_together(keys: Sequence[K]) -> Iterator[K]:
        for key in keys:
            yield key
            if not stages[key].is_ahead:
                yield from run_together(stages[key].inputs)

    def give(keys: list[K], amount: float) -> bool:
        spent = {key: stages[key].own + stages[key].handed_on for key in keys}
        whole = sum(spent.values())
        if not keys or (whole <= 0 and not evenly):
            return False
        for key in keys:
            stage = stages[key]
            part = amount * spent[key] / whole if whole > 0 else amount / len(keys)
            keeps = stage.own / spent[key] if spent[key] > 0 else float(not stage.is_ahead)
            shares[key] += part * keeps
            handed_on = part * (1 - keeps)
            if handed_on > 0 and not give(list(run_together(stage.inputs)), handed_on):
                shares[key] += handed_on
        return True

    give(list(run_together([first])), 1.0)
    return shares
