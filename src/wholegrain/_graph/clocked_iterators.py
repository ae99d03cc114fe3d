"""Iterators with a clock around them, for a while or for good.

Where elements take long, an iterator gets its clock by becoming an instance of another class, which
differs from its own in the clock alone. That would make a quick one slower for good, even after it
has become what it was: Python keeps its attributes in another way from then on. So for the elements
of one chunk of a quick pipeline now and then, the methods of our own classes are replaced by ones
with a clock, and put back. Without a clock nothing is paid.
"""

from __future__ import annotations

import contextlib
import functools
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

from wholegrain._engine.waiting import ThreadTimes
from wholegrain._graph.tape import tape

SLOW_S = 100e-6
"""Where a call takes so long, there may always be a clock around it."""

_DEEP_ONE_IN, _FIRST_STEPS, _DEEP_ONE_IN_FIRST = 64, 64, 8
"""Of so many steps one tells how much of the time a processor was busy; of the first ones more."""

_METHODS = ("__next__", "take", "next_into")

_MOST_TIMES = 300 if sys.version_info >= (3, 13) else sys.maxsize
"""After a thousand changes of a class, Python 3.13 gives up to make calls of its methods quick."""

_lock = threading.RLock()
_times_replaced: Counter[type] = Counter()
replaced: dict[type, tuple[int, dict[str, Any]]] = {}
"""Classes whose methods have clocks now: how many runs want that, and what they have else."""


def with_clock(iterator: Any, on: bool) -> None:
    """Put a clock around an iterator that belongs to a run, or take it away."""
    kind = type(iterator)
    plain: Any = getattr(kind, "_without_clock", None)
    if on == (plain is not None):
        return
    # A class of the user's may have another layout, or not allow another one below it.
    with contextlib.suppress(Exception), _lock:
        iterator.__class__ = _clocked(kind) if on else plain  # type: ignore[arg-type]


def may_replace_methods(kinds: Iterable[type]) -> bool:
    """Whether it can be done once more in this process, and harm nothing."""
    return all(_times_replaced[kind] < _MOST_TIMES for kind in kinds)


def replace_methods(kinds: Iterable[type]) -> set[type]:
    """Put clocks into classes of ours; return those that have to be put back some day."""
    found = {kind for kind in kinds if kind.__module__.startswith("wholegrain.")}
    with _lock:
        for kind in found:
            runs, before = replaced.get(kind, (0, {}))
            if not runs:
                _times_replaced[kind] += 1
                before = {name: vars(kind).get(name) for name in _METHODS if hasattr(kind, name)}
                methods = {name: _timed(_plain(kind, name), many=name == "take") for name in before}
                for name, method in methods.items():
                    setattr(kind, name, method)
            replaced[kind] = (runs + 1, before)
    return found


def put_back_methods(kinds: Iterable[type]) -> None:
    """Take the clocks out of classes again, unless another run wants them."""
    with _lock:
        for kind in kinds:
            runs, before = replaced.pop(kind)
            if runs > 1:
                replaced[kind] = (runs - 1, before)
                continue
            for name, method in before.items():
                if method is None:
                    delattr(kind, name)
                else:
                    setattr(kind, name, method)


def _plain(kind: type, name: str) -> Any:
    """Return a method as it is without a clock."""
    for base in kind.__mro__:
        found = replaced[base][1].get(name) if base in replaced else vars(base).get(name)
        if found is not None:
            return found
    return getattr(kind, name)


@functools.cache
def _clocked(kind: type) -> type:
    methods: dict[str, Any] = {
        name: _timed(_plain(kind, name), many=name == "take")
        for name in _METHODS
        if hasattr(kind, name)
    }
    methods.update(
        __module__=kind.__module__,
        __qualname__=kind.__qualname__,
        __doc__=kind.__doc__,
        _without_clock=kind,
    )
    return type(kind)(kind.__name__, (kind,), methods)


def _timed(method: Callable[..., Any], many: bool) -> Callable[..., Any]:
    """Return the method with a clock around it."""
    clock, current = time.perf_counter, tape

    @functools.wraps(method)
    def __next__(self: Any, *args: Any) -> Any:  # Tracebacks know a step by this name.
        observed = self.observed
        if observed is None or not observed.clocks_on:
            return method(self, *args)
        outside, outer = current.below, current.stage
        current.below, current.stage = 0.0, self
        calls = observed.calls
        start = clock()
        is_output = observed.is_output(self) and outer is not self
        if is_output:
            observed.entered(start)
        if outer is None:
            steps = observed.steps
            one_in = _DEEP_ONE_IN if steps >= _FIRST_STEPS else _DEEP_ONE_IN_FIRST
            current.deep = observed.deep and steps % one_in == 0
        deep = current.deep
        if deep:
            deeply_outside, current.deeply_below = current.deeply_below, ThreadTimes()
            began = ThreadTimes.now()
        made = 0
        try:
            element = method(self, *args)
            made = len(element) if many else 1
            return element
        finally:
            end = clock()
            spent = end - start
            own = spent - current.below
            times = observed.times_of(self.observed_as)
            times.clocked = True
            times.own += own
            if outer is not self:
                times.elements += made
            if deep:
                whole = ThreadTimes.now().without(began)
                times.look(own, own * whole.without(current.deeply_below).computing_share)
                deeply_outside.add(whole)
                current.deeply_below = deeply_outside
            current.below, current.stage = outside + spent, outer
            observed.calls += 1
            if is_output:
                observed.left(end, spent)
            if outer is None:
                current.deep = False
                observed.steps += 1
                # One by one: a step in which others had the processor says nothing.
                observed.slow_steps += spent > SLOW_S * (observed.calls - calls)
                if observed.calls >= observed.consider_at:
                    observed.consider(end)

    return __next__
