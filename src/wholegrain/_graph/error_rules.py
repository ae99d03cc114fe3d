"""The rules of `on_error`: what a pipeline tolerates, and where its records come from."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from wholegrain._core.tolerated import FailedRecord

Policy = Literal["raise", "skip", "replace"] | Callable[[Exception, FailedRecord], Any]

_ENDLESS = 2**48


@dataclass(frozen=True)
class Rule:
    """What `on_error` tolerates.

    Args:
        policy: What takes the place of a failed element.
        budget: How many failures are tolerated: a number, or a share of the length of an epoch.
        consecutive: How many of them in a row.
        log: The file that they are written to.
        length: The length of an epoch.
        uid: Identifies the rule in all processes of a run.
    """

    policy: Policy
    budget: int | float | None
    consecutive: int | None
    log: str | None
    length: int | None = None
    uid: str = field(default_factory=lambda: os.urandom(8).hex())

    def for_length(self, length: int | None) -> Rule:
        """Return the rule for a dataset with epochs of this length; None if it is not known."""
        if isinstance(self.budget, float) and (length is None or length >= _ENDLESS):
            what = "this IterDataset" if length is None else "an infinite dataset"
            raise ValueError(
                f"budget={self.budget} is a share of the number of elements, which is not known for"
                f" {what}. Put `on_error` on the MapDataset, before `repeat` and"
                " `to_iter_dataset()`, or give the number of failures."
            )
        return replace(self, length=length)

    @property
    def policy_name(self) -> str:
        """The policy, as text."""
        if isinstance(self.policy, str):
            return self.policy
        return str(getattr(self.policy, "__name__", self.policy))

    @property
    def about(self) -> str:
        """What it does, in a sentence."""
        what = {"skip": "is left out", "replace": "is replaced by another one"}
        done = what.get(self.policy_name, f"is replaced by what `{self.policy_name}` returns")
        most = "any number" if self.budget is None else f"at most {self.budget}"
        return f"an element that fails {done}, {most} of them."

    def limit(self, epoch: int) -> int | None:
        """Return how many failures are tolerated up to the end of an epoch."""
        if isinstance(self.budget, float):
            return int(self.budget * (self.length or 0) * (epoch + 1))
        return self.budget


def checked_rule(policy: Any, budget: Any, consecutive: Any, log: Any) -> Rule:
    """Return a rule; raise if an argument of `on_error` is wrong."""
    if policy not in ("raise", "skip", "replace") and not callable(policy):
        raise ValueError(
            '`on_error` takes "raise", "skip", "replace" or a function of the exception and the'
            f" FailedRecord, but got {policy!r}."
        )
    is_number = isinstance(budget, (int, float)) and not isinstance(budget, bool)
    if budget is not None and (not is_number or budget < 0):
        raise ValueError(
            "`budget` is a number of failures, such as 100, or a share of an epoch, such as 0.001,"
            f" but got {budget!r}. None tolerates any number."
        )
    if isinstance(budget, float) and not budget <= 1:
        raise ValueError(f"A share of an epoch is at most 1.0, but got budget={budget}.")
    if consecutive is not None and (type(consecutive) is not int or consecutive < 0):
        raise ValueError(
            "`consecutive` is how many failures are tolerated in a row, such as 100, but got"
            f" {consecutive!r}. None tolerates any number."
        )
    return Rule(policy, budget, consecutive, None if log is None else str(log))


def rules_of(dataset: Any) -> list[Rule]:
    """Return the rules of all `on_error` stages of a pipeline, always in the same order."""
    found = {rule.uid: rule for rule in _rules_of(dataset)}
    return list(found.values())


def _rules_of(dataset: Any) -> Iterator[Rule]:
    for parent in getattr(dataset, "parents", ()):
        yield from _rules_of(parent)
    rule = getattr(dataset, "rule", None)
    if isinstance(rule, Rule):
        yield rule


def tolerates(dataset: Any) -> bool:
    """Whether a pipeline has stages of `on_error` or `quarantine`."""
    if getattr(dataset, "gives_place", None) is not None:
        return True
    return any(map(tolerates, getattr(dataset, "parents", ())))


def keeps_places(dataset: Any) -> bool:
    """Whether elements of a MapDataset are missing only because they failed."""
    if not dataset.sparse:
        return True
    declared = getattr(dataset, "gives_place", None)
    if declared is not None:
        return bool(declared)
    # A class that defines `sparse`, such as a filter, leaves elements out itself.
    definer = next(kind for kind in type(dataset).__mro__ if "sparse" in vars(kind))
    return definer.__name__ == "MapDataset" and all(map(keeps_places, dataset.parents))


def is_counted(dataset: Any) -> bool:
    """Whether no rule of a pipeline may leave elements out, so that their number is known."""
    if getattr(dataset, "gives_place", None) is not None and getattr(dataset, "sparse", True):
        return False
    return all(map(is_counted, getattr(dataset, "parents", ())))


def origin_of(dataset: Any, index: int) -> tuple[str | None, int | None, int | None]:
    """Return from which source an element comes, its index there, and the epoch."""
    source, at = source_of(dataset, index)
    if source is None:
        return None, at, None
    length = max(len(source), 1)
    return source_name(getattr(source, "traced_from", source)), at % length, at // length


def source_of(dataset: Any, index: int) -> tuple[Any, int]:
    """Return from which source an element comes, and its index there.

    The source is None if the element is made from several records; the index is that of one.
    """
    while dataset.parents:
        if hasattr(dataset, "locate"):
            component, index = dataset.locate(index)
            dataset = dataset.parents[component]
        elif hasattr(dataset, "parent_index"):
            index, dataset = int(dataset.parent_index(index)), dataset.parents[0]
        elif len(dataset.parents) == 1 and len(dataset) == len(dataset.parents[0]):
            dataset = dataset.parents[0]
        else:  # A batch, for example: its first record.
            return None, dataset.source_index(index)
    return dataset, index


def source_name(dataset: Any) -> str:
    """Return the name of the source of a dataset, which is the same in every run."""
    source = getattr(dataset, "source", None)
    if source is None:
        return str(dataset)
    kind = type(source)
    return repr(source)[:300] if kind.__module__.startswith("wholegrain.") else kind.__name__
