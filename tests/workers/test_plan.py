"""Spans are planned without gaps, and are as large as the workers' pace allows. No processes."""

import random
from typing import Any

import pytest

from wholegrain._read.controller import Controller
from wholegrain._workers import load as load_module
from wholegrain._workers.load import Load
from wholegrain._workers.pace import Pace
from wholegrain._workers.plan import Plan


class _Numbers:
    """The positions in a range of numbers."""

    def __init__(self, length: int) -> None:
        self._length = length

    def left(self, state: Any, /) -> int:
        return self._length - int(state["at"])

    def after(self, state: Any, count: int, /) -> Any:
        return {"at": state["at"] + count}


@pytest.mark.parametrize("seed", range(10))
def test_spans_cover_all_elements_whatever_is_lost_on_the_way(seed: int) -> None:
    chance = random.Random(seed)
    plan = Plan(_Numbers(500), {"at": 100, "more": 1})
    covered: list[int] = []
    numbers: set[int] = set()
    while not plan.has_end or plan.spans:
        if not plan.has_end and chance.random() < 0.6:
            span = plan.add(chance.randint(1, 40))
            assert plan.find(span.number) is span
        elif plan.spans and chance.random() < 0.3:
            plan.orphan([chance.choice(plan.spans)])
            again = plan.take_orphan()
            assert again is not None
            old = again.number
            plan.number(again)
            assert plan.find(old) is None
        elif plan.head is not None:
            head = plan.head
            assert head.number not in numbers
            numbers.add(head.number)
            covered += range(head.start, head.start + head.count)
            assert head.is_last == (covered[-1] == 399)
            plan.finish_head()
    assert covered == list(range(400))
    assert plan.planned == 400


def test_orphans_are_assigned_again_in_order() -> None:
    plan = Plan(_Numbers(100), {"at": 0})
    spans = [plan.add(10) for _ in range(4)]
    plan.orphan([spans[3], spans[1]])
    plan.orphan([spans[0]])
    assert [plan.take_orphan() for _ in range(4)] == [spans[0], spans[1], spans[3], None]


def test_the_state_before_the_first_element_is_the_given_one() -> None:
    plan = Plan(_Numbers(100), {"at": 5, "more": 1})
    assert plan.state_after(0) == {"at": 5, "more": 1}
    assert plan.state_after(3) == {"at": 8}
    plan.add(10)
    plan.start_at({"at": 50})
    assert (plan.planned, plan.head, plan.has_end) == (0, None, False)
    assert plan.add(80).count == 50


def test_spans_grow_to_about_ten_milliseconds() -> None:
    pace = Pace(buffer_size=1)
    assert pace.span_size(10_000) == 1
    for _ in range(50):
        pace.note_span(1e-3)
    assert [pace.span_size(10_000) for _ in range(4)] == [4, 10, 10, 10]
    assert pace.span_size(3) == 3
    for _ in range(50):
        pace.note_span(1.0)
    assert pace.span_size(10_000) == 1


def test_there_is_room_for_many_small_elements_and_few_large_ones() -> None:
    pace = Pace(buffer_size=2)
    pace.note_bytes(100)
    assert pace.room(1) > 1000
    assert pace.room(3) == 3 * pace.room(1)
    pace.note_bytes(50 << 20)
    assert pace.room(1) == 5


def test_queues_last_until_the_consumer_asks_again() -> None:
    pace = Pace(buffer_size=1)
    assert pace.is_enough(2)  # Nothing is known yet.
    pace.note_span(1e-3)
    assert not pace.is_enough(49)
    assert pace.is_enough(51)
    pace.note_return()
    left_at = pace._left_at
    assert left_at is not None
    pace.note_call(left_at + 0.2)
    assert not pace.is_enough(399)
    assert pace.is_enough(401)


def test_the_load_is_measured_from_the_first_element_on(monkeypatch: pytest.MonkeyPatch) -> None:
    class Clock:
        now = 100.0

        @classmethod
        def perf_counter(cls) -> float:
            return cls.now

    monkeypatch.setattr(load_module, "time", Clock)
    controller = Controller(8, 1 << 40, grows_room=False)
    load = Load(controller)
    load.note_waited(50.0)  # Start-up.
    load.consider(0, lambda: 0)
    load.note_given(1)
    Clock.now += 1.0
    load.note_waited(0.9)
    load.note_given(100)
    load.consider(0, lambda: 0)
    assert controller.wanted == 2
    for _ in range(10):
        Clock.now += 1.0
        load.note_given(100)
        load.note_starting()  # What was measured until here does not count.
        load.consider(0, lambda: 0)
    assert controller.wanted == 2
