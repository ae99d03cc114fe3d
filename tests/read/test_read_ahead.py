"""Chunks come in order, whoever reads them, and however often that changes."""

import random
import threading
import time
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from tests.graph.tools import eventually, finishes, our_threads
from wholegrain._read import reader_count
from wholegrain._read.cost import Cost
from wholegrain._read.handover import Handover
from wholegrain._read.read_ahead import ReadAhead
from wholegrain._read.waiting import ThreadTimes

Read = Callable[[int, int], Sequence[Any]]


def _reader(read: Read, stop: int, **options: Any) -> ReadAhead[Any]:
    settings: dict[str, Any] = {"num_threads": 4, "buffer_size": 20, "largest_chunk": 64}
    settings |= {"size_of": lambda _: 8, **options}
    return ReadAhead(read, 0, stop, **settings)


def _numbers(first: int, last: int) -> list[int]:
    return list(range(first, last))


def _sleepy(first: int, last: int) -> list[int]:
    time.sleep(0.002)
    return list(range(first, last))


def _all(reader: ReadAhead[Any], stop: int, found: Sequence[Any] = ()) -> list[Any]:
    """Read to the end."""
    found = list(found)
    try:
        while len(found) < stop:
            end, chunk = reader.next_chunk()
            found += chunk
            assert len(found) == end
    finally:
        reader.close()
    return found


@pytest.mark.parametrize("num_threads", [0, 1, 4, 32])
@pytest.mark.parametrize("buffer_size", [1, 2, 20])
@pytest.mark.parametrize("read", [_numbers, _sleepy])
def test_chunks_are_in_order(read: Read, num_threads: int, buffer_size: int) -> None:
    reader = _reader(read, 50, num_threads=num_threads, buffer_size=buffer_size)
    assert finishes(lambda: _all(reader, 50)) == list(range(50))


def test_quick_reads_need_no_threads() -> None:
    names = set()

    def read(first: int, last: int) -> list[int]:
        names.add(threading.current_thread())
        return _numbers(first, last)

    reader = _reader(read, 5000)
    assert _all(reader, 5000) == list(range(5000))
    assert names == {threading.current_thread()}


def test_reads_that_wait_get_threads() -> None:
    names = set()

    def read(first: int, last: int) -> list[int]:
        names.add(threading.current_thread().name)
        time.sleep(0.01)
        return _numbers(first, last)

    reader = _reader(read, 60, largest_chunk=1)
    assert finishes(lambda: _all(reader, 60)) == list(range(60))
    assert len(names) > 2


@pytest.mark.parametrize("waits", [True, False])
def test_the_buffer_fills_after_a_slow_first_read(waits: bool) -> None:
    reads: list[int] = []

    def read(first: int, last: int) -> list[int]:
        reads.extend(range(first, last))
        if waits:
            time.sleep(0.01)
        else:
            end = time.thread_time() + 0.01
            while time.thread_time() < end:
                pass
        return _numbers(first, last)

    reader = _reader(read, 1000, buffer_size=6, largest_chunk=1)
    assert reader.next_chunk() == (1, [0])
    assert eventually(lambda: len(reads) == 7)
    assert finishes(lambda: _all(reader, 20, found=[0])) == list(range(20))


def test_the_first_read_alone_does_not_make_threads_stay() -> None:
    """It may have opened files, or imported modules."""
    readers: list[threading.Thread] = []

    def read(first: int, last: int) -> list[int]:
        readers.append(threading.current_thread())
        if not first:
            time.sleep(0.02)
        return _numbers(first, last)

    reader = _reader(read, 100_000)
    assert finishes(lambda: _all(reader, 100_000)) == list(range(100_000))
    assert readers.count(readers[-1]) > len(readers) // 2  # The consumer's thread.
    assert readers[-1].name == "consumer"


def test_reads_that_begin_to_wait_are_noticed() -> None:
    names = set()

    def read(first: int, last: int) -> list[int]:
        if first > 3000:
            names.add(threading.current_thread().name)
            time.sleep(0.01)
        return _numbers(first, last)

    reader = _reader(read, 9000)
    assert finishes(lambda: _all(reader, 9000)) == list(range(9000))
    assert len(names) > 2


def _all_with_errors(reader: ReadAhead[Any], stop: int) -> list[str]:
    """Read to the end, and return what was raised on the way."""
    found: list[Any] = []
    errors: list[str] = []
    while len(found) < stop:
        try:
            found += reader.next_chunk()[1]
        except (ValueError, SystemExit, KeyboardInterrupt) as error:
            errors.append(str(error))
    reader.close()
    assert found == list(range(stop))
    return errors


def test_an_exception_out_of_a_read_goes_through_and_nothing_is_lost() -> None:
    calls: list[int] = []

    def read(first: int, last: int) -> list[int]:
        calls.append(first)
        if len(calls) % 5 == 3:
            raise ValueError(str(first))
        return _numbers(first, last)

    errors = _all_with_errors(_reader(read, 9000, num_threads=0), 9000)
    assert len(errors) == len(calls) // 5 + (len(calls) % 5 >= 3)


@pytest.mark.parametrize("kind", [ValueError, SystemExit, KeyboardInterrupt])
def test_an_exception_out_of_a_read_in_a_thread_is_raised_once(kind: type[BaseException]) -> None:
    failed: list[int] = []

    def read(first: int, last: int) -> list[int]:
        time.sleep(0.001)
        if threading.current_thread() is not consumer and first % 3 == 1:
            failed.append(first)
            raise kind(str(first))
        return _numbers(first, last)

    consumer = threading.current_thread()
    reader = _reader(read, 50, largest_chunk=1)
    reader.start()
    errors = _all_with_errors(reader, 50)
    assert errors == [str(first) for first in sorted(failed)]
    assert errors


def _busy(first: int, last: int) -> list[int]:
    end = time.thread_time() + 0.002 * (last - first)
    while time.thread_time() < end:
        pass
    return list(range(first, last))


@pytest.mark.parametrize("is_crowded", [False, True])
def test_where_processors_are_taken_the_consumer_computes(is_crowded: bool) -> None:
    readers = set()

    def read(first: int, last: int) -> list[int]:
        readers.add(threading.current_thread())
        return _busy(first, last)

    assert _all(_reader(read, 100, is_crowded=is_crowded, size_of=lambda _: 1 << 20), 100) == list(
        range(100)
    )
    assert (readers == {threading.current_thread()}) == is_crowded


@pytest.mark.parametrize(
    ("rate", "is_starved", "verdict"),
    [(100, True, "here"), (104, True, "here"), (110, True, "quick"), (100, False, "")],
)
def test_threads_compute_where_they_are_quicker_or_nobody_waits_for_them(
    rate: float, is_starved: bool, verdict: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    monkeypatch.setattr(reader_count, "time", SimpleNamespace(perf_counter=lambda: now[0]))
    thread_count = reader_count.ReaderCount(4)
    thread_count.begin(waiting=False, rate_here=100)
    verdicts = []
    for _ in range(200):  # As many threads as there are, none of them quicker than the others.
        now[0] += 1 / rate
        if is_starved:
            thread_count.starved()
        verdicts.append(thread_count.learn(Cost(1, ThreadTimes(1 / rate, 1 / rate))))
    assert verdicts[-100:].count(verdict) > 5
    assert ("here" in verdicts) == (verdict == "here")


def test_where_processors_are_taken_reads_that_wait_get_threads_all_the_same() -> None:
    readers = set()

    def read(first: int, last: int) -> list[int]:
        readers.add(threading.current_thread())
        return _sleepy(first, last)

    assert _all(_reader(read, 100, is_crowded=True), 100) == list(range(100))
    assert len(readers) > 2


@pytest.mark.parametrize("seed", range(20))
def test_the_number_of_threads_may_change_at_any_time(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Threads come, go home and come again; nobody waits for one that is not there."""
    chance = random.Random(seed)
    most = chance.choice([1, 2, 4, 8])

    def learn(thread_count: Any, _: Any) -> str:
        thread_count._climb.count = chance.randint(1, most)
        return chance.choice(["", "", "more", "quick", "here"])

    def consider(*_: Any, **__: Any) -> float | None:
        return 0.0 if chance.random() < 0.3 else None

    monkeypatch.setattr(reader_count.ReaderCount, "learn", learn)
    monkeypatch.setattr(Handover, "consider", consider)

    def read(first: int, last: int) -> list[int]:
        if chance.random() < 0.02:
            time.sleep(0.001)
        return _numbers(first, last)

    length = 2000
    reader = _reader(
        read,
        length,
        num_threads=most,
        buffer_size=chance.choice([1, 2, 3, 50]),
        largest_chunk=4,
        size_of=lambda _: chance.choice([1, 1000, 10**9]),
    )
    assert finishes(lambda: _all(reader, length)) == list(range(length))


def test_threads_go_home_at_the_end() -> None:
    reader = _reader(_sleepy, 30, largest_chunk=1)
    finishes(lambda: _all(reader, 30))
    assert eventually(lambda: not our_threads())


def test_close_lets_the_threads_go() -> None:
    reader = _reader(_sleepy, 10**9, largest_chunk=2)
    reader.start()
    for _ in range(10):
        reader.next_chunk()
    assert our_threads()
    reader.close()
    reader.close()
    assert eventually(lambda: not our_threads())


def test_close_wakes_a_consumer_that_waits() -> None:
    release = threading.Event()

    def read(first: int, last: int) -> list[int]:
        release.wait(30)
        return _numbers(first, last)

    reader = _reader(read, 100)
    reader.start()
    found: list[str] = []

    def consume() -> None:
        try:
            reader.next_chunk()
        except RuntimeError as error:
            found.append(str(error))

    consumer = threading.Thread(target=consume)
    consumer.start()
    reader.close()
    consumer.join(30)
    release.set()
    assert not consumer.is_alive()
    assert found == ["Reading was stopped."]


def test_start_reads_as_much_as_the_buffer_holds() -> None:
    reads: list[int] = []

    def read(first: int, last: int) -> list[int]:
        reads.extend(range(first, last))
        return _numbers(first, last)

    reader = _reader(read, 1000, buffer_size=5)
    reader.start()
    assert eventually(lambda: len(reads) == 5)
    time.sleep(0.02)
    assert reads == [0, 1, 2, 3, 4]
    reader.next_chunk()
    assert eventually(lambda: len(reads) == 6)
    reader.close()


@pytest.mark.parametrize("buffer_size", [1, 2, 5, 16])
@pytest.mark.parametrize("num_threads", [1, 4])
def test_no_more_is_under_way_than_the_buffer_holds(num_threads: int, buffer_size: int) -> None:
    lock = threading.Lock()
    begun = 0

    def read(first: int, last: int) -> list[int]:
        nonlocal begun
        with lock:
            begun = max(begun, last)
        time.sleep(0.0005)
        return _numbers(first, last)

    reader = _reader(read, 200, num_threads=num_threads, buffer_size=buffer_size)

    def run() -> None:
        taken = 0
        while taken < 200:
            end, chunk = reader.next_chunk()
            for number in chunk:
                taken = number + 1
                # Besides the one in the consumer's hand.
                assert begun <= taken + buffer_size
            assert taken == end

    finishes(run)


def test_few_large_elements_are_read_ahead() -> None:
    begun = 0

    def read(first: int, last: int) -> list[int]:
        nonlocal begun
        begun = last
        end = time.thread_time() + 0.005  # It computes, on one thread.
        while time.thread_time() < end:
            pass
        return _numbers(first, last)

    reader = _reader(
        read, 60, num_threads=1, buffer_size=50, size_of=lambda _: 100, buffer_bytes=400
    )

    def run() -> None:
        taken = 0
        while taken < 60:
            taken, _ = reader.next_chunk()
            if taken > 10:
                assert begun <= taken + 6

    finishes(run)


def test_an_interrupt_in_the_consumers_thread_goes_through_and_loses_nothing() -> None:
    interrupts = [KeyboardInterrupt()]

    def read(first: int, last: int) -> list[int]:
        if first <= 3 < last and interrupts:
            raise interrupts.pop()
        return _numbers(first, last)

    reader = _reader(read, 10, num_threads=0)
    found: list[int] = []
    interrupted = 0
    while len(found) < 10:
        try:
            found += reader.next_chunk()[1]
        except KeyboardInterrupt:
            interrupted += 1
    assert found == list(range(10))
    assert interrupted == 1


def test_where_no_thread_can_be_started_the_consumer_reads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def start(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    reader = _reader(_sleepy, 30)
    monkeypatch.setattr(threading.Thread, "start", start)
    reader.start()
    assert _all(reader, 30) == list(range(30))


def test_chunks_stay_small_where_elements_are_large() -> None:
    sizes: list[int] = []

    def read(first: int, last: int) -> list[int]:
        sizes.append(last - first)
        return _numbers(first, last)

    reader: ReadAhead[int] = ReadAhead(
        read,
        0,
        200,
        num_threads=0,
        buffer_size=0,
        largest_chunk=1000,
        size_of=lambda _: 16 << 20,
    )
    _all(reader, 200)
    assert max(sizes) == 2


def test_slow_reads_that_give_nothing_are_no_error() -> None:
    def read(first: int, last: int) -> list[int]:
        time.sleep(0.002)
        return []

    reader = _reader(read, 20, is_crowded=True)
    ends = [0]
    while ends[-1] < 20:
        end, chunk = reader.next_chunk()
        assert chunk == []
        ends.append(end)
    reader.close()
    assert ends[-1] == 20
