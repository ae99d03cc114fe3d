import gc
import weakref
from typing import Any

import numpy as np
import pytest

from wholegrain._core import rows
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
