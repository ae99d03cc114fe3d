"""Maps and filters in a row: what goes missing reaches no function behind."""

from typing import Any

import numpy as np

import wholegrain as wg


def test_an_element_that_goes_missing_reaches_no_later_function_in_a_chunk() -> None:
    seen: list[tuple[str, int]] = []

    def drop_odd(x: int) -> Any:
        return None if x % 2 else x

    def note(x: int) -> int:
        seen.append(("map", x))
        return x + 1

    def below_five(x: int) -> bool:
        seen.append(("filter", x))
        return x < 5

    ds = wg.MapDataset.range(8).map(drop_odd).map(note).filter(below_five).map(note)
    expected = [2, None, 4, None, None, None, None, None]
    assert list(ds.getitems(np.arange(8))) == expected
    in_chunk, seen = seen, []
    assert [ds[index] for index in range(8)] == expected
    assert in_chunk == seen
