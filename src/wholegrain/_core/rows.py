"""Rows out of columns: a dict for each, of the next value of every column."""

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from wholegrain._core import native

Row = dict[str, Any]

# Rows made at a time, so that those of long columns are not all in memory at once.
_BLOCK = 1024


class PythonRows:
    """A base class whose `next` gives the rows that were last set by `set_rows`.

    When there are none left it calls `more_rows()`, which sets others and returns True, or
    returns False at the end.
    """

    _names: tuple[str, ...] = ()
    _columns: tuple[Any, ...] = ()
    _made = 0  # rows that were made so far, of `_count`
    _count = 0
    _block: Sequence[Row] = ()  # rows that are made and not yet given, the next one last

    def more_rows(self) -> bool:
        """Set rows that follow; return whether there are any."""
        raise NotImplementedError

    def set_rows(self, names: tuple[str, ...], columns: tuple[Any, ...], count: int, /) -> None:
        """Give `count` rows of these columns: arrays in the order of `names`."""
        self._names, self._columns = names, columns
        self._made, self._count = 0, count
        self._block = []

    @property
    def rows_given(self) -> int:
        """How many rows were given since `set_rows`."""
        return self._made - len(self._block)

    def __next__(self) -> Row:
        if not self._block and not self._make_block():
            raise StopIteration
        return self._block.pop()  # type: ignore[attr-defined,no-any-return]

    def take(self, count: int, /) -> list[Row]:
        """Return at least one and at most `count` rows; none at the end."""
        if not self._block and not self._make_block():
            return []
        taken = self._block[-count:][::-1]
        del self._block[-count:]  # type: ignore[attr-defined]
        return list(taken)

    def _make_block(self) -> bool:
        while self._made >= self._count:
            if not self.more_rows():
                return False
        start = self._made
        stop = min(start + _BLOCK, self._count)
        if self._names:
            block = make_rows(self._names, [column[start:stop] for column in self._columns])
        else:
            block = [{} for _ in range(start, stop)]
        block.reverse()
        self._block, self._made = block, stop
        return True


if TYPE_CHECKING:
    Rows = PythonRows
else:
    # In C no bytecode runs for a row: `next` on what derives from it is a C call.
    Rows = PythonRows if native.lib is None else native.lib.Rows

MADE_TOGETHER = _BLOCK if Rows is PythonRows else 1
"""How many rows are made when one is asked for."""


def make_rows(names: Sequence[str], columns: Sequence[Iterable[Any]]) -> list[Row]:
    """Return the rows of columns of equal length."""
    return _row_maker(tuple(names))(columns)


@functools.lru_cache(maxsize=64)
def _row_maker(names: tuple[str, ...]) -> Callable[[Sequence[Iterable[Any]]], list[Row]]:
    """Return a function that makes rows of columns with these names.

    It is compiled from source, as dataclasses are: a dict whose keys are written down is made
    several times faster than `dict(zip(names, row))`.
    """
    variables = [f"value_{number}" for number in range(len(names))]
    row = ", ".join(
        f"{name!r}: {variable}" for name, variable in zip(names, variables, strict=True)
    )
    source = f"lambda values: [{{{row}}} for {', '.join(variables)}, in zip(*values, strict=True)]"
    maker: Callable[[Sequence[Iterable[Any]]], list[Row]] = eval(source)
    return maker
