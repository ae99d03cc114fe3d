"""Claims: in order, without gaps, and no further ahead than allowed."""

import random

import pytest

from wholegrain._read.chunk_queue import ChunkQueue, Ticket
from wholegrain._read.cost import Cost, Waits
from wholegrain._read.waiting import ThreadTimes


@pytest.mark.parametrize("seed", range(20))
def test_claims_cover_all_positions_once_and_respect_the_limit(seed: int) -> None:
    chance = random.Random(seed)
    queue = ChunkQueue(3, 3 + 200)
    reading: list[tuple[int, Ticket]] = []
    found: list[int] = []
    while queue.taken < queue.stop:
        most = chance.choice([1, 2, 7, 30])
        if queue.has_unclaimed and chance.random() < 0.6:
            start = queue.next_start
            if (claimed := queue.claim(chance.randint(1, 9), most)) is not None:
                reading.append((start, claimed[0]))
                assert queue.next_start - queue.taken <= most
        elif reading and chance.random() < 0.6:
            start, ticket = reading.pop(chance.randrange(len(reading)))
            ticket.chunk = range(start, ticket.stop)
        elif queue.has_ready_chunk:
            taken = queue.taken
            stop, chunk = queue.hand_out()
            assert list(chunk) == list(range(taken, stop))
            found += chunk
        elif not queue.tickets and chance.random() < 0.1:
            stop = min(queue.taken + 2, queue.stop)
            found += range(queue.taken, stop)
            queue.pass_over(stop)
    assert found == list(range(3, 203))


def test_the_rest_of_the_consumers_chunk_counts_as_read_ahead() -> None:
    queue = ChunkQueue(0, 100)
    queue.pass_over(5)  # The consumer works on one of these, and four are ready.
    claimed = queue.claim(10, 6)
    assert claimed is not None
    assert (claimed[0].stop, claimed[1]) == (7, False)
    assert queue.claim(1, 6) is None


def test_only_finished_chunks_at_the_front_are_ready() -> None:
    queue = ChunkQueue(0, 100)
    tickets = [queue.claim(4, 100) for _ in range(3)]
    first, second, third = [claimed[0] for claimed in tickets if claimed is not None]
    second.chunk = range(4, 8)
    assert (queue.ready_count, queue.has_ready_chunk) == (0, False)
    first.chunk = range(4)
    assert (queue.ready_count, queue.has_ready_chunk) == (8, True)
    third.chunk = range(8, 12)
    assert queue.ready_count == 12


@pytest.mark.parametrize(
    ("wall", "cpu", "queued", "switches", "waited"),
    [
        (0.010, 0.001, 0.0, 1, True),
        (0.010, 0.006, 0.0, 1, False),  # It mostly computed.
        (0.010, 0.001, 0.009, 1, False),  # Other processes had the CPU.
        (0.010, 0.001, 0.0, 0, False),  # It was preempted, and never gave up its CPU.
        (0.00005, 0.0, 0.0, 1, False),  # Too short to matter.
    ],
)
def test_a_read_waited_if_it_gave_up_its_cpu_for_most_of_the_time(
    wall: float, cpu: float, queued: float, switches: int, waited: bool
) -> None:
    cost = Cost(1, ThreadTimes(wall, cpu, queued, switches))
    assert cost.waited is waited


def test_several_reads_show_waiting_that_one_does_not() -> None:
    waits = Waits()
    costs = [Cost(1, ThreadTimes(0.010, 0.007, 0.0, 1)) for _ in range(8)]
    assert [waits.see(cost) for cost in costs] == [False] * 7 + [True]
