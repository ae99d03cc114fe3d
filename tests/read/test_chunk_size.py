"""Larger chunks are tried, and kept where they make an element cheaper."""

import itertools

from wholegrain._read.chunk_size import LargerChunks
from wholegrain._read.read_ahead import ReadAhead


def _after_looks(cost_of_factor: dict[int, float], looks: int) -> list[int]:
    larger = LargerChunks()
    factors = []
    for _ in range(looks):
        larger.learn(cost_of_factor[larger.factor], settled=True)
        factors.append(larger.factor)
    return factors


def test_they_stay_where_elements_get_cheaper() -> None:
    assert _after_looks({1: 8.0, 4: 4.0, 16: 3.0}, 8)[-1] == 16
    assert _after_looks({1: 8.0, 4: 4.0, 16: 3.99}, 4)[-1] == 4


def test_they_are_given_up_where_not_and_tried_less_and_less_often() -> None:
    factors = _after_looks({1: 8.0, 4: 7.9}, 1000)
    assert factors.count(4) < 25


def test_nothing_is_tried_until_chunks_are_as_large_as_they_should_be() -> None:
    larger = LargerChunks()
    for _ in range(100):
        larger.learn(1.0, settled=False)
    assert larger.factor == 1


def test_the_buffer_of_threads_does_not_bound_what_the_consumer_reads_for_itself() -> None:
    reader: ReadAhead[int] = ReadAhead(
        lambda first, last: list(range(first, last)),
        0,
        100_000,
        num_threads=16,
        buffer_size=4,
        largest_chunk=1024,
        size_of=lambda _: 8,
    )
    ends = [0]
    while ends[-1] < 100_000:
        ends.append(reader.next_chunk()[0])
    reader.close()
    assert max(end - start for start, end in itertools.pairwise(ends)) > 4
