"""An iterator that changes nothing, for nodes that only set something for others."""

from wholegrain._core.stack import Empty
from wholegrain._core.types import T
from wholegrain._graph.iterator import TransformIterator


class PassingIterator(TransformIterator[T]):
    """Returns the parent's elements unchanged."""

    def __next__(self) -> T:
        return next(self.parent)  # type: ignore[no-any-return]

    def next_into(self, empty: Empty) -> T:
        """Return the next element in memory from `empty`, if the parent supports that."""
        next_into = getattr(self.parent, "next_into", None)
        return next(self.parent) if next_into is None else next_into(empty)  # type: ignore[no-any-return]

    def take(self, count: int) -> list[T]:
        return self.parent.take(count)

    @property
    def moves_at_end(self) -> bool:
        return self.parent.moves_at_end

    @property
    def takes_back(self) -> bool:
        return self.parent.takes_back

    def put_back(self, count: int) -> None:
        self.parent.put_back(count)

    def pass_over(self, count: int) -> None:
        self.parent.pass_over(count)

    def _get_next_index(self) -> int:
        return self.parent._get_next_index()

    def _set_next_index(self, index: int) -> None:
        self.parent._set_next_index(index)
