import os
import subprocess
import sys
import threading
import traceback
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.workers.iterators import remote
from wholegrain._workers.failures import WorkerError, describe_exit, pack_error, unpack_error


class OddError(Exception):
    """Pickles, but does not come back: its __init__ asks for more than its args."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(f"{reason} ({code})")
        self.code = code


class HoldsLockError(Exception):
    """Does not pickle."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.lock = threading.Lock()
        self.number = 5


def caught(function: Any) -> BaseException:
    try:
        function()
    except BaseException as error:
        return error
    raise AssertionError("It did not raise.")


def there_and_back(function: Any) -> BaseException:
    return unpack_error(pack_error(caught(function)))


def test_class_arguments_and_attributes_arrive() -> None:
    def fail() -> None:
        error = KeyError("a", 1)
        error.extra = np.arange(3)  # type: ignore[attr-defined]
        error.add_note("see there")
        raise error

    error = there_and_back(fail)
    assert type(error) is KeyError
    assert error.args == ("a", 1)
    assert list(error.extra) == [0, 1, 2]  # type: ignore[attr-defined]
    assert error.__notes__ == ["see there"]


def test_errors_with_their_own_init_arrive_as_themselves() -> None:
    def fail() -> None:
        raise OddError(3, "odd")

    error = there_and_back(fail)
    assert type(error) is OddError
    assert error.args == ("odd (3)",)
    assert error.code == 3


def test_what_does_not_pickle_is_replaced_by_its_text() -> None:
    def fail() -> None:
        raise HoldsLockError("held")

    error = there_and_back(fail)
    assert type(error) is HoldsLockError
    assert str(error) == "held"
    assert error.number == 5
    assert "lock" in str(error.lock)


def test_errors_of_the_system_keep_their_number() -> None:
    error = there_and_back(lambda: os.stat("/no/such/file"))
    assert type(error) is FileNotFoundError
    assert error.errno == 2
    assert error.filename == "/no/such/file"


def test_a_class_that_cannot_be_sent_is_described() -> None:
    class LocalError(Exception):
        lock = threading.Lock()

    def fail() -> None:
        raise LocalError("in the way")

    error = there_and_back(fail)
    assert type(error) is WorkerError
    assert "LocalError" in error.type_name
    assert error.message == "in the way"
    assert "raise LocalError" in str(error)


def test_the_traceback_shows_the_lines_of_the_worker() -> None:
    def inner(a: int, b: int) -> float:
        return 1 + a / b

    def outer() -> float:
        return inner(1, 0)

    error = caught(outer)
    copy = unpack_error(pack_error(error))
    lines = [line for line in _lines(error) if "~" not in line and "^" not in line]
    assert _lines(copy) == lines
    assert "    return 1 + a / b" in lines
    expected = [(f.filename, f.lineno, f.name) for f in traceback.extract_tb(error.__traceback__)]
    found = traceback.extract_tb(copy.__traceback__)
    assert [(f.filename, f.lineno, f.name) for f in found] == expected


def _lines(error: BaseException) -> list[str]:
    return "".join(traceback.format_exception(error)).splitlines()


def test_the_terminal_shows_the_lines_of_the_worker(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(_FAILING_SCRIPT)
    ended = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False)
    lines = ended.stderr.splitlines()
    place = lines.index(f'  File "{script}", line 4, in fails')
    assert lines[place + 1] == "    return 1 // number"
    assert lines[place + 2].startswith("ZeroDivisionError: ")
    assert any(line.startswith("Worker 0 of 1 (process") for line in lines[place + 3 :])


_FAILING_SCRIPT = """\
import wholegrain as wg

def fails(number):
    return 1 // number

ds = wg.MapDataset.range(3).map(fails).to_iter_dataset()
list(ds.mp_prefetch(wg.MultiprocessingOptions(num_workers=1)))
"""


def test_causes_and_contexts_arrive() -> None:
    def cause() -> None:
        try:
            raise ValueError("first")
        except ValueError as error:
            raise TypeError("second") from error

    def context() -> None:
        try:
            cause()
        except TypeError:
            raise KeyError("third")  # noqa: B904

    error = there_and_back(context)
    assert isinstance(error.__context__, TypeError)
    assert isinstance(error.__context__.__cause__, ValueError)
    assert 'raise ValueError("first")' in "".join(traceback.format_exception(error))


@pytest.mark.parametrize(
    ("code", "text"),
    [
        (3, "3"),
        (0, "0"),
        (None, "unknown (the process that starts workers has ended, too)"),
        (-9, "-9 (SIGKILL: killed from outside, most often because memory ran out)"),
        (-11, "-11 (SIGSEGV: a crash in native code)"),
        (-10, "-10 (SIGUSR1)"),
    ],
)
def test_exit_codes_are_explained(code: int | None, text: str) -> None:
    assert describe_exit(code) == text


def fails_at_3(number: int) -> Any:
    if number == 3:
        raise OddError(number, "three")
    return np.full(10_000, number)


def test_an_error_takes_the_place_of_its_element() -> None:
    iterator = remote(6, fails_at_3)
    assert [int(next(iterator)[0]) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(OddError) as error:
        next(iterator)
    assert error.value.code == 3
    assert iterator.get_state() == {"next_index": 4}
    trace = "".join(traceback.format_exception(error.value))
    assert 'raise OddError(number, "three")' in trace
    assert "in fails_at_3" in trace
    assert "worker.py" not in trace
    assert "Worker 0 of 1 (process" in trace
    assert "raised this." in trace
    assert [int(array[0]) for array in iterator] == [4, 5]


def test_what_cannot_be_pickled_is_an_error_in_its_place() -> None:
    def function(number: int) -> Any:
        return (n for n in range(3)) if number == 2 else number

    iterator = remote(4, function)
    assert [next(iterator), next(iterator)] == [0, 1]
    with pytest.raises(
        TypeError, match=r"element is a builtins\.generator, which cannot be pickled"
    ):
        next(iterator)
    assert list(iterator) == [3]


def test_an_error_while_setting_up_comes_every_time() -> None:
    def fail(index: int, count: int) -> None:
        raise LookupError(f"no worker {index} of {count}")

    iterator = remote(4, worker_init_fn=fail)
    for _ in range(2):
        with pytest.raises(LookupError, match="no worker 0 of 1") as caught_error:
            next(iterator)
        assert "while it was being set up" in "".join(caught_error.value.__notes__)


def test_a_state_that_does_not_fit_is_an_error_at_the_next_element() -> None:
    iterator = remote(4)
    assert next(iterator) == 0
    iterator.set_state({"wrong": 1})
    with pytest.raises(KeyError, match="next_index"):
        next(iterator)
    iterator.set_state({"next_index": 2})
    assert list(iterator) == [2, 3]
