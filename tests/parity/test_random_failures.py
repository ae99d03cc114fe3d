"""Random pipelines whose functions fail at random elements, restored at random steps.

A plain model says which elements and which errors come, and in which order. Grain is a second one
where it goes on after an error: in iterators, and with threads that read ahead.
"""

import contextlib
import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import wholegrain as wg

Outcome = tuple[str, Any]
"""An element or the text of an error, and which of both it is."""

_FEW = settings(max_examples=settings().max_examples // 10)


class Fails:
    """Returns its argument, or fails. Pickles, unlike a function in a test."""

    def __init__(self, name: str, at: frozenset[int]) -> None:
        self.name = name
        self.at = at

    def __call__(self, x: int) -> int:
        if x in self.at:
            raise LookupError(f"{self.name} fails at {x}")
        return x


class Keeps(Fails):
    """Says which elements to keep, or fails."""

    def __init__(self, name: str, at: frozenset[int], divisor: int) -> None:
        super().__init__(name, at)
        self.divisor = divisor

    def __call__(self, x: int) -> bool:
        return super().__call__(x) % self.divisor > 0


@dataclasses.dataclass
class Draft:
    """A pipeline: where it begins, what is done by index, and what in order."""

    length: int
    seed: int | None
    epochs: int
    by_index: list[Fails]
    map_batch: int
    in_order: list[Fails]
    iter_batch: int

    def build(self, g: Any, threads: int = 16) -> Any:
        """Build it, of Grain or of wholegrain."""
        ds = g.MapDataset.range(self.length)
        if self.seed is not None:
            ds = ds.shuffle(seed=self.seed)
        ds = ds.repeat(self.epochs)
        for function in self.by_index:
            ds = ds.map(function)
        if self.map_batch:
            ds = ds.batch(self.map_batch)
        ds = ds.to_iter_dataset(g.ReadOptions(threads, 3 * threads))
        for function in self.in_order:
            ds = ds.filter(function) if isinstance(function, Keeps) else ds.map(function)
        return ds.batch(self.iter_batch) if self.iter_batch else ds

    def outcomes(self, workers: int = 0) -> list[Outcome]:
        """Say what comes out of it."""
        read = list(self._read())
        if not workers:
            return list(self._in_order(read))
        shares = [list(self._in_order(read[worker::workers])) for worker in range(workers)]
        turns = range(max(map(len, shares), default=0))
        return [share[turn] for turn in turns for share in shares if turn < len(share)]

    def _read(self) -> Iterator[Outcome]:
        order = wg.MapDataset.range(self.length)
        order = order if self.seed is None else order.shuffle(seed=self.seed)
        singles = [_called(self.by_index, x) for x in order.repeat(self.epochs)]
        if not self.map_batch:
            yield from singles
            return
        for start in range(0, len(singles), self.map_batch):
            members = singles[start : start + self.map_batch]
            failed = [member for member in members if member[0] == "error"]
            yield failed[0] if failed else ("element", [x for _, x in members])

    def _in_order(self, read: list[Outcome]) -> Iterator[Outcome]:
        batch: list[Any] = []
        for kind, x in read:
            found = _called(self.in_order, x) if kind == "element" else (kind, x)
            if found is _DROPPED:
                continue
            if not self.iter_batch:
                yield found
            elif found[0] == "error":
                batch = []
                yield found
            else:
                batch.append(x)
                if len(batch) == self.iter_batch:
                    yield "element", batch
                    batch = []
        if batch:
            yield "element", batch


_DROPPED: Outcome = ("dropped", None)


def _called(functions: list[Fails], x: Any) -> Outcome:
    for function in functions:
        try:
            kept = function(x)
        except LookupError as error:
            return "error", error.args[0]
        if kept is False:
            return _DROPPED
    return "element", x


@st.composite
def _drafts(draw: Any, kinds_in_order: str = "mmf") -> Draft:
    length = draw(st.integers(1, 40))
    failing = st.frozensets(st.integers(0, length - 1), max_size=4)
    map_batch = draw(st.sampled_from([0, 0, 0, 1, 3]))
    kinds = [] if map_batch else draw(st.lists(st.sampled_from(kinds_in_order), max_size=3))
    return Draft(
        length,
        draw(st.none() | st.integers(0, 99)),
        draw(st.integers(1, 2)),
        [Fails(f"by index {n}", draw(failing)) for n in range(draw(st.integers(0, 2)))],
        map_batch,
        [
            Keeps(f"filter {n}", draw(failing), draw(st.integers(1, 4)))
            if kind == "f"
            else Fails(f"map {n}", draw(failing))
            for n, kind in enumerate(kinds)
        ],
        0 if map_batch else draw(st.sampled_from([0, 0, 1, 3])),
    )


def _next(it: Any) -> Outcome | None:
    try:
        return "element", np.asarray(next(it)).tolist()
    except StopIteration:
        return None
    except LookupError as error:
        return "error", error.args[0]


def _all(it: Any) -> list[Outcome]:
    found = []
    while (outcome := _next(it)) is not None:
        found.append(outcome)
    assert _next(it) is None, "The end is the end."
    return found


def _check(ds: Any, want: list[Outcome], steps: list[int]) -> None:
    """Run to the end, and from states at some of the steps, in a new iterator and in the same."""
    states = {}
    with contextlib.closing(iter(ds)) as it:
        assert _all(it) == want
    with contextlib.closing(iter(ds)) as it:
        for step, outcome in enumerate(want):
            if step in steps:
                states[step] = it.get_state()
            assert _next(it) == outcome, step
        for step, state in states.items():
            it.set_state(state)
            assert it.get_state() == state
            assert _all(it) == want[step:], f"from step {step}, in the same iterator"
    for step, state in states.items():
        with contextlib.closing(iter(ds)) as it:
            it.set_state(state)
            assert _all(it) == want[step:], f"from step {step}, in a new iterator"


_STEPS = st.lists(st.integers(0, 60), min_size=1, max_size=3)


@settings(max_examples=settings().max_examples // 2)
@given(draft=_drafts(), steps=_STEPS, threads=st.sampled_from([0, 2, 16]))
def test_errors_come_at_their_places_without_workers(
    draft: Draft, steps: list[int], threads: int
) -> None:
    _check(draft.build(wg, threads), draft.outcomes(), steps)


@_FEW
@given(draft=_drafts(), steps=_STEPS)
def test_errors_come_at_their_places_with_workers(draft: Draft, steps: list[int]) -> None:
    ds = draft.build(wg).mp_prefetch(wg.MultiprocessingOptions(num_workers=2))
    _check(ds, draft.outcomes(2), steps)


@_FEW
@given(draft=_drafts("m"), steps=_STEPS)  # Nothing may be dropped in order.
def test_errors_come_at_their_places_with_as_many_workers_as_it_takes(
    draft: Draft, steps: list[int]
) -> None:
    ds = draft.build(wg).mp_prefetch(wg.MultiprocessingOptions(num_workers="auto"))
    _check(ds, draft.outcomes(), steps)


@settings(max_examples=settings().max_examples // 2)
@given(draft=_drafts())
def test_errors_come_where_they_come_in_grain(draft: Draft) -> None:
    grain: Any = pytest.importorskip("grain")
    if any(function.at for function in draft.by_index):
        # With errors by index, Grain stays where it is without threads, and has no end with them.
        want = draft.outcomes()
        it = iter(draft.build(grain, 2))
        found = [_next(it) for _ in want[: len(want) - len(draft.in_order) - 1]]
        assert found == want[: len(found)]
    else:
        assert _all(iter(draft.build(grain, 0))) == draft.outcomes()
