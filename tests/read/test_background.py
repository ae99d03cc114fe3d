"""A thread that runs ahead: bounded, in order, and gone when it has to be."""

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.graph.tools import eventually, finishes, our_threads
from wholegrain._read.background import Background
from wholegrain._read.waiting import Probe


class Steps:
    """Counts up; raises at `stop`."""

    def __init__(self, stop: int, error: BaseException | None = None, seconds: float = 0.0) -> None:
        self.count = 0
        self._stop, self._error, self._seconds = stop, error or StopIteration(), seconds

    def step(self) -> tuple[Any, Any]:
        if self._seconds:
            time.sleep(self._seconds)
        if self.count >= self._stop:
            raise self._error
        self.count += 1
        return self.count - 1, self.state()

    def state(self) -> Any:
        return {"count": self.count}


def _started(background: Background) -> Background:
    background.start()
    return background


def _drain(background: Background) -> list[tuple[Any, Any]]:
    found = []
    while True:
        found.append(background.take())
        if Background.error_of(found[-1][0]) is not None:
            return found


@pytest.mark.parametrize("buffer_size", [1, 2, 100])
@pytest.mark.parametrize("producer_seconds", [0.0, 0.0005])
@pytest.mark.parametrize("consumer_seconds", [0.0, 0.0005])
def test_results_come_in_order_with_their_states(
    buffer_size: int, producer_seconds: float, consumer_seconds: float
) -> None:
    steps = Steps(60, seconds=producer_seconds)
    background = _started(Background(steps.step, steps.state, buffer_size))

    def run() -> None:
        for number in range(60):
            assert background.take() == (number, {"count": number + 1})
            if consumer_seconds:
                time.sleep(consumer_seconds)
        end, state = background.take()
        assert isinstance(Background.error_of(end), StopIteration)
        assert state == {"count": 60}

    finishes(run)
    background.stop()


@pytest.mark.parametrize("buffer_size", [1, 3])
def test_no_more_wait_than_the_buffer_holds(buffer_size: int) -> None:
    steps = Steps(10**9)
    background = _started(Background(steps.step, steps.state, buffer_size))
    assert eventually(lambda: steps.count >= buffer_size)
    time.sleep(0.02)
    assert steps.count == buffer_size
    for taken in range(1, 100):
        background.take()
        assert steps.count <= taken + buffer_size
    background.stop()


@pytest.mark.parametrize("error", [ValueError("x"), SystemExit(), KeyboardInterrupt()], ids=repr)
def test_an_exception_comes_in_its_place_and_ends_the_thread(error: BaseException) -> None:
    steps = Steps(3, error)
    background = _started(Background(steps.step, steps.state, 10))
    found = finishes(lambda: _drain(background))
    assert [element for element, _ in found[:3]] == [0, 1, 2]
    assert Background.error_of(found[3][0]) is error
    assert found[3][1] == {"count": 3}
    assert Background.error_of(found[0][0]) is None
    assert eventually(lambda: not our_threads())


def test_a_state_that_cannot_be_told_is_none() -> None:
    steps = Steps(0, ValueError("x"))

    def state() -> Any:
        raise OSError("gone")

    background = _started(Background(steps.step, state, 1))
    (found,) = finishes(lambda: _drain(background))
    assert str(Background.error_of(found[0])) == "x"
    assert found[1] is None


def test_stop_waits_for_the_step_that_runs() -> None:
    release = threading.Event()
    inside = threading.Event()

    def step() -> tuple[Any, Any]:
        inside.set()
        release.wait(30)
        return 1, 2

    background = _started(Background(step, lambda: None, 1))
    assert inside.wait(30)
    background.stop(wait=False)
    assert our_threads()
    release.set()
    background.stop()
    assert not our_threads()


def test_stop_may_be_called_from_inside() -> None:
    holder: list[Background] = []
    started = threading.Event()

    def step() -> tuple[Any, Any]:
        started.wait(30)
        holder[0].stop()
        return 1, 2

    holder.append(_started(Background(step, lambda: None, 1)))
    started.set()
    assert eventually(lambda: not our_threads())


def test_a_waiting_producer_is_woken_to_stop() -> None:
    steps = Steps(10**9)
    background = _started(Background(steps.step, steps.state, 1))
    assert eventually(lambda: steps.count == 1)
    finishes(background.stop)
    assert not our_threads()


def _probed(probe: Probe, function: Callable[[], Any], calls: int) -> list[bool]:
    found = []
    for _ in range(calls):
        if probe.due():
            probe.begin()
            function()
            found.append(probe.waited())
    return found


def test_a_probe_looks_at_one_of_many() -> None:
    assert len(_probed(Probe(), lambda: None, 1000)) in range(5, 100)
    assert len(_probed(Probe(), lambda: None, 1)) == 1


def test_a_probe_knows_waiting_from_working() -> None:
    def sleep() -> None:
        time.sleep(0.003)

    def work() -> None:
        end = time.thread_time() + 0.002
        while time.thread_time() < end:
            pass

    assert all(_probed(Probe(), sleep, 200))
    assert not any(_probed(Probe(), lambda: None, 200))
    # On a busy machine a thread is stopped now and then; that is not waiting.
    assert not all(_probed(Probe(), work, 300))


@pytest.mark.parametrize(("seconds", "stays"), [(0.02, True), (0.0, False)])
def test_a_step_that_makes_many_elements_counts_for_those_after_it(
    seconds: float, stays: bool
) -> None:
    made = 0

    def step() -> tuple[int, int]:
        nonlocal made
        until = time.thread_time() + seconds * (made % 64 == 0)
        while time.thread_time() < until:
            pass
        made += 1
        return made, made

    background = Background(step, lambda: None, 8, steps_to_judge=16)
    background.start()
    got = finishes(lambda: [background.take() for _ in range(320 if stays else 1000)])
    background.stop()
    assert (None in got) != stays
