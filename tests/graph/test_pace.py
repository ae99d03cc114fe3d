"""How much of a chunk has been taken tells how long a run has gone on since it was read."""

from types import SimpleNamespace
from typing import Any

import pytest

from wholegrain._graph.pace import Pace


def _seen() -> tuple[Pace, Any]:
    """Return what is known after 100 elements under clocks, and the iterator."""
    pace, it = Pace(), SimpleNamespace(_base=0, _cursor=0)
    pace.switched([it], was_on=False)
    it._base = 100
    pace.switched([it], was_on=True)
    return pace, it


def test_the_part_of_a_chunk_that_was_taken_counts_as_it_did_under_clocks() -> None:
    pace, it = _seen()
    it._cursor = 50
    assert pace.since([it], seconds_on=2.0, most=10.0) == pytest.approx(1.0)


def test_chunks_before_the_last_are_known_otherwise() -> None:
    pace, it = _seen()
    it._base, it._cursor = 500, 25
    assert pace.since([it], seconds_on=2.0, most=10.0) == pytest.approx(0.5)


def test_clocks_that_were_switched_off_within_a_chunk_have_seen_its_beginning() -> None:
    pace, it = _seen()
    it._cursor = 40
    pace.switched([it], was_on=False)
    it._cursor = 50
    assert pace.since([it], seconds_on=2.0, most=10.0) == pytest.approx(0.2)


def test_it_is_no_longer_than_the_time_that_went_by() -> None:
    pace, it = _seen()
    it._cursor = 50
    assert pace.since([it], seconds_on=2.0, most=0.3) == pytest.approx(0.3)


def test_nothing_is_known_after_going_back_nor_before_the_first_clock() -> None:
    pace, it = _seen()
    it._base, it._cursor = 0, 10
    assert pace.since([it], seconds_on=2.0, most=10.0) == 0.0
    assert Pace().since([it], seconds_on=0.0, most=10.0) == 0.0
