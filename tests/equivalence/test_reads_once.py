"""Random pipelines whose sources and functions fail: each index is read once, as a model says.

An error stands in the place of its element, whatever is read in chunks or by threads, and no
function is called twice for an element.
"""

import itertools
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import wholegrain as wg

_MOST_STAGES = 5


class Failed(Exception):
    """Raised on purpose; its text says where."""


class Calls:
    """Counts what was called for which element."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.counts: Counter[tuple[str, Any]] = Counter()

    def add(self, name: str, element: Any) -> None:
        with self._lock:
            self.counts[name, repr(element)] += 1


class Records:
    """A source of numbers, some of which cannot be read."""

    def __init__(self, length: int, bad: frozenset[int], calls: Calls) -> None:
        self._length, self._bad, self._calls = length, bad, calls

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int) -> int:
        self._calls.add("source", index)
        if index in self._bad:
            raise Failed(f"record {index}")
        return index

    def __repr__(self) -> str:
        return "Records"


class Bulk(Records):
    """The same, many at once. If one is bad, none is read."""

    def __getitems__(self, indices: Sequence[int]) -> list[int]:
        bad = [index for index in indices if index in self._bad]
        if bad:
            raise Failed(f"record {bad[0]}")
        return [self[index] for index in indices]


def _digest(element: Any) -> int:
    return sum(repr(element).encode()) % 1000


class Function:
    """A function of elements that fails for some, and counts its calls."""

    def __init__(self, name: str, modulus: int, calls: Calls) -> None:
        self.name, self._modulus, self._calls = name, modulus, calls

    def outcome(self, element: Any) -> Any:
        """Return what a call gives: a value, or an error."""
        if _digest(element) % self._modulus == 1:
            return Failed(f"{self.name} of {element}")
        return self._value(element)

    def _value(self, element: Any) -> Any:
        return (element, self.name) if _digest(element) % 5 else element

    def __call__(self, element: Any) -> Any:
        self._calls.add(self.name, element)
        outcome = self.outcome(element)
        if isinstance(outcome, Failed):
            raise outcome
        return outcome


class Keeps(Function):
    """The same for a filter."""

    def _value(self, element: Any) -> Any:
        return _digest(element) % 3 != 0


_BY_INDEX = ("map", "filter", "random_map", "map_with_index", "shuffle", "slice", "batch", "zip")
_IN_ORDER = ("map", "filter", "random_map", "map_with_index", "batch", "seed")
_STAGES = st.tuples(st.integers(2, 9), st.integers(1, 6))
_PLANS = st.tuples(
    st.integers(1, 120),
    st.frozensets(st.integers(0, 119), max_size=6),
    st.booleans(),
    st.lists(st.tuples(st.sampled_from(_BY_INDEX), _STAGES), max_size=_MOST_STAGES),
    st.lists(st.tuples(st.sampled_from(_IN_ORDER), _STAGES), max_size=_MOST_STAGES),
)


def _is_error(outcome: Any) -> bool:
    return isinstance(outcome, Failed)


def _mapped(outcomes: list[Any], function: Function) -> list[Any]:
    return [o if o is None or _is_error(o) else function.outcome(o) for o in outcomes]


def _filtered(outcomes: list[Any], keeps: Function) -> list[Any]:
    verdicts = _mapped(outcomes, keeps)
    return [
        v if _is_error(v) else o if v else None for o, v in zip(outcomes, verdicts, strict=True)
    ]


def _batched_by_index(outcomes: list[Any], size: int) -> list[Any]:
    groups = [outcomes[start : start + size] for start in range(0, len(outcomes), size)]
    return [next(filter(_is_error, group), tuple(group)) for group in groups]


def _batched_in_order(outcomes: list[Any], size: int) -> list[Any]:
    found: list[Any] = []
    members: list[Any] = []
    for outcome in outcomes:
        if _is_error(outcome):
            found.append(outcome)  # With what was collected.
            members = []
            continue
        members.append(outcome)
        if len(members) == size:
            found.append(tuple(members))
            members = []
    return [*found, tuple(members)] if members else found


def _build(plan: Any, calls: Calls, options: wg.ReadOptions) -> tuple[Any, list[Any]]:
    """Return a pipeline, and what each call of `next` should give."""
    length, bad, bulk, by_index, in_order = plan
    kind = Bulk if bulk else Records
    ds: Any = wg.MapDataset.source(kind(length, bad, calls))
    model: list[Any] = [Failed(f"record {i}") if i in bad else i for i in range(length)]
    for number, (name, (modulus, size)) in enumerate(by_index):
        function = Function(f"{name}{number}", 10 * modulus, calls)
        if name == "map":
            ds, model = ds.map(function), _mapped(model, function)
        elif name == "random_map":
            ds = ds.random_map(lambda x, _, f=function: f(x), seed=1)
            model = _mapped(model, function)
        elif name == "map_with_index":
            ds = ds.map_with_index(lambda _, x, f=function: f(x))
            model = _mapped(model, function)
        elif name == "filter":
            keeps = Keeps(f"{name}{number}", 10 * modulus, calls)
            ds, model = ds.filter(keeps), _filtered(model, keeps)
        elif name == "shuffle":
            order = list(wg.MapDataset.range(len(ds)).shuffle(seed=size))
            ds, model = ds.shuffle(seed=size), [model[place] for place in order]
        elif name == "slice":
            ds, model = ds[size // 2 :: modulus], model[size // 2 :: modulus]
        elif name == "zip":
            # Where one is missing, numbers still tell the tuples apart.
            ds = wg.experimental.ZipMapDataset([ds, wg.MapDataset.range(len(ds))])
            model = [o if _is_error(o) else (o, number) for number, o in enumerate(model)]
        elif not ds.sparse:
            ds, model = ds.batch(size, batch_fn=tuple), _batched_by_index(model, size)
    ds = ds.to_iter_dataset(options)
    model = [outcome for outcome in model if outcome is not None]
    for number, (name, (modulus, size)) in enumerate(in_order):
        function = Function(f"iter {name}{number}", 10 * modulus, calls)
        ds, model = _add_in_order(ds, model, name, function, size)
    return ds, model


def _add_in_order(
    ds: Any, model: list[Any], name: str, function: Function, size: int
) -> tuple[Any, list[Any]]:
    if name == "map":
        return ds.map(function), _mapped(model, function)
    if name == "random_map":
        return ds.random_map(lambda x, _: function(x), seed=1), _mapped(model, function)
    if name == "map_with_index":
        return ds.map_with_index(lambda _, x: function(x)), _mapped(model, function)
    if name == "filter":
        function.__class__ = Keeps
        kept = [outcome for outcome in _filtered(model, function) if outcome is not None]
        return ds.filter(function), kept
    if name == "seed":
        return ds.seed(1), model
    return ds.batch(size, batch_fn=tuple), _batched_in_order(model, size)


def _texts(outcomes: Sequence[Any]) -> list[Any]:
    return [str(o) if _is_error(o) else o for o in outcomes]


def _next(it: Any) -> Any:
    try:
        return next(it)
    except Failed as error:
        return error


def _run(it: Any, steps: int) -> tuple[list[Any], list[Any]]:
    """Return what each call of `next` gives, and the states before and after."""
    outcomes: list[Any] = []
    states = [it.get_state()]
    for _ in range(steps):
        outcomes.append(_next(it))
        states.append(it.get_state())
    with pytest.raises(StopIteration):
        next(it)
    return outcomes, states


@pytest.mark.parametrize("num_threads", [0, 1, 4])
@pytest.mark.parametrize("starts", [False, True])
@given(plan=_PLANS)
def test_an_error_stands_in_its_place_and_nothing_is_read_twice(
    num_threads: int, starts: bool, plan: Any
) -> None:
    if starts and not num_threads:
        return
    calls = Calls()
    ds, model = _build(plan, calls, wg.ReadOptions(num_threads, 8))
    it = iter(ds)
    if starts:
        it.start_prefetch()
    outcomes, states = _run(it, len(model))
    assert _texts(outcomes) == _texts(model)
    bulk = plan[2]
    for (name, element), count in calls.counts.items():
        assert count <= (2 if bulk and name == "source" else 1), f"{name} of {element}: {count}"
    # Restored at every step, in another iterator and in this one.
    for restored in (iter(ds), it):
        for step in range(0, len(states), max(1, len(states) // 5)):
            restored.set_state(states[step])
            rest, _ = _run(restored, len(model) - step)
            assert _texts(rest) == _texts(model[step:])


@given(plan=_PLANS, states_every=st.integers(1, 7))
def test_taking_states_on_the_way_changes_nothing(plan: Any, states_every: int) -> None:
    ds, model = _build(plan, Calls(), wg.ReadOptions(0))
    it = iter(ds)
    for step, expected in enumerate(model):
        if step % states_every == 0:
            it.set_state(it.get_state())
        assert _texts([_next(it)]) == _texts([expected])


@settings(deadline=None)
@given(
    length=st.integers(1, 60),
    bad=st.frozensets(st.integers(0, 59), max_size=4),
    bulk=st.booleans(),
    stages=st.lists(
        st.tuples(st.sampled_from(["map", "filter", "batch"]), _STAGES), max_size=_MOST_STAGES
    ),
    num_threads=st.sampled_from([0, 1, 4]),
)
def test_a_data_loader_reads_once(
    length: int, bad: frozenset[int], bulk: bool, stages: list[Any], num_threads: int
) -> None:
    calls = Calls()
    kind = Bulk if bulk else Records
    model: list[Any] = [Failed(f"record {i}") if i in bad else i for i in range(length)]
    operations: list[Any] = []
    for number, (name, (modulus, size)) in enumerate(stages):
        function = Function(f"{name}{number}", 10 * modulus, calls)
        if name == "map":
            operations.append(_operation(wg.transforms.Map, "map", function))
            model = _mapped(model, function)
        elif name == "filter":
            function = Keeps(function.name, 10 * modulus, calls)
            operations.append(_operation(wg.transforms.Filter, "filter", function))
            model = [o for o in _filtered(model, function) if o is not None]
        else:
            operations.append(wg.transforms.Batch(size, batch_fn=tuple))
            model = _batched_in_order(model, size)
    loader = wg.DataLoader(
        data_source=kind(length, bad, calls),
        sampler=wg.samplers.SequentialSampler(length),
        operations=operations,
        worker_count=0,
        read_options=wg.ReadOptions(num_threads, 8),
    )
    outcomes, states = _run(iter(loader), len(model))
    assert _texts(outcomes) == _texts(model)
    for (name, element), count in calls.counts.items():
        assert count <= (2 if bulk and name == "source" else 1), f"{name} of {element}: {count}"
    for step in itertools.islice(range(len(states)), 0, None, max(1, len(states) // 4)):
        restored = iter(loader)
        restored.set_state(states[step])
        assert _texts(_run(restored, len(model) - step)[0]) == _texts(model[step:])


def _operation(base: type, method: str, function: Callable[[Any], Any]) -> Any:
    return type("Operation", (base,), {method: lambda self, element: function(element)})()
