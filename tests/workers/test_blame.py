"""The element that kills its worker is named, whatever the worker reads ahead of it."""

import os
import time
from collections.abc import Iterator
from typing import Any

import pytest

import wholegrain as wg
from wholegrain._read import caution
from wholegrain._read.background import Background
from wholegrain._read.read_ahead import ReadAhead
from wholegrain._workers.backend import WorkerExit
from wholegrain._workers.deaths import EarlyDeaths, Suspect

_LENGTH = 40


class Deadly:
    """A source that ends the process at one of its records.

    Args:
        deadly: The record.
        seconds: How long each record takes, so that threads read ahead.
    """

    def __init__(self, deadly: int, seconds: float = 0.003) -> None:
        self._deadly = deadly
        self._seconds = seconds

    def __len__(self) -> int:
        return _LENGTH

    def __getitem__(self, index: int) -> int:
        time.sleep(self._seconds)
        if index == self._deadly:
            os._exit(7)
        return index

    def __repr__(self) -> str:
        return f"Deadly({self._deadly})"


def _slow(element: Any) -> Any:
    time.sleep(0.03)  # Meanwhile, threads read ahead.
    return element


def _until_death(ds: wg.IterDataset[Any]) -> tuple[list[Any], str]:
    found: list[Any] = []
    it = iter(ds)
    try:
        with pytest.raises(RuntimeError, match="exit code 7") as caught:
            found.extend(it)
    finally:
        it.close()
    return found, str(caught.value)


@pytest.mark.parametrize("deadly", [0, 1, 6, 11])
def test_a_source_that_kills_is_named_although_threads_read_ahead(deadly: int) -> None:
    ds = wg.MapDataset.source(Deadly(deadly)).to_iter_dataset(wg.ReadOptions(8, 64)).map(_slow)
    found, message = _until_death(ds.mp_prefetch(wg.MultiprocessingOptions(num_workers=1)))
    assert found == list(range(deadly))
    assert f"element {deadly} (counted from 0" in message
    assert "twice while making the same element" in message


def test_each_of_several_workers_names_its_own_element() -> None:
    ds = wg.MapDataset.source(Deadly(21)).to_iter_dataset(wg.ReadOptions(8, 64)).map(_slow)
    found, message = _until_death(ds.mp_prefetch(wg.MultiprocessingOptions(num_workers=2)))
    assert found == list(range(21))
    assert "Worker 1 of 2 ended twice" in message
    assert "its element 10 (counted from 0" in message


def test_a_batch_that_kills_is_named() -> None:
    ds = wg.MapDataset.source(Deadly(17)).batch(4).to_iter_dataset(wg.ReadOptions(8, 64)).map(_slow)
    found, message = _until_death(ds.mp_prefetch(wg.MultiprocessingOptions(num_workers=1)))
    assert [list(batch) for batch in found] == [list(range(n, n + 4)) for n in (0, 4, 8, 12)]
    assert "element 4 (counted from 0" in message


def test_an_element_is_named_that_a_thread_in_the_worker_prefetches() -> None:
    slow = wg.MapDataset.source(Deadly(9)).to_iter_dataset(wg.ReadOptions(0, 0))
    ds = wg.experimental.ThreadPrefetchIterDataset(slow, prefetch_buffer_size=20).map(_slow)
    found, message = _until_death(ds.mp_prefetch(wg.MultiprocessingOptions(num_workers=1)))
    assert found == list(range(9))
    assert "element 9 (counted from 0" in message


def test_auto_workers_name_it_too() -> None:
    ds = wg.MapDataset.source(Deadly(17)).to_iter_dataset(wg.ReadOptions(8, 64)).map(_slow)
    options = wg.MultiprocessingOptions(num_workers="auto", max_workers=2)
    found, message = _until_death(ds.mp_prefetch(options))
    assert found == list(range(17))
    assert "element 17 (counted from 0" in message


@pytest.fixture
def careful() -> Iterator[None]:
    caution.set_careful(True)
    yield
    caution.set_careful(False)


def test_nothing_is_read_ahead_while_that_may_kill(careful: None) -> None:
    begun: list[int] = []

    def read(start: int, stop: int) -> list[int]:
        begun.extend(range(start, stop))
        time.sleep(0.002)
        return list(range(start, stop))

    reader: ReadAhead[int] = ReadAhead(
        read, 0, 200, num_threads=4, buffer_size=20, largest_chunk=64, size_of=lambda _: 8
    )
    try:
        reader.start()
        for number in range(20):
            assert reader.next_chunk() == (number + 1, [number])
            assert begun == list(range(number + 1))
        caution.set_careful(False)
        found: list[int] = []
        while len(found) < 180:
            found += reader.next_chunk()[1]
        assert found == list(range(20, 200))
    finally:
        reader.close()


def test_a_thread_makes_only_what_the_consumer_waits_for(careful: None) -> None:
    begun: list[int] = []

    def step() -> tuple[int, None]:
        begun.append(len(begun))
        return begun[-1], None

    background = Background(step, lambda: None, buffer_size=10)
    background.start()
    try:
        for number in range(20):
            time.sleep(0.002)
            assert len(begun) == number
            assert background.take()[0] == number
        caution.set_careful(False)
        assert [background.take()[0] for _ in range(100)] == list(range(20, 120))
    finally:
        background.stop()


_DIED = WorkerExit("exit code 7")
_LOST = WorkerExit("exit code -9", is_blameless=True)


def test_the_second_death_at_an_element_is_its_fault() -> None:
    suspect = Suspect()
    assert not suspect.note_death(5, _DIED, True)
    assert suspect.position == 5
    assert suspect.note_death(5, _DIED, True)


def test_the_first_death_shows_no_element_but_lets_replacements_report_theirs() -> None:
    suspect = Suspect()
    assert not suspect.note_death(5, _DIED, None)
    assert suspect.position == -1
    assert suspect.is_watched
    assert not suspect.note_death(5, _DIED, True)
    assert suspect.note_death(5, _DIED, True)


def test_a_death_with_an_outside_cause_needs_no_report() -> None:
    suspect = Suspect()
    assert not suspect.note_death(5, _LOST, None)
    assert not suspect.is_watched


def test_a_death_before_an_element_was_begun_is_not_its_fault() -> None:
    suspect = Suspect()
    assert not suspect.note_death(5, _DIED, False)
    assert suspect.position == -1
    assert not suspect.note_death(5, _DIED, True)
    assert not suspect.note_death(5, _DIED, False)
    assert suspect.note_death(5, _DIED, True)


def test_deaths_at_other_elements_begin_a_new_count() -> None:
    suspect = Suspect()
    assert not any(suspect.note_death(position, _DIED, True) for position in range(20))


def test_too_many_deaths_without_a_cause_are_an_error_too() -> None:
    suspect = Suspect()
    verdicts = [suspect.note_death(5, _LOST, None) for _ in range(8)]
    assert verdicts.index(True) == 6


def test_workers_that_were_started_together_count_once_if_they_die_while_starting() -> None:
    early = EarlyDeaths()
    for number in range(4):
        for _ in range(3):
            early.note(number + 1, "exit code 4")
    early.check()
    early.note(5, "exit code 4")
    with pytest.raises(RuntimeError, match=r"5 of them .* exit code 4"):
        early.check()
