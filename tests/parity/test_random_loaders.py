"""Random samplers and loaders give the same elements, states and errors in Grain and here.

Left out is what wholegrain does otherwise on purpose: seedless random maps and random maps behind
a flat map (refused), empty shards (Grain divides by zero), errors of user functions (Grain loses
its place), numpy integers (Grain refuses them), and the end of a shard with a remainder, which
Grain loses: there its newer rule is compared.
"""

import itertools
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import wholegrain.python as wg
from tests.loader import recipes
from wholegrain.testing import difference

grain: Any = pytest.importorskip("grain.python")

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*Operation` is deprecated:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:The sampler has num_records:UserWarning"),
]

_EXAMPLES = settings().max_examples
_MOST_ELEMENTS = 12
_END = "the end"
_SEEDS = st.one_of(st.integers(0, 20), st.integers(0, 2**32 - 1), st.just(2**32 - 1))


# What is drawn.


@st.composite
def _shards(draw: st.DrawFn) -> list[Any]:
    count = draw(st.integers(1, 5))
    return [draw(st.integers(0, count - 1)), count, draw(st.booleans())]


@st.composite
def _samplers(draw: st.DrawFn, largest: int = 25) -> dict[str, Any]:
    sampler: dict[str, Any] = {
        "type": draw(st.sampled_from(["index", "seq"])),
        "n": draw(st.integers(1, largest)),
    }
    if draw(st.booleans()):
        sampler["shard"] = draw(_shards())
    if draw(st.booleans()):
        sampler["seed"] = draw(_SEEDS)
    if sampler["type"] == "index":
        sampler["epochs"] = draw(st.none() | st.integers(1, 3))
        sampler["shuffle"] = "seed" in sampler and draw(st.booleans())
        if "shard" in sampler:
            index, count, drop = sampler["shard"]
            assume(sampler["n"] // count + (not drop and index < sampler["n"] % count))
    return sampler


@st.composite
def _operations(draw: st.DrawFn, has_seed: bool, infinite: bool) -> list[dict[str, Any]]:
    """Draw operations that fit each other: `kind` is what comes out of those before."""
    operations: list[dict[str, Any]] = []
    kind = "int"
    for _ in range(draw(st.integers(0, 4))):
        possible = ["batch"]
        if kind in ("int", "array"):
            possible += ["add", "mul", "legacy_add"]
        if kind == "int":
            possible += ["to_dict", "batch_sum"]
        if kind == "int" and not infinite:  # Nothing may be left of an endless stream.
            possible += ["keep_mod", "legacy_keep_mod", "flat"]
        if kind != "tree":
            possible += ["legacy_batch"]
        if has_seed:
            possible += ["rand_tag"]
            possible += ["rand_add", "legacy_rand_add"] if kind in ("int", "array") else []
            possible += ["rand_pair"] if kind == "int" else []
            possible += ["rand_append"] if kind == "tuple" else []
        name = draw(st.sampled_from(possible))
        operation = {"op": name, **draw(_ARGUMENTS[name])}
        if "size" in operation and kind in ("array", "tree"):
            operation["drop"] = True  # A short batch would not stack with the others.
        operations.append(operation)
        kind = _KIND_AFTER.get(name, kind)
        if name == "flat":
            has_seed = False
        if kind in ("array", "tree") and "size" in operation:
            operation.setdefault("drop", False)
            if not operation["drop"]:
                break
    return operations


_ARGUMENTS: dict[str, st.SearchStrategy[dict[str, Any]]] = {
    **dict.fromkeys(["to_dict"], st.just({})),
    **dict.fromkeys(["add", "mul", "legacy_add"], st.fixed_dictionaries({"k": st.integers(-3, 5)})),
    **dict.fromkeys(
        ["keep_mod", "legacy_keep_mod"],
        st.fixed_dictionaries({"m": st.integers(1, 4), "r": st.integers(0, 3)}),
    ),
    **dict.fromkeys(
        ["rand_add", "rand_pair", "rand_append", "rand_tag", "legacy_rand_add"],
        st.fixed_dictionaries({"hi": st.integers(1, 2**20)}),
    ),
    "flat": st.fixed_dictionaries({"fan": st.integers(1, 3)}),
    **dict.fromkeys(
        ["batch", "legacy_batch"],
        st.fixed_dictionaries({"size": st.integers(1, 5), "drop": st.booleans()}),
    ),
    "batch_sum": st.fixed_dictionaries({"size": st.integers(1, 5)}),
}

_KIND_AFTER = {
    "batch": "tree",
    "legacy_batch": "tree",
    "to_dict": "tree",
    "rand_tag": "tree",
    "rand_pair": "tuple",
}


@st.composite
def _loaders(draw: st.DrawFn) -> dict[str, Any]:
    sampler = draw(_samplers())
    loader: dict[str, Any] = {
        "sampler": sampler,
        "ops": draw(_operations("seed" in sampler, sampler.get("epochs", 1) is None)),
        "workers": 0,
    }
    if draw(st.booleans()):
        start, step = draw(st.integers(-5, 5)), draw(st.sampled_from([-2, 1, 3]))
        length = draw(st.integers(1, sampler["n"] + 3))
        loader["source"] = [start, start + length * step, step]
    if draw(st.integers(0, 3)) == 0:
        loader["loader_shard"] = draw(_shards())
    # Grain takes a second to read 500 elements of an endless stream ahead.
    if sampler.get("epochs", 1) is None or draw(st.booleans()):
        loader["read_options"] = draw(st.sampled_from([[0, 0], [1, 1], [3, 2], [2, 50]]))
    return loader


# Samplers.


@settings(max_examples=2 * _EXAMPLES)
@given(data=st.data())
def test_samplers_are_equal(data: st.DataObject) -> None:
    description = data.draw(_samplers(largest=2000))
    theirs, ours = (recipes.sampler(package, description) for package in (grain, wg))
    assert repr(theirs) == repr(ours)
    assert len(theirs) == len(ours)
    indices = data.draw(st.lists(st.integers(-3, 3 * description["n"] + 3), max_size=8))
    for index in [*indices, len(ours) - 1, len(ours)]:
        assert _looked_up(theirs, index) == _looked_up(ours, index)


def _looked_up(sampler: Any, index: int) -> Any:
    try:
        metadata = sampler[index]
    except IndexError:
        return IndexError
    draws = None if metadata.rng is None else metadata.rng.integers(2**63, size=3).tolist()
    return metadata.index, metadata.record_key, draws, str(metadata)


@given(
    num_records=st.integers(-1, 3),
    num_epochs=st.none() | st.integers(-1, 2),
    shuffle=st.booleans(),
    seed=st.none() | st.sampled_from([-1, 0, 7, 2**32 - 1, 2**32, True, 1.5, "x"]),
    shard=st.tuples(st.integers(-1, 3), st.integers(-1, 3), st.booleans()),
)
def test_the_same_arguments_of_samplers_are_refused(
    num_records: int, num_epochs: int | None, shuffle: bool, seed: Any, shard: tuple[Any, ...]
) -> None:
    # Without shuffling Grain looks at the range of a seed, but not at its type.
    assume(shuffle or seed is None or type(seed) is int)

    def outcome(package: Any) -> Any:
        try:
            options = package.ShardOptions(*shard)
            sampler = package.IndexSampler(num_records, options, shuffle, num_epochs, seed)
        except (TypeError, ValueError) as error:
            return type(error)
        return repr(sampler)

    assert outcome(grain) == outcome(wg)


# Loaders.


class _WithRemainder:
    """A sampler of Grain for whose remainder its DataLoader has a place."""

    def __init__(self, sampler: Any, shard_count: int) -> None:
        self._sampler = sampler
        self._shard_options = sampler._shard_options
        self._length = -(-len(sampler) // shard_count) * shard_count

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int) -> Any:
        return self._sampler[index]

    def __repr__(self) -> str:
        return repr(self._sampler)


class _GrainWithRemainder:
    """Grain, with the remainder of a shard."""

    def __getattr__(self, name: str) -> Any:
        return getattr(grain, name)

    def DataLoader(self, *, sampler: Any, shard_options: Any = None, **arguments: Any) -> Any:
        options = shard_options or sampler._shard_options
        size = len(sampler)
        rest = size % options.shard_count if size < sys.maxsize else 0
        if not options.drop_remainder and options.shard_index < rest:
            sampler = _WithRemainder(sampler, options.shard_count)
        return grain.DataLoader(sampler=sampler, shard_options=shard_options, **arguments)


def _assert_same(expected: Any, found: Any, what: str) -> None:
    where = difference(expected, found, key_order=True)
    assert where is None, f"{what}: {where}\nGrain: {expected}\nwholegrain: {found}"


@given(data=st.data())
def test_loaders_are_equal_and_restore_each_others_states(data: st.DataObject) -> None:
    description = data.draw(_loaders(), label="loader")
    theirs = recipes.loader(_GrainWithRemainder(), description)
    ours = recipes.loader(wg, description)

    elements, states = _run(iter(theirs))
    _check_run(iter(ours), elements, states, 0)

    step = data.draw(st.integers(0, len(states) - 1), label="restored after")
    state, place = states[step], min(step, len(elements))
    running = iter(ours)
    for _ in itertools.islice(running, data.draw(st.integers(0, len(elements)), label="that gave")):
        pass
    for it in (iter(ours), running):
        it.set_state(state)
        _check_run(it, elements, states, place)

    it = iter(ours)
    for _ in range(place):
        next(it)
    if step > len(elements):
        assert next(it, _END) == _END
    their_it = iter(theirs)
    their_it.set_state(it.get_state())
    for later in range(place, len(elements)):
        _assert_same(elements[later], next(their_it, _END), f"Grain, restored, element {later}")
    if len(states) > len(elements) + 1:
        assert next(their_it, _END) == _END


def _run(it: Any) -> tuple[list[Any], list[bytes]]:
    """Return the first elements, and the states before each, after the last, and at the end."""
    elements: list[Any] = []
    states = [it.get_state()]
    while len(elements) < _MOST_ELEMENTS:
        element = next(it, _END)
        states.append(it.get_state())
        if isinstance(element, str):
            break
        elements.append(element)
    return elements, states


def _check_run(it: Any, elements: list[Any], states: list[bytes], place: int) -> None:
    """Check that `it` gives what Grain gave from `place` on."""
    for later in range(place, len(elements)):
        if later > place:
            assert it.get_state() == states[later], f"after {later} elements"
        _assert_same(elements[later], next(it, _END), f"element {later}")
    if len(states) > len(elements) + 1:
        assert next(it, _END) == _END
        if place < len(elements):
            assert it.get_state() == states[-1], "at the end"
        assert next(it, _END) == _END
    it.close()


# Batches of all kinds of elements.


@given(
    elements=st.lists(
        st.one_of(
            st.integers(-(2**70), 2**70),
            st.floats(),
            st.text(max_size=4),
            st.binary(max_size=4),
            st.booleans(),
        ),
        min_size=1,
        max_size=7,
    ),
    size=st.integers(1, 4),
    drop=st.booleans(),
)
def test_batches_of_mixed_leaves_are_equal(elements: list[Any], size: int, drop: bool) -> None:
    def outcome(package: Any) -> Any:
        loader = package.DataLoader(
            data_source=elements,
            sampler=package.SequentialSampler(len(elements), package.NoSharding()),
            operations=[package.Batch(size, drop)],
            read_options=package.ReadOptions(0, 0),
        )
        try:
            return list(loader)
        except (TypeError, ValueError, OverflowError, np.exceptions.DTypePromotionError) as error:
            return type(error)

    expected, found = outcome(grain), outcome(wg)
    if isinstance(expected, list):
        _assert_same(expected, found, "batches")
    else:
        assert isinstance(found, type)
        assert issubclass(found, expected)
