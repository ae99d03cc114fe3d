"""Sends tolerated failures to the consumer, in the place where they happened."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from wholegrain._core.tolerated import Tolerated
from wholegrain._core.types import State, T
from wholegrain._graph.error_rules import tolerates
from wholegrain._graph.iterator import DatasetIterator, TransformIterator
from wholegrain._graph.timed import ForwardingIterator
from wholegrain._graph.tolerance import Account, Collector
from wholegrain._state.counting import passes_one_to_one


class Carrier(ForwardingIterator[T]):
    """Sends failures along with the element that comes after them, as an exception in its place."""

    def __init__(self, iterator: DatasetIterator[T], collector: Collector) -> None:
        super().__init__(iterator)
        self.opened_from = iterator.opened_from
        self.observed, self.observed_as = iterator.observed, iterator.observed_as
        self._pending = collector.pending

    def __next__(self) -> T:
        element = self._iterator.__next__()
        return self._sent(element) if self._pending else element

    def take(self, count: int) -> list[T]:
        elements = self._iterator.take(count)
        if self._pending and elements:
            if len(elements) > 1:
                self._iterator.put_back(len(elements) - 1)
            self._sent(elements[0])
        return elements

    @property
    def next_into(self) -> Callable[[Any], T]:
        """Returns the next element, in memory from its argument; only if the iterator has it."""
        self._iterator.next_into  # type: ignore[attr-defined]  # noqa: B018
        return self._next_into

    def _next_into(self, empty: Any) -> T:
        element: T = self._iterator.next_into(empty)  # type: ignore[attr-defined]
        return self._sent(element) if self._pending else element

    def _sent(self, element: T) -> Any:
        events = tuple(self._pending)
        self._pending.clear()
        raise Tolerated(events, element)

    def set_state(self, state: State) -> None:
        self._pending.clear()
        super().set_state(state)

    def go_to(self, state: State) -> None:
        self._pending.clear()
        super().go_to(state)


class Unpacker(TransformIterator[T]):
    """Unpacks what Carriers upstream have sent: counts the failures, and returns the elements."""

    def __init__(self, parent: DatasetIterator[Any], account: Account) -> None:
        super().__init__(parent)
        self.opened_from = parent.opened_from
        self._account = account
        self._good = False
        self._held: list[Any] = []

    def __next__(self) -> T:
        if self._held:
            return self._held.pop()  # type: ignore[no-any-return]
        while True:
            try:
                element = self.parent.__next__()
            except Tolerated as found:
                events = found.events
                if self._good and events:
                    events = (events[0]._replace(after_good=True), *events[1:])
                if events:
                    self._good = found.ends_good
                if found.element is not None:
                    self._held.append(found.element)
                self._account.note(events)
                if self._held:
                    return self._held.pop()  # type: ignore[no-any-return]
                continue
            self._good = True
            return element  # type: ignore[no-any-return]

    @property
    def moves_at_end(self) -> bool:
        return True

    @property
    def reads_ahead(self) -> bool:
        return self.parent.reads_ahead

    def go_to(self, state: State) -> None:
        super().go_to(state)
        self._held, self._good = [], False

    def _get_next_index(self) -> int:
        return self.parent._get_next_index()

    def _set_next_index(self, index: int) -> None:
        self.parent._set_next_index(index)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name == "parent":
            raise AttributeError(name)
        return getattr(self.parent, name)

    def __str__(self) -> str:
        return str(self.parent)


def carrying(dataset: Any, context: Any, open_it: Callable[[Any], Any]) -> Any:
    """Open a pipeline that runs ahead of the consumer, so that its failures arrive in their place.

    Args:
        dataset: The pipeline.
        context: The context of the run.
        open_it: Opens the pipeline in a context.
    """
    account = context.account
    if account is None or not tolerates(dataset):
        return open_it(context)
    collector = Collector(account.rules, passes_one_to_one(dataset))
    return Carrier(open_it(context.but(account=collector)), collector)


def unpacking(iterator: Any, dataset: Any, account: Account | None) -> Any:
    """Return the consumer's side of `carrying`."""
    return iterator if account is None or not tolerates(dataset) else Unpacker(iterator, account)
