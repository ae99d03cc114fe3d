"""Counts tolerated failures, in the order of the stream, and stops a run that has too many.

The stage that meets a failure, where a MapDataset is read or in `on_error` of an IterDataset, keeps
count of the failures before its position: that count is part of its state. It also tells an
*account*. In the consumer's process this is the `Tally`, which knows the limits. In a worker, a
thread or a lane it is a `Collector`: the failures travel on with the element that comes after them,
as an exception in its place (`carrier.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from wholegrain._core.tolerated import Event, FailedRecord, Tolerated
from wholegrain._core.types import State
from wholegrain._graph.error_log import ErrorLog
from wholegrain._graph.error_rules import Rule, rules_of, tolerates
from wholegrain._graph.error_rules import keeps_places as keeps_places
from wholegrain._state import failures
from wholegrain._state.validate import wrong_state

_SHOWN = 20
_MOST_KEPT = 10_000


class TooManyErrorsError(RuntimeError):
    """More failures than `on_error` tolerates.

    Attributes:
        errors: The failures of this run so far.
    """

    def __init__(self, text: str, errors: Sequence[FailedRecord]) -> None:
        super().__init__(text)
        self.errors = list(errors)

    def __reduce__(self) -> Any:
        return TooManyErrorsError, (self.args[0], self.errors)


class Account:
    """Where stages report the failures that they tolerate.

    Args:
        rules: The rules of the pipeline.

    Attributes:
        defers: Whether a missing element keeps its place until the consumer leaves it out, so that
            workers take the same turns as without failures.
        numbers: The number of each rule, by which states know it.
    """

    defers = False

    def __init__(self, rules: Sequence[Rule]) -> None:
        self.rules = rules
        self.numbers = {rule.uid: str(number) for number, rule in enumerate(rules)}

    def note(self, events: Sequence[Event]) -> None:
        """Record failures, in the order of the stream."""
        raise NotImplementedError


class Collector(Account):
    """The account of a worker or a lane: keeps failures until an element takes them along."""

    def __init__(self, rules: Sequence[Rule], defers: bool) -> None:
        super().__init__(rules)
        self.defers = defers
        self.pending: list[Event] = []

    def note(self, events: Sequence[Event]) -> None:
        self.pending += events


class Tally(Account):
    """The account of the consumer's process: counts failures, and raises if there are too many."""

    def __init__(self, rules: Sequence[Rule]) -> None:
        super().__init__(rules)
        self._by_uid = {rule.uid: rule for rule in rules}
        self._counts: dict[str, list[int]] = {}
        self._records: dict[Any, FailedRecord] = {}
        self._logs = {rule.uid: ErrorLog(rule.log) for rule in rules if rule.log is not None}

    @property
    def records(self) -> list[FailedRecord]:
        """The failures of this run, in the order of the stream."""
        return list(self._records.values())

    @property
    def total(self) -> int:
        """How many failures there were up to this position, also before it was restored."""
        return sum(count for count, _ in self._counts.values())

    def begin_at(self, state: State | None) -> None:
        """Count on from a state."""
        self._counts = {} if state is None else failures.counts_in(state)

    def note(self, events: Sequence[Event]) -> None:
        too_many = ""
        for event in events:
            count, in_a_row = self._counts.get(self.numbers[event.rule], (0, 0))
            in_a_row = 1 if event.after_good else in_a_row + 1
            self._counts[self.numbers[event.rule]] = [count + 1, in_a_row]
            self._keep(event, count)
            too_many = too_many or self._excess(event, count + 1, in_a_row)
        if too_many:
            raise TooManyErrorsError(too_many, self.records)

    def _keep(self, event: Event, count: int) -> None:
        # Failures whose element is not known are told apart by how many came before.
        key = (event.rule, count if event.record.index is None else event.record)
        if key in self._records:
            return  # Read again, after an interruption or a restore.
        if len(self._records) < _MOST_KEPT:
            self._records[key] = event.record
        if event.rule in self._logs:
            self._logs[event.rule].write(event.record)

    def _excess(self, event: Event, count: int, in_a_row: int) -> str:
        rule = self._by_uid[event.rule]
        limit = rule.limit(event.epoch)
        if limit is not None and count > limit:
            why = f"{count} elements have failed, but budget={rule.budget} tolerates {limit}."
        elif rule.consecutive is not None and in_a_row > rule.consecutive:
            why = (
                f"{in_a_row} elements in a row have failed, but consecutive={rule.consecutive}"
                " tolerates no more."
            )
        else:
            return ""
        lines = [f"  {record}" for record in self.records[-_SHOWN:]]
        return "\n".join([why, "The last failures of this run, oldest first:", *lines])


def tally_of(dataset: Any) -> Tally | None:
    """Return the account of a run; None if the pipeline has no rules."""
    return Tally(rules_of(dataset)) if tolerates(dataset) else None


def uncounted(context: Any) -> Any:
    """Return the context for other stages of the same run, whose failures do not count."""
    if context.account is None:
        return context
    return context.but(account=Collector(context.account.rules, False))


class Counts:
    """How many failures were tolerated before the position of a stage.

    Args:
        account: The account of the run; None if it has no rules.

    Attributes:
        good: Whether an element without a failure came since the last failure.
    """

    def __init__(self, account: Account | None) -> None:
        self._account = account
        self._counts: dict[str, list[int]] = {}
        self.good = False

    def tolerate(self, found: Tolerated) -> None:
        """Count failures at this position.

        Raises:
            Tolerated: If the consumer has to leave the element out.
            TooManyErrorsError: If there are more failures than are tolerated.
        """
        account, good = self._account, self.good
        if found.events:
            self.good = found.ends_good
        events = list(found.events)
        if any(account is None or event.rule not in account.numbers for event in events):
            raise RuntimeError(
                "`on_error` is in a dataset that is opened while the pipeline runs, so its failures"
                " would not be counted. Put `on_error` after the stage that opens it. What failed:"
                f" {events[0].record}"
            )
        if account is None:
            return
        for at, event in enumerate(events):
            number = account.numbers[event.rule]
            count, in_a_row = self._counts.get(number, (0, 0))
            is_first = event.after_good or (good and not at)
            self._counts[number] = [count + 1, 1 if is_first else in_a_row + 1]
        # With workers that take turns, only the consumer knows which element came before.
        if events and good and not account.defers:
            events[0] = events[0]._replace(after_good=True)
        if account.defers and found.element is None:
            raise Tolerated(events, None, found.ends_good)
        account.note(events)

    def _saved(self) -> dict[str, list[int]]:
        if not self.good:
            return {number: list(counts) for number, counts in self._counts.items()}
        return {number: [count, 0] for number, (count, _) in self._counts.items()}

    def added_to(self, state: State) -> State:
        """Return a state with the counts in it, if there were any failures."""
        return {**state, failures.KEY: self._saved()} if self._counts else state

    def wrapped(self, state: State) -> State:
        """Return the state of a stage downstream of the one that has `state`."""
        return {"parent": state, failures.KEY: self._saved()} if self._counts else state

    def unwrapped(self, state: State, rule: Rule) -> State:
        """Return the parent's state."""
        account, given = self._account, cast("Any", state)
        if account is None:
            return state
        if not failures.is_wrapped(given):
            return state
        counts = failures.checked(given, self)
        return given["parent"] if account.numbers[rule.uid] in counts else state

    def go_to(self, state: State) -> None:
        """Count on from the counts of a state, if it has any."""
        self._counts = failures.checked(state, self) if failures.KEY in state else {}
        self.good = False

    def check(self, state: Any, owner: object) -> None:
        """Raise if the counts of a state are wrong."""
        if isinstance(state, Mapping) and failures.KEY in state:
            if self._account is None:
                raise wrong_state(owner, "it counts failed elements, but there is no `on_error`")
            failures.checked(state, owner)
