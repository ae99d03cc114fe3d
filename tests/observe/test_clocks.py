"""Clocks around stages come and go while a pipeline runs, and change nothing."""

import gc
import itertools
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given, settings

import wholegrain as wg
from tests.equivalence.graphs import iter_datasets
from wholegrain import experimental
from wholegrain._graph.timed import ForwardingIterator, OutputIterator, TimedIterator
from wholegrain._observe.clock import SelfTimer
from wholegrain._observe.observed import Observed
from wholegrain._observe.sampler import ALWAYS, NOW_AND_THEN, OFF, Sampler
from wholegrain.testing import difference


class _Restless(Sampler):
    """Switches clocks on and off whenever it is asked."""

    def at_pause(self, now: float) -> str:
        return OFF if self.mode == NOW_AND_THEN else NOW_AND_THEN

    def after_step(self, seconds: float, calls: int) -> str:
        return next(_modes)


_modes: Iterator[str] = itertools.cycle([ALWAYS, OFF, NOW_AND_THEN, ALWAYS, NOW_AND_THEN])


@pytest.fixture
def _restless(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wholegrain._observe.observed.Sampler", _Restless)


def _outcomes(it: Any) -> list[Any]:
    outcomes: list[Any] = [it.get_state()]
    while len(outcomes) < 100:
        try:
            outcomes.append(next(it))
        except StopIteration:
            break
        except Exception as error:
            outcomes.append((type(error).__name__, str(error)))
        outcomes.append(it.get_state())
    return outcomes


@settings(max_examples=60, deadline=None)
@given(iter_datasets(failing=True))
def test_elements_order_states_and_errors_stay_what_they_are(ds: Any) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WHOLEGRAIN_REPORT", "0")
        plain = _outcomes(iter(ds))
        patch.delenv("WHOLEGRAIN_REPORT")
        patch.setattr("wholegrain._observe.observed.Sampler", _Restless)
        assert difference(plain, _outcomes(iter(ds))) is None


def _numbers() -> Any:
    return wg.MapDataset.range(300).to_iter_dataset()


_PIPELINES: dict[str, Callable[[Any], Any]] = {
    "maps": lambda f: _numbers().map(f).map(lambda x: x).batch(4),
    "filter": lambda f: _numbers().map(f).filter(lambda x: x % 3 > 0),
    "thread": lambda f: experimental.ThreadPrefetchIterDataset(
        _numbers().map(f), prefetch_buffer_size=4
    ).map(lambda x: x),
    "threads": lambda f: experimental.multithread_prefetch(_numbers().map(f), 3, 2),
    "interleave in a thread": lambda f: experimental.ThreadPrefetchIterDataset(
        experimental.InterleaveIterDataset(
            [wg.MapDataset.range(n, n + 30).to_iter_dataset().map(f) for n in range(0, 300, 30)],
            cycle_length=3,
        ),
        prefetch_buffer_size=2,
    ),
    "mixture": lambda f: wg.IterDataset.mix([_numbers().map(f), _numbers().map(lambda x: -x)]),
}


@pytest.mark.parametrize("name", _PIPELINES)
@pytest.mark.usefixtures("_restless")
def test_a_function_runs_once_for_each_element(name: str) -> None:
    calls: Counter[int] = Counter()

    def counted(x: int) -> int:
        calls[x] += 1
        return x

    elements = list(_PIPELINES[name](counted))
    assert set(calls.values()) == {1}
    expected = list(_PIPELINES[name](lambda x: x))
    assert difference(expected, elements) is None


def test_clocks_go_where_elements_are_quick() -> None:
    it: Any = iter(wg.MapDataset.range(10**6).to_iter_dataset().map(lambda x: x))
    kinds = {type(it), type(it._parent)}
    before = {kind: dict(vars(kind)) for kind in kinds}
    seen = set()
    for _ in itertools.islice(it, 100_000):
        seen.add(isinstance(it._output, TimedIterator))
    assert seen == {True, False}
    assert {kind: dict(vars(kind)) for kind in kinds} == before  # No class was changed for it.
    assert type(it._parent).__name__ == "MapDatasetIterator"


@pytest.mark.usefixtures("_restless")
def test_a_closed_iterator_stays_closed() -> None:
    it: Any = iter(_numbers().map(lambda x: x).batch(2))
    next(it)
    it.close()
    it.set_clocks(True)
    it.set_clocks(False)
    with pytest.raises(ValueError, match="closed"):
        next(it)


def test_a_worker_that_keeps_next_into_is_not_timed_while_clocks_are_off() -> None:
    class Filled(ForwardingIterator[int]):
        def __next__(self) -> int:
            return next(self._iterator)

        def next_into(self, empty: Any) -> Any:
            return empty

    numbers = wg.MapDataset.range(1).to_iter_dataset()
    observed = Observed()
    iterator = Filled(iter(numbers))
    iterator.observed, iterator.observed_as = observed, numbers
    output: Any = OutputIterator(iterator)
    output.set_clocks(True)
    fill = output.next_into
    assert fill(7) == 7
    assert sum(times.elements for times in observed.stages.values()) == 1
    output.set_clocks(False)
    assert fill(8) == 8
    assert sum(times.elements for times in observed.stages.values()) == 1
    assert output.handed_out == 2
    assert not hasattr(OutputIterator(iter(numbers)), "next_into")


def test_clocks_keep_nothing_alive() -> None:
    it: Any = iter(_numbers().map(lambda x: x).batch(2))
    next(it)
    assert isinstance(it._output, TimedIterator)
    run = weakref.ref(it)
    del it
    gc.collect()
    assert run() is None


def test_a_call_is_counted_without_the_calls_in_it() -> None:
    timer = SelfTimer()
    outer = timer.begin()
    inner = timer.begin()
    within = timer.end(inner)
    timer.exclude(0.5)
    spent = timer.end(outer)
    assert within.own == within.elapsed
    assert spent.own == pytest.approx(spent.elapsed - within.elapsed - 0.5)
    assert timer.inner == spent.elapsed
    assert timer.depth == 0
