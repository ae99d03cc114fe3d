"""Checks the arguments of `mix`, and puts them in the order of its components."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from wholegrain._core import tree
from wholegrain._core.mixture import Mixture, integer_weights
from wholegrain._core.mixture_plan import MixturePlan
from wholegrain._core.names import kind_of
from wholegrain._core.tokens import token_count
from wholegrain._core.whole_number import whole_count
from wholegrain._graph import nodes, run
from wholegrain._graph.kinds import several
from wholegrain._graph.steering import Settings
from wholegrain.schedule import Schedule

_ENDLESS = 2**48
"""A dataset with more elements is infinite, or a part of one that is."""

STOPS = ("first", "all", "restart")


class MixOptions(NamedTuple):
    """What steers a mixture, as it was passed to `mix`."""

    unit: Any = "elements"
    stop: str = "first"
    max_repetitions: Any = None
    seed_by: str | None = None


class Components(NamedTuple):
    """The components of a mixture, and their names if they have any."""

    datasets: tuple[Any, ...]
    names: tuple[str, ...] | None


def components_of(datasets: Any, weights: Any, options: MixOptions) -> Components:
    """Return the components that were passed to `mix`."""
    names, seed_by = None, options.seed_by
    if isinstance(datasets, Mapping):
        # The order in which Grain visits them depends on jax. That of a steered mixture does not.
        is_steered = options != MixOptions() or isinstance(weights, Schedule)
        names = tuple(sorted(datasets)) if is_steered or tree.follows_jax() else tuple(datasets)
        datasets = [datasets[name] for name in names]
    datasets = several("mix", datasets)
    if seed_by is None:
        return Components(datasets, names)
    if seed_by != "name":
        raise ValueError(f'`mix` takes seed_by="name" or none, but got seed_by={seed_by!r}.')
    if names is None:
        raise ValueError(
            'seed_by="name" needs components with names: pass a mapping, such as'
            ' `mix({"web": web, "code": code}, seed_by="name")`.'
        )
    pairs = zip(datasets, names, strict=True)
    return Components(tuple(nodes.reseeded(ds, _words_of(name)) for ds, name in pairs), names)


def _words_of(name: str) -> list[int]:
    digest = hashlib.sha256(str(name).encode()).digest()
    return [int.from_bytes(digest[start : start + 4], "little") for start in (0, 4)]


def fixed_weights(names: tuple[str, ...] | None, count: int, weights: Any) -> Any:
    """Check weights that stay as they are, and return them as Grain's integers.

    A schedule is returned as it is.
    """
    if isinstance(weights, Schedule):
        return weights
    return integer_weights(count, in_order(names, weights))


def in_order(names: tuple[str, ...] | None, weights: Any) -> Sequence[float] | None:
    """Return weights, which may be a mapping, in the order of the components."""
    if weights is None or names is None:
        if isinstance(weights, Mapping):
            raise ValueError(
                f"`mix` got weights for {sorted(weights)}, but its components have no names: pass"
                " a mapping of datasets with the same keys."
            )
        in_this_order: Sequence[float] | None = weights
        return in_this_order
    if not isinstance(weights, Mapping):
        raise ValueError(
            "`mix` got a mapping of datasets, so `weights` has to be a mapping with the same keys,"
            f" but it is {kind_of(weights)}."
        )
    if set(weights) != set(names):
        raise ValueError(
            f"`mix` got datasets for {sorted(names)}, but weights for {sorted(weights)}."
        )
    return [weights[name] for name in names]


def changing_weights(names: tuple[str, ...] | None, count: int, given: Any) -> list[float]:
    """Check weights that hold for a while, so that some of them may be 0."""
    weights: Any = in_order(names, given)
    if len(weights) != count:
        raise ValueError(
            f"A mixture of {count} datasets needs as many weights, but got {list(weights)}."
        )
    if any(isinstance(weight, str) or not hasattr(weight, "__float__") for weight in weights):
        raise TypeError(f"A mixture needs numbers as weights, but got {given}.")
    plain = [float(weight) for weight in weights]
    if not all(0 <= weight < math.inf for weight in plain) or not any(plain):
        raise ValueError(
            f"A mixture needs weights that are not negative, and one that is positive, but got"
            f" {given}."
        )
    return plain


def settings_of(
    names: tuple[str, ...] | None, count: int, weights: Any, options: MixOptions
) -> Settings:
    """Check all options of a mixture, and return how it is steered."""
    unit, stop = options.unit, options.stop
    if unit not in ("elements", "tokens") and not callable(unit):
        raise ValueError(
            f'`mix` takes unit="elements", unit="tokens" or a function, but got unit={unit!r}.'
        )
    if stop not in STOPS:
        raise ValueError(f"`mix` stops at one of {STOPS}, but got stop={stop!r}.")
    measure = None if unit == "elements" else token_count if unit == "tokens" else unit
    pattern = None
    if isinstance(weights, Schedule):
        schedule = weights
        if schedule.by == "tokens" and measure is None:
            raise ValueError(
                'A schedule by tokens needs to know them: pass `unit="tokens"`, or a function that'
                " counts them."
            )
        table = tuple(changing_weights(names, count, one) for one in schedule.weights)
    else:
        constant = fixed_weights(names, count, weights)
        given = in_order(names, weights)
        plain = [float(weight) for weight in given or constant]
        schedule, table = Schedule({0: plain}), (plain,)
        if measure is None and stop == "first":
            pattern = Mixture(constant)
    most_epochs = _most_epochs(names, count, stop, options.max_repetitions)
    return Settings(names, schedule, table, measure, stop, most_epochs, pattern)


def _most_epochs(
    names: tuple[str, ...] | None, count: int, stop: str, max_repetitions: Any
) -> tuple[int | None, ...]:
    if max_repetitions is None:
        return (None if stop == "restart" else 1,) * count
    if stop != "restart":
        raise ValueError(
            "`max_repetitions` says how often a component may be read, so it needs"
            f' stop="restart", but got stop={stop!r}.'
        )
    given: Sequence[Any] = [max_repetitions] * count
    if isinstance(max_repetitions, Mapping):
        unknown = set(max_repetitions) - set(names or ())
        if unknown:
            raise ValueError(
                f"`max_repetitions` has {sorted(unknown)}, but the components are"
                f" {sorted(names) if names else 'without names'}."
            )
        given = [max_repetitions.get(name) for name in names or ()]
    checked = [None if one is None else whole_count("max_repetitions", one) for one in given]
    if any(one is not None and one < 1 for one in checked):
        raise ValueError(
            f"A component is read at least once, but got max_repetitions={max_repetitions}."
        )
    return tuple(checked)


def plan_of(settings: Settings, lengths: Sequence[int]) -> MixturePlan:
    """Return the order of a mixture of MapDatasets with the given lengths."""
    capacities: list[int | None] = [
        None if most is None or settings.stop == "first" or length >= _ENDLESS else most * length
        for length, most in zip(lengths, settings.most_epochs, strict=True)
    ]
    pieces = list(zip(settings.schedule.starts, settings.weights, strict=True))
    return MixturePlan(pieces, capacities)


def open_later(component: Any, epoch: int, context: run.RunContext) -> Any:
    """Open a later epoch of a component."""
    later: Any = nodes.at_epoch(component, epoch)
    context.observed.ids.add_share(later, component)
    with run.entered(context):
        return later.__iter__()
