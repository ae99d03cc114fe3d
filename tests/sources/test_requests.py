"""The threads that send requests: when they start and end, and what is sent when."""

import random
import threading
import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from wholegrain.sources import RemoteOptions, set_remote_options
from wholegrain.sources._requests import Requests, UnansweredError


@pytest.fixture(name="four")
def _four() -> Iterator[Requests]:
    set_remote_options(RemoteOptions(max_connections=4))
    requests = Requests()
    yield requests
    set_remote_options(None)
    requests._stop()


def test_requests_are_done_while_idle_threads_end(
    four: Requests, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("wholegrain.sources._requests._IDLE_S", 0.002)
    options = RemoteOptions(hedge_after_s=None, deadline_s=1.0, timeout_s=1.0)
    pauses = random.Random(0)
    for number in range(300):
        assert four.one("s3://b/x", options, partial(int, number)) == number
        time.sleep(pauses.uniform(0.0019, 0.0023))


def test_a_thread_that_cannot_start_is_not_counted(
    four: Requests, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: Any) -> None:
        raise RuntimeError("can't start new thread")

    options = RemoteOptions(deadline_s=1.0, timeout_s=1.0)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", fail)
        for _ in range(5):
            with pytest.raises(RuntimeError, match="new thread"):
                four.one("s3://b/x", options, lambda: 1)
    assert four.one("s3://b/x", options, lambda: 1) == 1


@pytest.mark.parametrize("_", range(8))  # Either may be looked at first.
def test_an_answer_counts_more_than_the_error_of_the_second_request(four: Requests, _: int) -> None:
    sent: list[int] = []

    def send() -> str:
        sent.append(1)
        if len(sent) == 1:
            time.sleep(0.2)
            return "answer"
        raise PermissionError

    def slow() -> str:
        time.sleep(0.3)
        return "slow"

    options = RemoteOptions(hedge_after_s=0.1)
    assert four.all("s3://b/x", options, [slow, send]) == ["slow", "answer"]
    assert len(sent) == 2


def test_requests_that_wait_for_a_connection_are_neither_late_nor_sent_twice(
    four: Requests,
) -> None:
    sent: list[int] = []

    def send(number: int) -> int:
        sent.append(number)
        time.sleep(0.1)
        return number

    options = RemoteOptions(hedge_after_s=0.3, deadline_s=0.4, timeout_s=0.3)
    sends = [partial(send, number) for number in range(40)]
    assert four.all("s3://b/x", options, sends) == list(range(40))
    time.sleep(0.2)
    assert sorted(sent) == list(range(40))


def test_nothing_is_sent_after_the_answer(four: Requests) -> None:
    sent: list[int] = []

    def send() -> int:
        sent.append(1)
        if len(sent) == 1:
            time.sleep(0.3)
            raise OSError("status code: 503")
        return 1

    options = RemoteOptions(hedge_after_s=0.1, max_pause_s=0.1)
    assert four.one("s3://b/x", options, send) == 1
    time.sleep(0.8)
    assert len(sent) == 2


def test_the_last_attempt_is_made_at_the_deadline(four: Requests) -> None:
    sent: list[float] = []

    def send() -> None:
        sent.append(time.monotonic())
        raise OSError("status code: 503")

    options = RemoteOptions(hedge_after_s=None, deadline_s=1.0)
    with pytest.raises(UnansweredError, match=r"after .* attempts"):
        four.one("s3://b/x", options, send)
    assert 1.0 <= sent[-1] - sent[0] < 3.0


def test_a_library_that_ignores_its_time_out_does_not_keep_the_reader(
    four: Requests, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("wholegrain.sources._requests._GRACE_S", 0.1)
    released = threading.Event()
    options = RemoteOptions(hedge_after_s=None, deadline_s=0.2, timeout_s=0.1)
    try:
        with pytest.raises(
            UnansweredError, match=r"1 attempts in .* s; `RemoteOptions\(deadline_s"
        ):
            four.one("s3://b/x", options, released.wait)
    finally:
        released.set()
