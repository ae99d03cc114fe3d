"""What a traceback shows when a user's function fails inside a pipeline."""

import os
import signal
import subprocess
import sys
import time
import traceback
import types
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import wholegrain as wg
from wholegrain import experimental

_HERE = __file__


@pytest.fixture(autouse=True)
def _mode_as_before() -> Iterator[None]:
    before = wg.config.py_traceback_filtering
    yield
    wg.config.update("py_traceback_filtering", before)


def _fails_at_five(element: int) -> int:
    if element == 5:
        raise ValueError("five")
    return element


class _Doubling(wg.DatasetIterator[Any]):
    """An iterator of the user's, between ours."""

    def __init__(self, parent: Any) -> None:
        super().__init__(parent)

    def __next__(self) -> Any:
        return 2 * next(self._parent)

    def get_state(self) -> Any:
        return self._parent.get_state()

    def set_state(self, state: Any) -> None:
        self._parent.set_state(state)


class _DoublingDataset(wg.IterDataset[Any]):
    def __iter__(self) -> wg.DatasetIterator[Any]:
        return _Doubling(self._parent.__iter__())


def _numbers() -> wg.MapDataset[int]:
    return wg.MapDataset.range(20)


_PIPELINES: dict[str, Callable[[], Any]] = {
    "by index": lambda: _numbers().map(_fails_at_five),
    "by index, several functions": lambda: _numbers().map(abs).map(_fails_at_five).batch(2),
    "in order": lambda: _numbers().to_iter_dataset().map(_fails_at_five),
    "batched": lambda: _numbers().to_iter_dataset().map(_fails_at_five).batch(2),
    "in a thread": lambda: experimental.ThreadPrefetchIterDataset(
        _numbers().to_iter_dataset().map(_fails_at_five), prefetch_buffer_size=2
    ),
    "in several threads": lambda: experimental.multithread_prefetch(
        _numbers().to_iter_dataset().map(_fails_at_five), 2, 1
    ),
    "in a worker": lambda: (
        _numbers()
        .map(_fails_at_five)
        .to_iter_dataset()
        .mp_prefetch(wg.MultiprocessingOptions(num_workers=1))
    ),
    "interleaved": lambda: experimental.InterleaveIterDataset(
        [_numbers().map(_fails_at_five), _numbers()], cycle_length=2
    ),
    "limited": lambda: experimental.LimitIterDataset(
        experimental.RepeatIterDataset(_numbers().to_iter_dataset().map(_fails_at_five)), 30
    ),
    "loader": lambda: wg.DataLoader(
        data_source=range(20),
        sampler=wg.samplers.SequentialSampler(20, wg.sharding.NoSharding()),
        operations=[_FailsAtFive()],
    ),
}


class _FailsAtFive(wg.transforms.Map):
    def map(self, element: int) -> int:
        return _fails_at_five(element)


def _error_of(pipeline: Any) -> ValueError:
    with pytest.raises(ValueError, match="five") as caught:
        for _ in pipeline:
            pass
    return caught.value


def _frames(error: BaseException) -> list[types.FrameType]:
    return [frame for frame, _ in traceback.walk_tb(error.__traceback__)]


def _files(error: BaseException) -> set[str]:
    return {frame.f_code.co_filename for frame in _frames(error)}


@pytest.mark.parametrize("name", _PIPELINES)
def test_only_frames_of_the_user_are_left(name: str) -> None:
    wg.config.update("py_traceback_filtering", "quiet_remove_frames")
    error = _error_of(_PIPELINES[name]())
    assert _files(error) == {_HERE}
    assert _frames(error)[-1].f_code.co_name == "_fails_at_five"
    notes = [note for note in error.__notes__ if "py_traceback_filtering" in note]
    assert len(notes) == 1


@pytest.mark.parametrize("name", ["batched", "in a worker"])
def test_off_shows_all_frames(name: str) -> None:
    wg.config.update("py_traceback_filtering", "off")
    error = _error_of(_PIPELINES[name]())
    assert any("wholegrain" in file and file != _HERE for file in _files(error))
    assert _frames(error)[-1].f_code.co_name == "_fails_at_five"
    assert not any("py_traceback_filtering" in note for note in error.__notes__)


@pytest.mark.parametrize("name", ["batched", "in a thread", "in a worker"])
def test_the_whole_traceback_can_be_kept_as_the_cause(name: str) -> None:
    wg.config.update("py_traceback_filtering", "remove_frames")
    error = _error_of(_PIPELINES[name]())
    assert _files(error) == {_HERE}
    cause = error.__cause__
    assert type(cause).__name__ == "UnfilteredStackTraceError"
    assert cause is not None
    functions = [frame.f_code.co_name for frame in _frames(cause)]
    assert functions[0] == "__next__"
    assert functions[-1] == "_fails_at_five"


def test_a_cause_stays_visible_behind_the_whole_traceback() -> None:
    def fails(element: int) -> int:
        raise ValueError("five") from KeyError("the reason")

    wg.config.update("py_traceback_filtering", "remove_frames")
    error = _error_of(_numbers().map(fails))
    assert error.__cause__ is not None
    assert isinstance(error.__cause__.__cause__, KeyError)


def test_frames_can_be_marked_as_hidden() -> None:
    wg.config.update("py_traceback_filtering", "tracebackhide")
    error = _error_of(_PIPELINES["batched"]())
    for frame in _frames(error):
        internal = frame.f_code.co_filename != _HERE
        assert frame.f_locals.get("__tracebackhide__", False) == internal


def test_under_ipython_frames_are_hidden_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    wg.config.update("py_traceback_filtering", "auto")
    ipython = types.ModuleType("IPython")
    ipython.version_info = (8, 0, 0)  # type: ignore[attr-defined]
    ipython.get_ipython = object  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    error = _error_of(_PIPELINES["batched"]())
    assert any(frame.f_locals.get("__tracebackhide__") for frame in _frames(error))
    ipython.get_ipython = lambda: None  # type: ignore[attr-defined]
    assert _files(_error_of(_PIPELINES["batched"]())) == {_HERE}


def test_frames_of_the_users_iterators_stay() -> None:
    wg.config.update("py_traceback_filtering", "quiet_remove_frames")
    ours = _DoublingDataset(_numbers().to_iter_dataset().map(_fails_at_five))
    functions = [frame.f_code.co_name for frame in _frames(_error_of(ours.batch(2)))]
    assert functions[-2:] == ["__next__", "_fails_at_five"]
    assert _files(_error_of(ours.batch(2))) == {_HERE}
    assert _files(_error_of(ours)) == {_HERE}


def test_the_frame_that_raised_stays_even_if_it_is_ours() -> None:
    it: wg.DatasetIterator[Any] = iter(_numbers().to_iter_dataset().batch(2))
    it.close()
    with pytest.raises(ValueError, match="closed") as caught:
        next(it)
    assert _frames(caught.value)[-1].f_code.co_filename != _HERE


@pytest.mark.parametrize("kind", ["loader", "dataset"])
def test_an_interrupt_shows_the_users_frames_alone(kind: str) -> None:
    def interrupted(signal_number: int, frame: object) -> None:
        raise KeyboardInterrupt

    # It arrives while the library waits for a worker.
    pipelines: dict[str, Any] = {
        "loader": wg.load(range(9), transformations=[_Sleeps()], worker_count=1),
        "dataset": _numbers()
        .map(_Sleeps())
        .to_iter_dataset()
        .mp_prefetch(wg.MultiprocessingOptions(1)),
    }
    before = signal.signal(signal.SIGALRM, interrupted)
    try:
        it = iter(pipelines[kind])
        next(it)
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        with pytest.raises(KeyboardInterrupt) as caught, it:
            for _ in it:
                pass
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert _files(caught.value) == {_HERE}


class _Sleeps(wg.transforms.Map):
    def map(self, element: int) -> int:
        time.sleep(0.1 if element == 0 else 60)
        return element


def test_reading_by_index_shows_all_frames() -> None:
    with pytest.raises(ValueError, match="five") as caught:
        _numbers().map(_fails_at_five)[5]
    assert len(_files(caught.value)) > 1


def test_the_end_is_no_error() -> None:
    it: wg.DatasetIterator[Any] = iter(_numbers().to_iter_dataset().batch(20))
    next(it)
    with pytest.raises(StopIteration) as caught:
        next(it)
    assert not hasattr(caught.value, "__notes__")


def test_a_signal_at_an_instruction_without_a_line_keeps_its_exception() -> None:
    def with_a_cell() -> Any:  # Its first instruction, which makes the cell, has no line.
        cell = sys._getframe()
        return cell, lambda: cell

    def raise_there(element: int) -> int:
        error = ValueError("interrupted")
        raise error.with_traceback(types.TracebackType(None, with_a_cell()[0], 0, -1))

    with pytest.raises(ValueError, match="interrupted") as caught:
        next(iter(wg.MapDataset.range(3).map(raise_there).to_iter_dataset()))
    entries = [entry.tb_lineno for entry in _traces(caught.value.__traceback__)]
    assert None in entries


def _traces(trace: types.TracebackType | None) -> Iterator[types.TracebackType]:
    while trace is not None:
        yield trace
        trace = trace.tb_next


def test_ctrl_c_in_the_loop_shows_the_loop_alone() -> None:
    program = """
import time, wholegrain as wg
def slow(x):
    time.sleep(0.05)
    return x
ds = wg.MapDataset.range(10**6).to_iter_dataset().map(slow)
it = iter(ds.mp_prefetch(wg.MultiprocessingOptions(num_workers=1)))
next(it)
print("runs", flush=True)
while True:
    next(it)
"""
    command = [sys.executable, "-c", program]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as running:
        assert running.stdout is not None
        assert running.stdout.readline() == "runs\n"
        time.sleep(0.3)
        running.send_signal(signal.SIGINT)
        _, text = running.communicate(timeout=30)
    assert "KeyboardInterrupt" in text
    assert os.sep + "wholegrain" + os.sep not in text
