"""Spans of positions, read one after the other."""

from collections.abc import Sequence
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from wholegrain._core.failure import Failure, PartlyFailed
from wholegrain._read.read_ahead import Read, ReadAhead
from wholegrain._read.read_spans import ReadSpans


def _read_ahead(read: Read, start: int, stop: int) -> ReadAhead[int]:
    return ReadAhead(
        read,
        start,
        stop,
        num_threads=2,
        buffer_size=20,
        largest_chunk=64,
        size_of=lambda element: 8,
    )


def _rest(reader: ReadSpans[int], start: int, stop: int) -> list[Any]:
    """Read a span to its end; what could not be read stands there as its positions."""
    found: list[Any] = []
    while start < stop:
        end, chunk = reader.next_chunk()
        assert start < end <= stop
        elements: Any = enumerate(chunk, start)
        found += [("bad", at) if type(one) is Failure else one for at, one in elements]
        start = end
    return found


@given(
    starts_and_counts=st.lists(
        st.tuples(st.integers(0, 1000), st.integers(1, 60)), min_size=1, max_size=100
    ),
    ahead=st.integers(0, 5),
)
def test_spans_are_read_in_the_order_in_which_they_were_announced(
    starts_and_counts: list[tuple[int, int]], ahead: int
) -> None:
    asked: list[int] = []

    def read(start: int, stop: int) -> Sequence[int]:
        asked.extend(range(start, stop))
        return list(range(start, stop))

    spans = [(start, start + count) for start, count in starts_and_counts]
    reader: ReadSpans[int] = ReadSpans(read, _read_ahead, *spans[0])
    for number, span in enumerate(spans):
        if number:
            if not ahead:
                reader.announce(*span)
            assert reader.goes_on_at(*span)
        if ahead:
            last = number + ahead
            coming = spans[number + 1 : last + 1] if not number else spans[last : last + 1]
            for one in coming:
                reader.announce(*one)
        assert _rest(reader, *span) == list(range(*span))
    reader.close()
    assert sorted(asked) == sorted(at for span in spans for at in range(*span))


def test_it_goes_on_only_where_it_was_told_and_at_the_end_of_a_span() -> None:
    reader: ReadSpans[int] = ReadSpans(lambda a, b: list(range(a, b)), _read_ahead, 0, 5)
    reader.announce(10, 12)
    assert not reader.goes_on_at(10, 12)  # Not all of the first was read.
    assert _rest(reader, 0, 5) == [0, 1, 2, 3, 4]
    assert not reader.goes_on_at(20, 22)
    assert reader.goes_on_at(10, 12)
    assert _rest(reader, 10, 12) == [10, 11]
    assert not reader.goes_on_at(12, 14)


def test_what_cannot_be_read_fails_in_its_span_alone() -> None:
    def read(start: int, stop: int) -> Sequence[int]:
        places = list(range(start, stop))
        if 11 not in places:
            return places
        return PartlyFailed([Failure(ValueError()) if at == 11 else at for at in places])

    reader: ReadSpans[int] = ReadSpans(read, _read_ahead, 0, 3)
    for span in ((10, 12), (20, 23)):
        reader.announce(*span)
    found = _rest(reader, 0, 3)
    assert reader.goes_on_at(10, 12)
    found += _rest(reader, 10, 12)
    assert reader.goes_on_at(20, 23)
    found += _rest(reader, 20, 23)
    assert found == [0, 1, 2, 10, ("bad", 11), 20, 21, 22]
