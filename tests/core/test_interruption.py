"""What counts as an interruption."""

import functools
import signal
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from wholegrain._core.interruption import is_interruption


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    before = signal.getsignal(signal.SIGUSR1)
    yield
    signal.signal(signal.SIGUSR1, before)


def _raise(*_: object) -> None:
    raise TimeoutError("the time is over")


class _Handler:
    def __call__(self, *_: object) -> None:
        _raise()

    def method(self, *_: object) -> None:
        _raise()


def _caught(function: Callable[[], Any]) -> BaseException:
    try:
        function()
    except BaseException as error:
        return error
    raise AssertionError("Nothing was raised.")


@pytest.mark.parametrize(
    "handler",
    [_raise, _Handler(), _Handler().method, functools.partial(_raise, 1), lambda *_: _raise()],
    ids=["function", "object", "method", "partial", "lambda"],
)
def test_what_a_signal_handler_raises_is_an_interruption(handler: Any) -> None:
    signal.signal(signal.SIGUSR1, handler)
    assert is_interruption(_caught(lambda: signal.raise_signal(signal.SIGUSR1)))


def test_what_a_function_raises_is_none() -> None:
    signal.signal(signal.SIGUSR1, lambda *_: None)
    assert not is_interruption(_caught(lambda: 1 // 0))
    assert not is_interruption(ValueError("never raised"))


def test_a_handler_may_take_itself_away_before_it_raises() -> None:
    def give_up(number: int, frame: Any) -> None:
        signal.signal(number, signal.SIG_DFL)
        _raise()

    signal.signal(signal.SIGUSR1, give_up)
    assert is_interruption(_caught(lambda: signal.raise_signal(signal.SIGUSR1)))


def test_control_c_is_one() -> None:
    assert is_interruption(_caught(lambda: signal.raise_signal(signal.SIGINT)))


def test_a_function_that_ends_the_program_is_none() -> None:
    assert not is_interruption(_caught(lambda: sys.exit(1)))
