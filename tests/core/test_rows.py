import gc
import random
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from wholegrain._core import rows
from wholegrain._core.columns import values_of
from wholegrain._core.rows import PythonRows

BASES = [PythonRows] if rows.Rows is PythonRows else [PythonRows, rows.Rows]


def iterator(base: Any, counts: list[int], names: tuple[str, ...] = ("x", "text")) -> Any:
    """Return rows in several parts, numbered through."""

    class Parts(base):  # type: ignore[misc]
        def __init__(self) -> None:
            self.left = list(counts)
            self.first = 0

        def __iter__(self) -> Any:
            return self

        def more_rows(self) -> bool:
            if not self.left:
                return False
            count = self.left.pop(0)
            xs = np.arange(self.first, self.first + count)
            self.first += count
            columns = {"x": xs, "text": np.array([str(x) for x in xs], dtype=object)}
            self.set_rows(names, tuple(columns[name] for name in names), count)
            return True

    return Parts()


@pytest.mark.parametrize("base", BASES)
def test_rows_come_part_after_part(base: Any) -> None:
    found = list(iterator(base, [2, 0, 3000, 1]))
    assert found == [{"x": x, "text": str(x)} for x in range(3003)]
    assert {type(row["x"]) for row in found} == {np.int64}
    assert [list(row) for row in found[:2]] == [["x", "text"]] * 2
    assert list(iterator(base, [])) == []


@pytest.mark.parametrize("base", BASES)
def test_rows_without_columns_are_empty(base: Any) -> None:
    assert list(iterator(base, [2, 1500], names=())) == [{}] * 1502


@pytest.mark.parametrize("base", BASES)
def test_rows_of_many_columns_are_independent(base: Any) -> None:
    it = iterator(base, [])
    names = tuple(f"column {number}" for number in range(20))
    it.set_rows(names, tuple(np.arange(number, number + 3) for number in range(20)), 3)
    rows = list(it)
    assert [list(row.values()) for row in rows] == [list(range(i, i + 20)) for i in range(3)]
    assert [list(row) for row in rows] == [list(names)] * 3
    rows[0]["column 1"] = "changed"
    assert rows[1]["column 1"] == 2


@pytest.mark.parametrize("base", BASES)
def test_some_are_taken_and_counted(base: Any) -> None:
    it = iterator(base, [5, 2])
    assert it.rows_given == 0
    assert [row["x"] for row in it.take(3)] == [0, 1, 2]
    assert it.rows_given == 3
    assert next(it)["x"] == 3
    assert [row["x"] for row in it.take(100)] == [4]
    assert [row["x"] for row in it.take(100)] == [5, 6]
    assert it.rows_given == 2
    assert it.take(1) == []
    with pytest.raises(StopIteration):
        next(it)
    it.set_rows((), (), 0)
    assert it.rows_given == 0


# Rows that nobody holds may be used again.

COUNT = 300


def numbered(base: Any) -> Any:
    """Return rows whose values follow from their number."""
    it = iterator(base, [])
    texts = np.array([f"text {x}" for x in range(COUNT)], dtype=object)
    small, large = np.arange(COUNT, dtype=np.int16), np.arange(COUNT) / 7
    columns: Any = (small, large, texts)
    if base is not PythonRows:
        columns = (values_of(small), values_of(large), texts)
    it.set_rows(("small", "large", "text"), columns, COUNT)
    return it


def is_row(row: dict[str, Any], number: int) -> bool:
    kinds = [type(value) for value in row.values()]
    values = {"small": number, "large": number / 7, "text": f"text {number}"}
    return list(row.items()) == list(values.items()) and kinds == [np.int16, np.float64, str]


@pytest.mark.parametrize("base", BASES)
@pytest.mark.parametrize("seed", range(5))
def test_what_somebody_holds_does_not_change(base: Any, seed: int) -> None:
    choose = random.Random(seed)
    held: list[tuple[Any, int]] = []
    values: list[tuple[Any, Any]] = []
    it = numbered(base)
    for number in range(COUNT):
        row = next(it)
        assert is_row(row, number)
        what = choose.randrange(5)
        if what == 0:
            held.append((row, number))
        elif what == 1:
            values.append((row["small"], number))
        elif what == 2:
            values += [(row["large"], number / 7), (row["text"], f"text {number}")]
        elif what == 3:
            held.append((dict(row), number))
        if choose.randrange(2):
            del row
        if held and choose.randrange(2):
            held.pop(choose.randrange(len(held)))
    assert all(is_row(row, number) for row, number in held)
    assert all(found == expected for found, expected in values)


def _put_at_the_end(row: dict[str, Any]) -> None:
    row["small"] = row.pop("small")


def _rename(row: dict[str, Any]) -> None:
    row["other"] = row.pop("text")


_SHARED = np.int16(-5)

CHANGES: list[Callable[[dict[str, Any]], Any]] = [
    lambda row: row.clear(),
    lambda row: row.pop("large"),
    lambda row: row.update(another=1),
    lambda row: row.update(small=_SHARED, large=None, text=3.5),
    lambda row: row.update(small=np.float64(2), large=np.int16(3)),
    lambda row: row.update(text=row),
    _put_at_the_end,
    _rename,
]


@pytest.mark.parametrize("base", BASES)
@pytest.mark.parametrize("change", CHANGES, ids=range(len(CHANGES)))
def test_what_is_done_to_a_row_does_not_show_in_others(
    base: Any, change: Callable[[dict[str, Any]], Any]
) -> None:
    for number, row in enumerate(numbered(base)):
        assert is_row(row, number)
        change(row)
    assert _SHARED == -5


@pytest.mark.parametrize("base", BASES)
def test_rows_are_let_go_with_the_iterator(base: Any) -> None:
    it = iterator(base, [])
    values = np.array([np.arange(3) for _ in range(4)] + [None], dtype=object)[:4]
    alive = [weakref.ref(value) for value in values]
    it.set_rows(("x",), (values,), 4)
    del values
    assert len(list(it)) == 4
    it.set_rows((), (), 0)
    gc.collect()
    assert [one() for one in alive] == [None] * 4


@pytest.mark.parametrize("base", BASES)
def test_what_more_rows_raises_arrives(base: Any) -> None:
    class Failing(base):  # type: ignore[misc]
        def more_rows(self) -> bool:
            raise RuntimeError("on the way")

    with pytest.raises(RuntimeError, match="on the way"):
        next(Failing())
    with pytest.raises(RuntimeError, match="on the way"):
        Failing().take(3)


@pytest.mark.parametrize("base", BASES)
def test_iterators_in_a_cycle_are_collected(base: Any) -> None:
    it = iterator(base, [3])
    next(it)
    it.itself = it
    gone = weakref.ref(it)
    del it
    gc.collect()
    assert gone() is None


@pytest.mark.parametrize("base", BASES[1:])
def test_a_column_that_is_too_short_is_an_error(base: Any) -> None:
    it = base()
    it.set_rows(("x", "y"), (np.arange(3), np.arange(1)), 3)
    assert next(it) == {"x": 0, "y": 0}
    with pytest.raises(ValueError, match="fewer values"):
        next(it)
    with pytest.raises(ValueError, match="as many names"):
        it.set_rows(("x",), (), 3)
    with pytest.raises(TypeError):
        it.set_rows(("x",), (3,), 3)
