"""Elements of a thread that were returned together, and can be put back."""

from __future__ import annotations

from typing import Generic

from wholegrain._core.types import State, T


class Returned(Generic[T]):
    """The elements that the last `take` returned, with the states after them.

    Attributes:
        again: Those of them that were put back, last first.
    """

    def __init__(self) -> None:
        self._before: State | None = None
        self._elements: list[tuple[T, State]] = []
        self.again: list[tuple[T, State]] = []

    def start(self, before: State | None = None) -> None:
        """Forget them, because a `take` begins. `before` is the state before it."""
        self._before, self._elements, self.again = before, [], []

    def __len__(self) -> int:
        return len(self._elements)

    def add(self, element: T, state: State) -> None:
        """Add an element, with the state after it."""
        self._elements.append((element, state))

    def elements(self) -> list[T]:
        """Return the elements that are not put back."""
        return [element for element, _ in self._elements]

    def put_back(self, count: int) -> State | None:
        """Put some elements back; return the state before them."""
        for _ in range(count):
            self.again.append(self._elements.pop())
        return self._elements[-1][1] if self._elements else self._before

    def pass_over(self, count: int) -> tuple[T, State]:
        """Return again the last of some elements that were put back."""
        for _ in range(count):
            self._elements.append(self.again.pop())
        return self._elements[-1]
