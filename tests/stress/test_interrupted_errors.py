"""An interruption while an element fails, or right after it: each error is raised once."""

import contextlib
import os
import random
from collections.abc import Callable
from typing import Any

import pytest

import wholegrain as wg
from tests.stress.test_interruption import _interrupt, _places

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

_FAILING = (0, 5, 6, 11)
_CALLS_OF_NEXT = 14
_MOST_PLACES = 80


def _fails(x: int) -> int:
    if x in _FAILING:
        raise LookupError(x)
    return x


def _numbers() -> Any:
    return wg.MapDataset.range(12)


_PIPELINES: dict[str, Callable[[], Any]] = {
    "chunks": lambda: _numbers().to_iter_dataset().map(_fails),
    "random access": lambda: _numbers().map(_fails).to_iter_dataset(),
    "batches": lambda: _numbers().to_iter_dataset().map(_fails).batch(2),
    "window": lambda: wg.experimental.WindowShuffleIterDataset(
        _numbers().to_iter_dataset().map(_fails), window_size=3, seed=1
    ),
    "filter": lambda: _numbers().to_iter_dataset().filter(lambda x: _fails(x) % 3 > 0),
    "interleave": lambda: wg.experimental.InterleaveIterDataset(
        [_numbers().map(_fails).to_iter_dataset() for _ in range(2)], cycle_length=2
    ),
}


def _outcome(it: Any) -> Any:
    try:
        return str(next(it))
    except LookupError as error:
        return f"error {error}"
    except StopIteration:
        return "end"


@pytest.mark.parametrize("name", _PIPELINES)
def test_an_error_is_raised_once_wherever_an_interruption_comes(name: str) -> None:
    ds = _PIPELINES[name]()
    with contextlib.closing(iter(ds)) as it:
        want = [_outcome(it) for _ in range(_CALLS_OF_NEXT)]
    failed = [place for place, outcome in enumerate(want) if outcome.startswith("error")]
    assert failed
    for first in sorted({place for at in failed for place in (at, at + 1)} - {len(want)}):
        with contextlib.closing(iter(ds)) as it:
            for _ in range(first):
                _outcome(it)
            places = _places(ds, lambda it=it: _outcome(it))  # type: ignore[misc]
        if "INTERRUPT_ALL" not in os.environ:
            places = random.Random(first).sample(places, min(_MOST_PLACES, len(places)))
        for place in places:
            with contextlib.closing(iter(ds)) as it:
                got = [_outcome(it) for _ in range(first)]
                _interrupt(place, lambda it=it, got=got: got.append(_outcome(it)))  # type: ignore[misc]
                got += [_outcome(it) for _ in range(_CALLS_OF_NEXT - len(got))]
                assert got == want, place
