"""The mixture in a running pipeline: what it has given, and changes of its weights.

A change of weights becomes part of the mixture's state, in its journal. Stages downstream may hold
elements of the mixture, together with states of it from before those elements. So the change is
written into the state of the whole pipeline, wherever a state of the mixture is in it, and the
pipeline is set to that state. It takes effect at a step after the held elements, so they stay the
same when they are read again.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from wholegrain._core.whole_number import whole_count
from wholegrain._graph.dataset import upstream
from wholegrain._graph.mix_options import changing_weights
from wholegrain._graph.nodes.mix import MixedIterDataset, MixedMapDataset
from wholegrain._graph.provenance import opened, step_of
from wholegrain._graph.steering import Settings, Steering
from wholegrain._observe import outline
from wholegrain._observe.mixture import MixtureReport, epochs_read, report_of
from wholegrain._observe.shown import WORKERS, runs_ahead_of
from wholegrain._state import counting
from wholegrain._state.validate import copy_state


def set_mixture_weights(
    iterator: Any, open_stages: Callable[[], Any], weights: Any, at_step: int | None
) -> int:
    """Change the weights of the mixture in a run; see `DatasetIterator.set_weights`.

    Args:
        iterator: The run.
        open_stages: Opens other stages of the same pipeline.
        weights: The weights by name, or None.
        at_step: From which step on, or None.
    """
    dataset = _mixture_with(iterator, weights)
    settings: Settings = dataset.settings
    if weights is not None:
        plain = changing_weights(settings.names, settings.count, weights)
        weights = dict(zip(settings.names or (), plain, strict=True))
    asked = None if at_step is None else whole_count("at_step", at_step)
    state = iterator.get_state()
    # Other stages that go to this state have read nothing ahead of it. So the step at which the
    # change takes effect is the same in every run.
    with contextlib.closing(open_stages()) as output:
        output.set_state(copy_state(state))
        first = _first_step(output, iterator.opened_from, dataset)
    step = first if asked is None else asked
    if step < first:
        raise ValueError(
            f"The weights cannot change at step {step}, because the mixture has been read up to"
            f" step {first}. Steps count the elements of the mixture."
        )
    known = step_of(iterator)
    iterator.set_state(_with_entry(state, settings, (step, weights)))
    iterator.course = iterator.course._replace(step=known)
    return step


def _first_step(output: Any, pipeline: Any, dataset: Any) -> int:
    """Return the first step of a mixture that stages at some position have not read."""
    path = _path_to(output, lambda one: getattr(one, "settings", None) is dataset.settings)
    if path is None:
        return _first_step_of_shares(output, pipeline, dataset)
    *downstream, found = path
    for stage in reversed(downstream):
        _check_passes_on(stage.opened_from)
        read_held = getattr(stage, "read_held", None)
        if read_held is not None:
            read_held()
    return int(found.step)


def _first_step_of_shares(output: Any, pipeline: Any, dataset: Any) -> int:
    """Return the same if workers or lanes read shares of the mixture.

    Steps count the elements of all of them, as those of schedules do. Each share is opened in this
    process, at its own position.
    """
    path = _path_to(output, lambda one: _shares_with(one, dataset) is not None)
    if path is None:
        workers = [one for one in upstream(pipeline) if runs_ahead_of(one) == WORKERS]
        inside = outline.label(workers[0]) if workers else "a stage that opens it by itself"
        raise ValueError(
            f"The mixture runs inside {inside}, where its weights cannot be changed from here. Mix"
            " after that stage: call `mp_prefetch` on the components. Or pass a schedule to `mix`."
        )
    for stage in path:
        _check_passes_on(stage.opened_from)
    shares, steps = _shares_with(path[-1], dataset), [0]
    for number, state in _states_of_shares(path[-1].get_state()):
        share = shares.share(number)
        with opened(share, state, (number, shares.count)) as iterator:
            steps.append(_first_step(iterator, share, dataset))
    return max(steps) * int(shares.count)


def _shares_with(iterator: Any, dataset: Any) -> Any:
    """Return the shares that an iterator reads, if they have a mixture; None if not."""
    stage = iterator.opened_from
    shares = getattr(stage, "shares", None)
    if shares is None or not any(one is dataset for one in upstream(stage)):
        return None
    return shares if _states_of_shares(iterator.get_state()) else None


def _states_of_shares(state: Any) -> list[tuple[int, Any]]:
    if "lane_states" in state:
        return [(int(lane), one) for lane, one in state["lane_states"].items()]
    states = state.get("iterators_in_use_states", ())
    numbers = state.get("iterators_in_use_indices", ())
    return [(int(number), one) for number, one in zip(numbers, states, strict=True)]


def _mixture_with(iterator: Any, weights: Any) -> Any:
    """Return the mixture in the pipeline whose components have these names."""
    if weights is not None and not isinstance(weights, Mapping):
        raise TypeError(f"`set_weights` takes a mapping from names to weights, but got {weights}.")
    found = list(dict.fromkeys(_mixtures_of(iterator)))
    streams = [one for one in found if isinstance(one, MixedIterDataset)]
    named = [one for one in streams if one.settings.names]
    wanted = None if weights is None else set(weights)
    fitting = [one for one in named if wanted in (None, set(one.settings.names or ()))]
    if len(fitting) == 1:
        return fitting[0]
    if len(fitting) > 1:
        raise ValueError(
            f"There are {len(fitting)} mixtures in this pipeline with such components, so it is not"
            " clear which weights to change. Give their components different names."
        )
    if named:
        names = " or ".join(str(sorted(one.settings.names or ())) for one in named)
        raise ValueError(f"The mixture needs weights for {names}, but got {weights}.")
    if streams:
        raise ValueError(
            "`set_weights` needs components with names: pass a mapping to `IterDataset.mix`."
        )
    if found:
        raise ValueError(
            "`MapDataset.mix` defines its elements by index, so its weights cannot change while it"
            " is read. Use `IterDataset.mix`, or pass a schedule."
        )
    raise ValueError("There is no mixture in this pipeline whose weights could change.")


def _mixtures_of(iterator: Any) -> Iterator[Any]:
    for stage in upstream(iterator.opened_from):
        if isinstance(stage, (MixedIterDataset, MixedMapDataset)):
            yield stage


def _path_to(output: Any, is_meant: Callable[[Any], bool]) -> tuple[Any, ...] | None:
    """Return the iterators from the output to one that is meant; None if there is none."""
    return next((path for path in _paths(output, ()) if is_meant(path[-1])), None)


def _paths(iterator: Any, before: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
    path = (*before, iterator)
    yield path
    for parent in getattr(iterator, "_parents", ()):
        yield from _paths(parent, path)


def _check_passes_on(stage: Any) -> None:
    """Raise if a stage goes back to elements from before a change of weights."""
    if getattr(stage, "is_cache", False) or getattr(stage, "epochs_inside", 1) != 1:
        raise ValueError(
            f"The weights of a mixture cannot change upstream of {outline.label(stage)}, which"
            " repeats its elements. Repeat the components instead, for example with"
            ' `mix(..., stop="restart")`.'
        )


def _with_entry(state: Any, settings: Settings, entry: tuple[int, Any]) -> Any:
    """Return a state in which the journal of a mixture has one more entry."""
    if isinstance(state, Mapping):
        changed = {key: _with_entry(value, settings, entry) for key, value in state.items()}
        if _is_state_of(state, settings):
            steered = dict(changed.get("mixture", {}))
            others = [one for one in steered.get("journal", ()) if one[0] != entry[0]]
            steered["journal"] = sorted([*others, list(entry)], key=lambda one: int(one[0]))
            changed["mixture"] = steered
        return changed
    if isinstance(state, (list, tuple)):
        return [_with_entry(value, settings, entry) for value in state]
    return state


def _is_state_of(state: Any, settings: Settings) -> bool:
    if not isinstance(state, Mapping) or not {"parents", "index", "stop"} <= set(state):
        return False
    parents = state["parents"]
    if settings.names is not None:
        return isinstance(parents, Mapping) and {*parents} <= {*settings.names}
    return isinstance(parents, (list, tuple)) and len(parents) == settings.count


# What it has given.


def describe_mixture(iterator: Any) -> MixtureReport:
    """Return what the mixture in a pipeline has given; see `DatasetIterator.mixture`."""
    for dataset in _mixtures_of(iterator):
        if isinstance(dataset, MixedIterDataset):
            return _describe_stream(dataset, iterator.get_state())
        mixed: MixedMapDataset[Any] = dataset
        return mixed.describe(_index_in(mixed, iterator))
    raise ValueError("There is no mixture in this pipeline.")


def _index_in(mixture: MixedMapDataset[Any], iterator: Any) -> int:
    """Return the next index of a mixture that is read in order."""
    read: Any = mixture
    while not getattr(read, "is_bridge", False):
        (read,) = [one for one in upstream(iterator.opened_from) if read in one.parents][:1]
        if not getattr(read, "is_bridge", False) and read.checkpoint.position != "parent":
            raise ValueError(
                "How much of each component was read does not follow from the position after"
                f" {outline.label(read)}. Call `to_iter_dataset()` before that stage, or mix"
                " IterDatasets."
            )
    try:
        return counting.read_until(iterator.get_state())
    except KeyError:
        raise ValueError("The position has no index, because workers read the mixture.") from None


def _describe_stream(dataset: MixedIterDataset[Any], state: Any) -> MixtureReport:
    settings = dataset.settings
    found = list(_states_of(state, settings))  # One for each worker that mixes its share.
    steps, count = 0, settings.count
    elements, tokens, ends = [0] * count, [0] * count, [0] * count
    weights = [0.0] * count
    for one in found:
        index = int(one["index"])
        if one["stop"] and settings.stop == "first":
            index -= 1  # The step at which the end was found.
        steering = Steering(settings, len(found))
        steering.go_to(index, one.get("mixture", {}))
        steps += index
        weights = list(map(max, weights, steering.weights_at(index)))
        elements = [a + b for a, b in zip(elements, steering.elements, strict=True)]
        tokens = [a + b for a, b in zip(tokens, steering.tokens, strict=True)]
        ends = list(map(max, ends, steering.epochs))
    return report_of(
        steps,
        range(count) if settings.names is None else settings.names,
        weights,
        elements,
        None if settings.measure is None else tokens,
        [
            epochs_read(parent, given, ended if settings.stop != "first" else None)
            for parent, given, ended in zip(dataset.parents, elements, ends, strict=True)
        ],
    )


def _states_of(state: Any, settings: Settings) -> Iterator[Any]:
    if _is_state_of(state, settings):
        yield state
    elif isinstance(state, Mapping):
        for value in state.values():
            yield from _states_of(value, settings)
    elif isinstance(state, (list, tuple)):
        for value in state:
            yield from _states_of(value, settings)
