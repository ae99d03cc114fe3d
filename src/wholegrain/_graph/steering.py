"""Steers a mixture: weights that hold for elements or tokens, and may change while it is read."""

from __future__ import annotations

import dataclasses
import math
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from wholegrain._core.deficits import Deficits, shares_of
from wholegrain._core.log import logger
from wholegrain._core.mixture import Mixture
from wholegrain._core.types import State
from wholegrain._core.whole_number import whole_number
from wholegrain._state.validate import (
    index_of,
    is_whole_number,
    list_of,
    number_of,
    part_of,
    shortened,
    wrong_state,
)
from wholegrain.schedule import Schedule

Measure = Callable[[Any], int]


def size_of(element: Any, measure: Measure) -> int:
    """Return how many tokens a function counts in an element."""
    try:
        size = measure(element)
    except StopIteration as error:  # It would end the mixture.
        raise RuntimeError("The function `unit` of a mixture raised StopIteration.") from error
    number = whole_number("unit", size, "The function `unit` has to return a whole number")
    if number < 0:
        raise ValueError(f"The function `unit` cannot return a negative number, but got {size}.")
    return number


@dataclasses.dataclass(frozen=True)
class Settings:
    """How a mixture is steered.

    Attributes:
        names: The names of the components, if they have any.
        schedule: From where on weights hold.
        weights: The weights of the schedule, in the order of the components.
        measure: Counts the tokens of an element; None if weights hold for elements.
        stop: When the mixture ends: "first", "all" or "restart".
        most_epochs: How often each component may be read; None for any number.
        pattern: Grain's order, which holds until the weights are first changed; None if an option
            of the mixture asks for another.
    """

    names: tuple[str, ...] | None
    schedule: Schedule
    weights: tuple[list[float], ...]
    measure: Measure | None
    stop: str
    most_epochs: tuple[int | None, ...]
    pattern: Mixture | None

    @property
    def count(self) -> int:
        """The number of components."""
        return len(self.most_epochs)

    def by_component(self, values: Sequence[Any]) -> Any:
        """Return values as a state has them: by name, or in order."""
        return list(values) if self.names is None else dict(zip(self.names, values, strict=True))


class Steering:
    """Which component comes next, and what each has given.

    Args:
        settings: How the mixture is steered.
        scale: How many workers read the mixture, each its share. A schedule counts what all of them
            give, so every element and token of one worker counts this many times.

    Attributes:
        elements: How many elements each component has given.
        tokens: The same in tokens, if they are measured.
        epochs: How often each component has been read to its end.
        journal: The steps at which weights were changed while the mixture was read, and these
            weights by name; None: those of the schedule.
    """

    def __init__(self, settings: Settings, scale: int = 1) -> None:
        self.settings = settings
        self._scale = scale
        self.journal: list[tuple[int, dict[str, float] | None]] = []
        count = settings.count
        self.elements, self.tokens, self.epochs = [0] * count, [0] * count, [0] * count
        self._ended = [False] * count
        self._at_start = [0] * count  # How many elements there were before this epoch, if known.
        self._deficits = Deficits(count)
        self._total = 0  # Tokens of all components.
        # Until which step, and until which number of tokens, the weights stay the same.
        self._until_step: float = 0
        self._until_total: float = 0
        self._follows_pattern = settings.pattern is not None

    def choose(self, index: int) -> int:
        """Return the component at step `index`, the next; -1 if none is left."""
        if index >= self._until_step or self._total >= self._until_total:
            self._look_up(index)
        if self._follows_pattern:
            assert self.settings.pattern is not None
            return self.settings.pattern.component(index)
        return self._deficits.choose()

    def weights_at(self, index: int) -> list[float]:
        """Return the weights at a step; those of components that have ended are 0."""
        self._look_up(index)
        return self._weights

    def _look_up(self, index: int) -> None:
        """Find out which weights hold at a step, and until when."""
        self._until_step = self._until_total = math.inf
        changed: tuple[int, dict[str, float] | None] | None = None
        for entry in self.journal:
            if entry[0] > index * self._scale:
                self._until_step = -(-entry[0] // self._scale)
                break
            changed = entry
        settings = self.settings
        self._follows_pattern = settings.pattern is not None and changed is None
        if changed is not None and changed[1] is not None:
            assert settings.names is not None
            weights = [changed[1][name] for name in settings.names]
        else:
            weights = settings.weights[self._piece_at(index)]
        self._weights = [
            0 if ended else weight for weight, ended in zip(weights, self._ended, strict=True)
        ]
        self._deficits.set_shares(shares_of(self._weights))

    def _piece_at(self, index: int) -> int:
        """Return which weights of the schedule hold at a step, and note until when."""
        schedule = self.settings.schedule
        by_step = schedule.by == "step"
        piece = schedule.piece_at(self._scale * (index if by_step else self._total))
        if piece + 1 < len(schedule.starts):
            until = -(-schedule.starts[piece + 1] // self._scale)
            if by_step:
                self._until_step = min(self._until_step, until)
            else:
                self._until_total = until
        return piece

    def give(self, component: int, size: int) -> None:
        """Record an element of a component."""
        self.elements[component] += 1
        if self.settings.measure is not None:
            self.tokens[component] += size
            self._total += size
        if not self._follows_pattern:
            self._deficits.give(component, size)

    def goes_on_after_end_of(self, component: int) -> bool:
        """Record that a component has ended; return whether it starts again."""
        self.epochs[component] += 1
        most = self.settings.most_epochs[component]
        is_empty = self.elements[component] == self._at_start[component]
        if not is_empty and (most is None or self.epochs[component] < most):
            self._at_start[component] = self.elements[component]
            return True
        self._ended[component] = True
        self._until_step = 0  # Its share passes to the others.
        return False

    def epoch_of(self, component: int) -> int:
        """Return which epoch of a component is being read."""
        return self.epochs[component] - self._ended[component]

    # The position.

    def get_state(self) -> State:
        """Return what is saved of a steered mixture, besides its step."""
        by_component = self.settings.by_component
        state: State = {
            "elements": by_component(self.elements),
            "deficits": by_component(self._deficits.values()),
            "largest": self._deficits.largest,
        }
        if self.settings.measure is not None:
            state["tokens"] = by_component(self.tokens)
        if self.settings.stop != "first":
            state["epochs"] = by_component(self.epochs)
            state["ended"] = by_component(self._ended)
        if self.journal:
            state["journal"] = [
                [step, None if weights is None else dict(weights)] for step, weights in self.journal
            ]
        return state

    def check_state(self, state: Any, owner: object) -> None:
        """Raise if a state is not one of such a mixture."""
        for key in ("elements", "deficits", "tokens", "epochs", "ended"):
            if key in state:
                self._check_values(state, key, owner)
        if "largest" in state:
            number_of(state, "largest", owner)
        last = -1
        for entry in list_of(state, "journal", owner) if "journal" in state else ():
            if not isinstance(entry, (list, tuple)) or len(entry) != 2:
                raise wrong_state(owner, f"its journal has the entry {shortened(entry)}")
            step = number_of({"step": entry[0]}, "step", owner)
            if step <= last or not _are_weights(entry[1]):
                raise wrong_state(owner, f"its journal has the entry {shortened(entry)}")
            last = step

    def _check_values(self, state: Any, key: str, owner: object) -> None:
        values = part_of(state, key, owner)
        if self.settings.names is not None:
            if not isinstance(values, Mapping):
                raise wrong_state(owner, f"under {key!r} it has {shortened(values)}, not a dict")
            values = list(values.values())
        elif not isinstance(values, (list, tuple)) or len(values) != self.settings.count:
            count = self.settings.count
            raise wrong_state(
                owner, f"under {key!r} it has {shortened(values)}, not {count} values"
            )
        for value in values:
            check = index_of if key == "deficits" else number_of
            check({key: value}, key, owner)

    def go_to(self, index: int, state: Any) -> None:
        """Go to a position that `check_state` has accepted."""
        names, count = self.settings.names, self.settings.count

        def restored(key: str) -> list[int]:
            values = state.get(key)
            if values is None:
                return [0] * count
            found = values if names is None else [values.get(name, 0) for name in names]
            return [operator.index(value) for value in found]

        if "elements" in state or self.settings.pattern is None:
            self.elements = restored("elements")
        else:  # The first change of the weights is still to come.
            self.elements = self.settings.pattern.counts(index)
        self.tokens, self.epochs = restored("tokens"), restored("epochs")
        self._ended = [bool(ended) for ended in restored("ended")]
        # An epoch that an element was taken from is not empty.
        self._at_start = [-1 if epochs else 0 for epochs in self.epochs]
        self._total = sum(self.tokens)
        self.journal = [
            (operator.index(step), weights) for step, weights in state.get("journal", ())
        ]
        deficits = restored("deficits")
        if names is not None and _named_in(state) not in (None, set(names)):
            # Other components than those that were steered: the weights of the pipeline hold.
            deficits = [0] * count
            if self.journal:
                logger().warning(
                    "The components of a mixture have changed from %s to %s. The weights that"
                    " `set_weights` has set for the former do not hold any more.",
                    sorted(_named_in(state) or ()),
                    sorted(names),
                )
                self.journal = []
        self._deficits.restore(deficits, max(1, operator.index(state.get("largest", 1))))
        self._until_step = 0  # Look up the weights again.


def _named_in(state: Any) -> set[str] | None:
    """Return the names of the components that a state was saved with; None if it does not say."""
    named = [state.get("deficits"), *(weights for _, weights in state.get("journal", ()))]
    return next((set(names) for names in named if names is not None), None)


def _are_weights(weights: Any) -> bool:
    if weights is None:
        return True
    return isinstance(weights, Mapping) and all(
        is_whole_number(weight) or isinstance(weight, float) for weight in weights.values()
    )
