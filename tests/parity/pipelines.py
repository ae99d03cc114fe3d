"""Random pipelines, for hypothesis.

They stay away from what Grain gets wrong, since there the two packages differ on purpose:

- lengths at which its shuffle is no permutation (all are short);
- functions and batches that raise: where Grain stands afterwards varies;
- interleaving a dataset of datasets with gaps (lists of datasets only);
- repeating forever what may be empty, repeating what is interleaved (Grain goes on to call the
  datasets exhausted), and repeating what was cached before (what a cache holds shows in its state);
- window shuffles by index whose windows do not divide the length, and their negative indices;
- seeds above `multithread_prefetch`, which Grain does not see;
- weights of a named mixture in another order than its datasets;
- elements of unequal structure, or missing ones, in a batch;
- `sequential_slice` behind stages that look at lengths or indices;
- batches of an infinite MapDataset, whose length Grain computes in floating point.
"""

import dataclasses
import math
import sys
from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

from tests.parity.recipes import Recipe

Draw = Callable[[st.SearchStrategy[Any]], Any]

# Grain walks through 65536 places to shuffle n elements, about so many microseconds.
_SHUFFLE_COST = 78_000.0
_COST_LIMIT = 12_000.0
_LONGEST = 150
_WEIGHTS = st.sampled_from([0.1, 0.25, 0.3, 0.5, 0.7, 1, 2, 3, 5])
_SEEDS = st.one_of(st.integers(0, 100), st.sampled_from([2**31, 2**32 - 1]))
_ONE_TO_ONE = {
    *("range", "source", "map", "filter", "map_with_index", "random_map", "seed", "shuffle"),
    *("to_iter_dataset", "flat_map", "with_options", "limit"),
}


@dataclasses.dataclass(frozen=True)
class Draft:
    """A recipe, and what is known about its elements."""

    recipe: Recipe
    spec: Any = "int"
    """The structure of the elements; None if they differ, so that they cannot be stacked."""
    length: int = 0
    """Of a MapDataset. Of an IterDataset the number of elements, or -1 if not known."""
    sparse: bool = False
    """Of a MapDataset: elements may be missing. Of an IterDataset: elements may be None."""
    batchable: bool = True
    seeded: bool = False
    hides_seed: bool = False
    cost: float = 0.0
    """Microseconds that Grain takes for an element, as far as they matter."""

    @property
    def infinite(self) -> bool:
        return self.length > 2**53

    @property
    def stackable(self) -> bool:
        return not any(word in str(self.spec) for word in ("ragged", "None"))

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(repr(self.recipe))  # In hypothesis's reports.

    def then(self, op: str, /, args: dict[str, Any] | None = None, **known: Any) -> "Draft":
        """Add a stage, and what is known after it."""
        return dataclasses.replace(self, recipe=Recipe(op, args or {}, (self.recipe,)), **known)


def _joined(op: str, parts: list[Draft], args: dict[str, Any], **known: Any) -> Draft:
    """Join several drafts, and what is known about all of them."""
    specs = {str(part.spec) for part in parts}
    common: dict[str, Any] = {
        "spec": parts[0].spec if len(specs) == 1 else None,
        "sparse": any(part.sparse for part in parts),
        "batchable": all(part.batchable for part in parts),
        "seeded": any(part.seeded for part in parts),
        "hides_seed": any(part.hides_seed for part in parts),
        "cost": max(part.cost for part in parts),
    }
    recipe = Recipe(op, args, tuple(part.recipe for part in parts))
    return Draft(recipe, **{**common, **known})


def _batched(spec: Any, *, ragged: bool) -> Any:
    return ("ragged" if ragged else "batch", spec)


def _is_batch(spec: Any) -> bool:
    return isinstance(spec, tuple) and spec[0] in ("ragged", "batch")


# Random access.

_Stage = Callable[[Draw, Draft, int], Draft]


@st.composite
def _sources(draw: Draw) -> Draft:
    length = draw(st.one_of(st.integers(0, 10), st.integers(1, 10), st.integers(24, 48)))
    kind = draw(st.sampled_from(["range", "range", "ints", "strings", "floats", "dicts"]))
    if kind == "range":
        start, step = draw(st.integers(-5, 5)), draw(st.sampled_from([1, 1, 2, 3, -2]))
        recipe = Recipe("range", {"start": start, "stop": start + length * step, "step": step})
        return Draft(recipe, "int", length)
    recipe = Recipe("source", {"kind": kind, "length": length})
    return Draft(recipe, "int" if kind == "ints" else kind, length)


def _map(draw: Draw, ds: Draft, _: int) -> Draft:
    return ds.then("map", {"function": "bump"})


def _map_to_none(draw: Draw, ds: Draft, _: int) -> Draft:
    return ds.then("map", {"function": "none_for_some"}, sparse=True, batchable=False)


def _map_with_index(draw: Draw, ds: Draft, _: int) -> Draft:
    return ds.then("map_with_index", spec=("tuple", "int", ds.spec))


def _random_map(draw: Draw, ds: Draft, _: int) -> Draft:
    inherits = ds.seeded and not ds.hides_seed and draw(st.booleans())
    seed = None if inherits else draw(st.one_of(_SEEDS, st.just(2**70)))
    return ds.then("random_map", {"seed": seed}, spec=("tuple", ds.spec, "int", "float"))


def _seed(draw: Draw, ds: Draft, _: int) -> Draft:
    seed = draw(st.one_of(_SEEDS, st.just(2**40 + 3)))
    return ds.then("seed", {"seed": seed}, seeded=True, hides_seed=False)


def _filter(draw: Draw, ds: Draft, _: int) -> Draft:
    function = draw(st.sampled_from(["keep_most", "keep_few"]))
    return ds.then("filter", {"function": function}, sparse=True, batchable=False)


def _shuffle(draw: Draw, ds: Draft, _: int) -> Draft:
    inherits = ds.seeded and draw(st.booleans())
    seed = None if inherits else draw(_SEEDS)
    cost = ds.cost + _SHUFFLE_COST / max(1, ds.length)
    return ds.then("shuffle", {"seed": seed}, cost=cost)


def _slice(draw: Draw, ds: Draft, _: int) -> Draft:
    bounds = st.one_of(st.none(), st.integers(-12, 12))
    start, stop = draw(bounds), draw(bounds)
    step = draw(st.sampled_from([None, 1, 2, 3, -1, -2]))
    length = len(range(ds.length)[start:stop:step])
    return ds.then("slice", {"start": start, "stop": stop, "step": step}, length=length)


def _repeat(draw: Draw, ds: Draft, _: int) -> Draft:
    forever = not ds.sparse and draw(st.integers(0, 3)) == 0
    epochs = None if forever else draw(st.integers(1, 3))
    length = min(ds.length, 1) * sys.maxsize if epochs is None else ds.length * epochs
    args = {"epochs": epochs, "reseed": draw(st.booleans())}
    return ds.then("repeat", args, length=length)


def _batch(draw: Draw, ds: Draft, _: int) -> Draft:
    size, drop_remainder = draw(st.integers(1, 5)), draw(st.booleans())
    length = ds.length // size if drop_remainder else math.ceil(ds.length / size)
    ragged = ds.length % size != 0 and not drop_remainder
    args = {"size": size, "drop_remainder": drop_remainder}
    spec = _batched(ds.spec, ragged=ragged)
    return ds.then("batch", args, spec=spec, length=length, cost=ds.cost * size)


def _batch_to_list(draw: Draw, ds: Draft, _: int) -> Draft:
    size = draw(st.integers(1, 3))
    length = math.ceil(ds.length / size)
    cost = ds.cost * size
    return ds.then("batch_to_list", {"size": size}, spec=None, length=length, cost=cost)


def _map_window_shuffle(draw: Draw, ds: Draft, _: int) -> Draft:
    window = draw(st.sampled_from([w for w in range(1, ds.length + 1) if ds.length % w == 0]))
    cost = ds.cost + (_SHUFFLE_COST / window if window > 1 else 0)
    args = {"window": window, "seed": draw(st.integers(0, 100))}
    return ds.then("map_window_shuffle", args, cost=cost)


def _map_flat_map(draw: Draw, ds: Draft, _: int) -> Draft:
    fan_out = draw(st.integers(1, 3))
    known = {"spec": ("tuple", ds.spec, "int"), "sparse": True, "batchable": False}
    return ds.then("map_flat_map", {"fan_out": fan_out}, length=fan_out * ds.length, **known)


def _others(draw: Draw, ds: Draft, depth: int, drafts: Any) -> list[Draft]:
    """Return `ds` among one or two other drafts."""
    others = [draw(drafts(depth + 1)) for _ in range(draw(st.integers(1, 2)))]
    place = draw(st.integers(0, len(others)))
    return [*others[:place], ds, *others[place:]]


def _weights(draw: Draw, count: int) -> list[float] | None:
    weights = st.one_of(st.none(), st.lists(_WEIGHTS, min_size=count, max_size=count))
    return draw(weights)  # type: ignore[no-any-return]


def _mix(draw: Draw, ds: Draft, depth: int) -> Draft:
    parts = [part for part in _others(draw, ds, depth, map_drafts) if part.length]
    weights = _weights(draw, len(parts))
    scale = 1.0 if weights is None else 100 / min(weights)
    counts = [1 if weights is None else int(weights[i] * scale) for i in range(len(parts))]
    shares = [part.length / (n / sum(counts)) for part, n in zip(parts, counts, strict=True)]
    length = min(sys.maxsize, int(min(shares)))
    return _joined("mix", parts, {"weights": weights}, length=length)


def _concatenate(draw: Draw, ds: Draft, depth: int) -> Draft:
    parts = [part for part in _others(draw, ds, depth, map_drafts) if not part.infinite]
    return _joined("concatenate", parts, {}, length=sum(part.length for part in parts))


def _select(draw: Draw, ds: Draft, depth: int) -> Draft:
    parts = [part for part in _others(draw, ds, depth, map_drafts) if part.length]
    place = st.tuples(st.integers(0, len(parts) - 1), st.integers(0, 20))
    table = draw(st.lists(place, min_size=1, max_size=8))
    return _joined("select", parts, {"table": table}, length=len(table))


def _map_zip(draw: Draw, ds: Draft, depth: int) -> Draft:
    step = draw(st.sampled_from([1, -1]))
    recipe = Recipe("range", {"start": 0, "stop": ds.length * step, "step": step})
    parts = [ds, draw(st.sampled_from([ds, Draft(recipe, "int", ds.length)]))]
    # A tuple with None in it is an element, but nothing to stack.
    spec = None if ds.sparse else ("tuple", *(part.spec for part in parts))
    return _joined("map_zip", parts, {}, length=ds.length, spec=spec, sparse=False)


_Applies = Callable[[Draft], bool]
_MAP_STAGES: dict[_Stage, _Applies] = {
    _map: lambda _: True,
    _map_to_none: lambda ds: not ds.infinite,
    _map_with_index: lambda _: True,
    _random_map: lambda _: True,
    _seed: lambda _: True,
    _filter: lambda ds: not ds.infinite,
    _shuffle: lambda ds: ds.cost + _SHUFFLE_COST / max(1, ds.length) < _COST_LIMIT,
    _slice: lambda _: True,
    _repeat: lambda ds: not ds.infinite and ds.length * 3 <= _LONGEST,
    _batch: lambda ds: ds.batchable and ds.stackable and not ds.infinite,
    _batch_to_list: lambda ds: ds.batchable and not ds.infinite,
    _map_window_shuffle: lambda ds: 8 <= ds.length <= _LONGEST and not ds.cost,
    _map_flat_map: lambda ds: not ds.infinite and ds.length * 3 <= _LONGEST,
    _mix: lambda ds: ds.length > 0,
    _concatenate: lambda ds: not ds.infinite and ds.length * 3 <= _LONGEST,
    _select: lambda ds: ds.length > 0,
    _map_zip: lambda _: True,
}
_JOINS = {_mix, _concatenate, _select, _map_zip}


def _stage_count(draw: Draw, depth: int) -> int:
    return draw(st.integers(1, 5) if depth == 0 else st.integers(0, 4 - depth))  # type: ignore[no-any-return]


@st.composite
def map_drafts(draw: Draw, depth: int = 0) -> Draft:
    """Draw a MapDataset."""
    ds: Draft = draw(_sources())
    for _ in range(_stage_count(draw, depth)):
        stages = [
            stage
            for stage, applies in _MAP_STAGES.items()
            if applies(ds) and (depth < 2 or stage not in _JOINS)
        ]
        ds = draw(st.sampled_from(stages))(draw, ds, depth)
    return ds


# Iteration.


def _to_iter(draw: Draw, ds: Draft) -> Draft:
    # Grain's own threads are slow, so most pipelines have none.
    options = draw(st.sampled_from([(0, 0)] * 8 + [(1, 1), (2, 3), None]))
    allow_nones = ds.sparse and draw(st.booleans())
    length = ds.length if allow_nones or not ds.sparse else -1
    args = {"options": options, "allow_nones": allow_nones}
    it = ds.then("to_iter_dataset", args, length=length, sparse=allow_nones)
    return _limit(draw, it, 0) if ds.infinite else it


def _iter_map_to_none(draw: Draw, ds: Draft, _: int) -> Draft:
    return ds.then("map", {"function": "none_for_some"}, sparse=True)


def _iter_filter(draw: Draw, ds: Draft, _: int) -> Draft:
    function = draw(st.sampled_from(["keep_most", "keep_few"]))
    return ds.then("filter", {"function": function}, length=-1)


def _iter_batch(draw: Draw, ds: Draft, _: int) -> Draft:
    size, drop_remainder = draw(st.integers(1, 5)), draw(st.booleans())
    length = -1
    if ds.length >= 0:
        length = ds.length // size if drop_remainder else math.ceil(ds.length / size)
    args = {"size": size, "drop_remainder": drop_remainder}
    spec = _batched(ds.spec, ragged=not drop_remainder)
    return ds.then("batch", args, spec=spec, length=length, sparse=False)


def _iter_batch_to_list(draw: Draw, ds: Draft, _: int) -> Draft:
    size = draw(st.integers(1, 3))
    return ds.then("batch_to_list", {"size": size}, spec=None, length=-1, sparse=False)


def _flat_map(draw: Draw, ds: Draft, _: int) -> Draft:
    spec = None if ds.sparse else ("tuple", ds.spec, "int")
    args = {"fan_out": draw(st.integers(1, 3))}
    return ds.then("flat_map", args, spec=spec, length=-1, sparse=False)


def _rebatch(draw: Draw, ds: Draft, _: int) -> Draft:
    args = {"size": draw(st.integers(1, 5)), "drop_remainder": draw(st.booleans())}
    spec = _batched(ds.spec[1], ragged=not args["drop_remainder"])
    return ds.then("rebatch", args, length=-1, spec=spec)


def _batch_and_rebatch(draw: Draw, ds: Draft, depth: int) -> Draft:
    return _rebatch(draw, _iter_batch(draw, ds, depth), depth)


def _window_shuffle(draw: Draw, ds: Draft, _: int) -> Draft:
    args = {"window": draw(st.sampled_from([1, 2, 4, 9])), "seed": draw(st.integers(0, 2**31))}
    return ds.then("window_shuffle", args, cost=ds.cost + _COST_LIMIT)


def _iter_repeat(draw: Draw, ds: Draft, _: int) -> Draft:
    if ds.length > 0 and draw(st.integers(0, 2)) == 0:
        return _limit(draw, ds.then("iter_repeat", {"epochs": None}, length=sys.maxsize), 0)
    epochs = draw(st.integers(1, 3))
    return ds.then("iter_repeat", {"epochs": epochs}, length=max(-1, ds.length * epochs))


def _limit(draw: Draw, ds: Draft, _: int) -> Draft:
    count = draw(st.integers(1, 10))
    return ds.then("limit", {"count": count}, length=min(ds.length, count))


def _cache(draw: Draw, ds: Draft, depth: int) -> Draft:
    return _iter_repeat(draw, ds.then("cache"), depth)


def _with_options(draw: Draw, ds: Draft, _: int) -> Draft:
    return ds.then("with_options")


def _iter_zip(draw: Draw, ds: Draft, depth: int) -> Draft:
    parts = _others(draw, ds, depth, iter_drafts)
    if draw(st.booleans()):
        parts = [ds, ds]
    strict = ds.length >= 0 and all(part.length == ds.length for part in parts)
    known = {"spec": ("tuple", *(part.spec for part in parts)), "length": -1}
    if strict:
        known["length"] = ds.length
    if any(part.sparse for part in parts):
        known["spec"] = None
    return _joined("iter_zip", parts, {"strict": strict}, **known, sparse=False)


def _iter_mix(draw: Draw, ds: Draft, depth: int) -> Draft:
    parts = _others(draw, ds, depth, iter_drafts)
    args = {"weights": _weights(draw, len(parts)), "named": draw(st.booleans())}
    return _joined("iter_mix", parts, args, length=-1)


def _interleave(draw: Draw, ds: Draft, depth: int) -> Draft:
    drafts = st.one_of(iter_drafts(depth + 1), map_drafts(2).filter(lambda d: not d.infinite))
    parts = [ds, *draw(st.lists(drafts, max_size=3))]
    args = {"cycle_length": draw(st.integers(1, 4))}
    return _joined("interleave", parts, args, length=-1, seeded=False)


def _thread_prefetch(draw: Draw, ds: Draft, _: int) -> Draft:
    return ds.then("thread_prefetch", {"size": draw(st.sampled_from([0, 1, 2, 5]))})


def _multithread_prefetch(draw: Draw, ds: Draft, _: int) -> Draft:
    # Cutting the sources changes lengths; stages that look at them keep the old ones in Grain. And
    # it changes indices, so that all workers draw the same numbers in Grain.
    cut_alike = _ops(ds.recipe) <= _ONE_TO_ONE and not _draws_by_index(ds.recipe)
    sequential = cut_alike and draw(st.booleans())
    args = {"threads": draw(st.integers(1, 3)), "size": 1, "sequential": sequential}
    spec = ("ragged", ds.spec[1]) if _is_batch(ds.spec) else ds.spec if ds.stackable else None
    known = {"spec": spec, "length": -1, "hides_seed": ds.seeded}
    return ds.then("multithread_prefetch", args, **known)


def _can_be_cut(ds: Draft) -> bool:
    # A part may be empty, and an empty dataset must not be repeated forever, nor interleaved.
    return not (_interleaves(ds) or ds.recipe.contains("iter_repeat", epochs=None))


def _draws_by_index(recipe: Recipe) -> bool:
    if recipe.op == "to_iter_dataset":
        return recipe.contains("random_map")
    return any(_draws_by_index(parent) for parent in recipe.parents)


def _interleaves(ds: Draft) -> bool:
    return not _ops(ds.recipe).isdisjoint({"interleave", "multithread_prefetch"})


def _can_be_rewound(ds: Draft) -> bool:
    return not _interleaves(ds) and not ds.recipe.contains("cache")


def _ops(recipe: Recipe) -> set[str]:
    return {recipe.op}.union(*(_ops(parent) for parent in recipe.parents))


_ITER_STAGES: dict[_Stage, _Applies] = {
    _map: lambda _: True,
    _iter_map_to_none: lambda _: True,
    _map_with_index: lambda _: True,
    _random_map: lambda _: True,
    _seed: lambda _: True,
    _iter_filter: lambda _: True,
    _iter_batch: lambda ds: ds.spec == "int" or (ds.stackable and not ds.sparse),
    _batch_and_rebatch: lambda ds: ds.stackable and not ds.sparse,
    _iter_batch_to_list: lambda _: True,
    _flat_map: lambda _: True,
    _rebatch: lambda ds: _is_batch(ds.spec) and not ds.sparse,
    _window_shuffle: lambda ds: ds.cost < _COST_LIMIT,
    _iter_repeat: _can_be_rewound,
    _limit: lambda _: True,
    _cache: _can_be_rewound,
    _with_options: lambda _: True,
    _iter_zip: lambda _: True,
    _iter_mix: lambda _: True,
}
_ITER_JOINS = {_iter_zip, _iter_mix}
_THREADED: dict[_Stage, _Applies] = {
    _interleave: lambda _: True,
    _thread_prefetch: lambda _: True,
    _multithread_prefetch: _can_be_cut,
}


@st.composite
def iter_drafts(draw: Draw, depth: int = 0) -> Draft:
    """Draw an IterDataset without threads, but for those of `to_iter_dataset`."""
    ds = _to_iter(draw, draw(map_drafts(depth + 1)))
    for _ in range(_stage_count(draw, depth)):
        ds = _stage(draw, ds, _ITER_STAGES, depth)
    return ds


@st.composite
def threaded_drafts(draw: Draw) -> Draft:
    """Draw an IterDataset in which at least one stage has a thread."""
    ds: Draft = draw(iter_drafts(1))
    ds = _stage(draw, ds, _THREADED, 1)
    for _ in range(draw(st.integers(0, 2))):
        ds = _stage(draw, ds, _ITER_STAGES | _THREADED, 1)
    return ds


def _stage(draw: Draw, ds: Draft, stages: dict[_Stage, _Applies], depth: int) -> Draft:
    possible = [
        stage
        for stage, applies in stages.items()
        if applies(ds) and (depth < 2 or stage not in _ITER_JOINS)
    ]
    return draw(st.sampled_from(possible))(draw, ds, depth)  # type: ignore[no-any-return]


def map_indices(ds: Draft) -> st.SearchStrategy[list[int]]:
    """Draw indices to read: some before, in and after the first epoch."""
    largest = sys.maxsize - 1 if ds.infinite else 3 * ds.length + 3
    smallest = -min(largest, 40)
    if "map_window_shuffle" in _ops(ds.recipe):
        # D10: Grain fails where the number of the window does not fit a seed.
        smallest, largest = 0, min(largest, 1 << 20)
    anywhere = st.integers(smallest, largest)
    near = st.integers(0, min(max(0, ds.length - 1), 40))
    return st.lists(st.one_of(near, anywhere), max_size=12)
