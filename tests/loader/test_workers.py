"""A DataLoader with worker processes."""

import gc
import itertools
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import wholegrain as wg
from wholegrain.samplers import IndexSampler, SequentialSampler
from wholegrain.sharding import ShardOptions
from wholegrain.transforms import Batch, Filter, FlatMap, Map, MapWithIndex, RandomMap

_END = "the end"


class _Map(Map):
    def __init__(self, function: Callable[[Any], Any]) -> None:
        self._function = function

    def map(self, element: Any) -> Any:
        return self._function(element)


class _Keep(Filter):
    def __init__(self, divisor: int) -> None:
        self._divisor = divisor

    def filter(self, element: int) -> bool:
        return element % self._divisor == 0


class _Repeat(FlatMap):
    max_fan_out = 2

    def flat_map(self, element: int) -> list[int]:
        return [element] * (element % 3)


class _Draw(RandomMap):
    def random_map(self, element: int, rng: np.random.Generator) -> tuple[int, int]:
        return element, int(rng.integers(2**40))


class _Number(MapWithIndex):
    def map_with_index(self, index: int, element: int) -> tuple[int, int]:
        return index, element


def _loader(source: Any, *operations: Any, workers: int = 2, **arguments: Any) -> wg.DataLoader:
    return wg.DataLoader(
        **{
            "data_source": source,
            "sampler": SequentialSampler(len(source), seed=1),
            "operations": operations,
            "worker_count": workers,
            **arguments,
        }
    )


# The order.


def _rotated(streams: Iterable[Iterable[Any]]) -> Iterator[Any]:
    """Take an element of each stream in turn, leaving out those that have ended."""
    live = [iter(stream) for stream in streams]
    ended = [False] * len(live)
    for worker in itertools.cycle(range(len(live))):
        if all(ended):
            return
        if not ended[worker]:
            element = next(live[worker], _END)
            if isinstance(element, str):
                ended[worker] = True
            else:
                yield element


@settings(max_examples=12)
@given(
    num_records=st.integers(3, 17),
    workers=st.integers(1, 3),
    divisor=st.integers(1, 3),
    batch_size=st.none() | st.integers(1, 3),
    flat=st.booleans(),
)
def test_each_worker_has_every_nth_record_and_they_take_turns(
    num_records: int, workers: int, divisor: int, batch_size: int | None, flat: bool
) -> None:
    operations: list[Any] = [_Keep(divisor)]
    operations += [_Repeat()] if flat else []
    operations += [Batch(batch_size, batch_fn=tuple)] if batch_size else []
    expected = _rotated(
        _loader(range(num_records)[worker::workers], *operations, workers=0)
        for worker in range(workers)
    )
    with iter(_loader(range(num_records), *operations, workers=workers)) as it:
        assert list(it) == list(expected)


def test_operations_on_single_elements_give_the_same_for_any_number_of_workers() -> None:
    sampler = IndexSampler(11, ShardOptions(1, 2), shuffle=True, num_epochs=3, seed=4)
    expected = list(_loader(range(11), _Draw(), sampler=sampler, workers=0))
    for workers in (1, 3):
        with iter(_loader(range(11), _Draw(), sampler=sampler, workers=workers)) as it:
            assert list(it) == expected


def test_an_index_is_the_place_in_the_loaders_stream() -> None:
    with iter(_loader("abcdef", _Number(), workers=3)) as it:
        assert list(it) == list(enumerate("abcdef"))


def test_arrays_belong_to_whoever_got_them() -> None:
    with iter(_loader([np.full((3, 4), i) for i in range(6)], Batch(2))) as it:
        batches = list(it)
    assert [batch[:, 0, 0].tolist() for batch in batches] == [[0, 2], [1, 3], [4], [5]]
    for batch in batches:
        assert isinstance(batch, np.ndarray)
        batch += 1
    assert batches[0][1, 2, 3] == 3


# Starting and stopping.


class _Watched:
    """Leaves a file behind when it is sent to a worker."""

    def __init__(self, folder: Path) -> None:
        self._sent = folder / "sent"

    def was_sent(self) -> bool:
        return self._sent.exists()

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> tuple[int, int]:
        return index, os.getpid()

    def __repr__(self) -> str:
        return "_Watched()"

    def __getstate__(self) -> dict[str, Any]:
        self._sent.touch()
        return self.__dict__


def test_workers_start_with_the_first_element(tmp_path: Path) -> None:
    source = _Watched(tmp_path)
    with iter(_loader(source)) as it:
        it.get_state()
        assert not source.was_sent()
        assert next(it)[0] == 0
        assert source.was_sent()


def test_start_prefetch_starts_the_workers(tmp_path: Path) -> None:
    source = _Watched(tmp_path)
    with iter(_loader(source)) as it:
        it.start_prefetch()
        assert source.was_sent()
        it.start_prefetch()
        assert [index for index, _ in it] == list(range(8))


def _has_ended(pid: int) -> bool:
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return True
    return status.rpartition(")")[2].split()[0] == "Z"


def _wait_until(condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + 60
    while not condition():
        if time.monotonic() > deadline:
            return False
        gc.collect()
        time.sleep(0.01)
    return True


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="asks /proc about processes")
def test_workers_end_when_the_iterator_is_closed_or_dropped(tmp_path: Path) -> None:
    for close in (True, False):
        it: Any = iter(_loader(_Watched(tmp_path)))
        pids = {next(it)[1], next(it)[1]}
        assert len(pids) == 2
        assert os.getpid() not in pids
        if close:
            it.close()
            with pytest.raises(ValueError, match="closed iterator"):
                next(it)
        del it
        assert _wait_until(lambda pids=pids: all(map(_has_ended, pids)))  # type: ignore[misc]


def test_a_restored_iterator_keeps_its_workers(tmp_path: Path) -> None:
    with iter(_loader(_Watched(tmp_path))) as it:
        first = [next(it) for _ in range(3)]
        state = it.get_state()
        rest = list(it)
        it.set_state(state)
        assert list(it) == rest
        assert {pid for _, pid in first} == {pid for _, pid in rest}


# Elements and errors that are hard to send. They are those of a script without a main guard, read
# from the standard input, as workers cannot import it.

_PRELUDE = """
import sys, threading, typing
import wholegrain as wg

class Point(typing.NamedTuple):
    x: int

class Thing:
    def __init__(self, x):
        self.x = x

class OwnError(Exception):
    def __init__(self, x, *, reason):
        super().__init__(x, reason)

class Convert(wg.transforms.Map):
    def map(self, x):
        return convert(x)

def loader(count=4, workers=2):
    return wg.DataLoader(
        data_source=range(count),
        sampler=wg.samplers.SequentialSampler(count),
        operations=[Convert()],
        worker_count=workers,
    )

def outcomes(it):
    while True:
        try:
            yield next(it)
        except StopIteration:
            return
        except Exception as error:
            yield error
"""


def _printed(script: str) -> list[str]:
    run = subprocess.run(
        [sys.executable, "-W", "error", "-"],
        input=_PRELUDE + script,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    return run.stdout.splitlines()


def test_objects_of_classes_of_the_script_come_from_workers() -> None:
    printed = _printed(
        """
def convert(x):
    return [Point(x), Thing(x), lambda y: x + y]

for point, thing, add in loader():
    print(point, type(point) is Point, type(thing) is Thing, thing.x, add(10))
"""
    )
    assert printed == [f"Point(x={x}) True True {x} {x + 10}" for x in range(4)]


def test_what_cannot_be_sent_is_an_error_in_its_place() -> None:
    printed = _printed(
        """
def convert(x):
    return threading.Lock() if x == 1 else x

for outcome in outcomes(iter(loader())):
    print(outcome if isinstance(outcome, int) else isinstance(outcome, TypeError), outcome)
"""
    )
    assert [line.split()[0] for line in printed] == ["0", "True", "2", "3"]
    assert "lock" in printed[1]


def test_errors_of_classes_of_the_script_come_from_workers() -> None:
    printed = _printed(
        """
def convert(x):
    if x == 1:
        raise OwnError(x, reason="bad")
    if x == 2:
        raise StopIteration
    return x

for outcome in outcomes(iter(loader(6))):
    print(outcome if isinstance(outcome, int) else f"{type(outcome).__name__} {outcome}")
"""
    )
    assert printed[0] == "0"
    assert "OwnError" in printed[1]
    assert "bad" in printed[1]
    assert "RuntimeError" in printed[2]
    assert "StopIteration" in printed[2]
    # Each worker goes on behind its error.
    assert printed[3:] == ["3", "4", "5"]


@pytest.mark.parametrize("code", [0, 3])
def test_a_worker_that_ends_by_itself_is_an_error(code: int) -> None:
    printed = _printed(
        f"""
def convert(x):
    if x == 2:
        sys.exit({code})
    return x

it = iter(loader())
print(next(it), next(it))
try:
    print(next(it))
except RuntimeError as error:
    print("RuntimeError", "{code}" in str(error))
it.close()
"""
    )
    assert printed == ["0 1", "RuntimeError True"]


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_after_an_error_the_others_come_in_their_order(workers: int) -> None:
    def fail(element: int) -> int:
        if element in (2, 5):
            raise KeyError(element)
        return element

    loader = _loader(range(9), _Map(fail), workers=workers)
    with iter(loader) as it:
        found: list[Any] = []
        states = []
        for _ in range(9):
            try:
                found.append(next(it))
            except KeyError as error:
                found.append(error.args)
            states.append(it.get_state())
        assert next(it, _END) == _END
    assert found == [0, 1, (2,), 3, 4, (5,), 6, 7, 8]
    assert len(set(states)) == 9
    with iter(loader) as it:
        it.set_state(states[2])
        assert next(it) == 3
        assert next(it) == 4


# States.


def test_a_state_of_another_number_of_workers_is_refused_where_it_means_something_else() -> None:
    batches = wg.transforms.Batch(2)
    state = iter(_loader(range(8), batches, workers=2)).get_state()
    for workers in (0, 3):
        with pytest.raises(ValueError, match=f"worker_count=2, but.*worker_count={workers}"):
            iter(_loader(range(8), batches, workers=workers)).set_state(state)


def test_states_of_earlier_writers_count_the_last_worker_otherwise() -> None:
    loader = _loader(range(8), workers=2)
    with iter(loader) as it:
        elements = [next(it) for _ in range(4)]
        state = json.loads(it.get_state())
        assert elements == [0, 1, 2, 3]
        assert state["last_worker_index"] == -1
        it.set_state({**state, "last_worker_index": 1})
        assert list(it) == [4, 5, 6, 7]


def test_a_flat_map_in_workers_is_restored_in_the_middle_of_an_element() -> None:
    loader = _loader(range(9), _Repeat())
    with iter(loader) as it:
        elements = []
        states = [it.get_state()]
        for element in it:
            elements.append(element)
            states.append(it.get_state())
        for count, state in enumerate(states):
            it.set_state(state)
            assert list(it) == elements[count:]
        with pytest.raises(ValueError, match="worker_count=2"):
            it.set_state({"parent": {"next_index": 0}, "next_index_in_buffer": 0})


def test_a_position_outside_of_the_data_is_refused() -> None:
    with iter(_loader(range(8))) as it:
        state = json.loads(it.get_state())
        state["last_seen_indices"]["1"] = 1001

        def restore_and_read() -> None:
            it.set_state(state)
            list(it)

        with pytest.raises(IndexError):
            restore_and_read()
