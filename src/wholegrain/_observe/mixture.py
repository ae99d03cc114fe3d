"""What a mixture should give, and what it has given so far."""

from __future__ import annotations

import dataclasses
from typing import Any

_ENDLESS = 1 << 48


@dataclasses.dataclass(frozen=True)
class ComponentShare:
    """One component of a mixture.

    Attributes:
        target: The share that its current weight asks for; 0 if it has ended.
        elements: How many elements it has given.
        element_share: The same as a share of all elements.
        tokens: How many tokens it has given; None if the mixture does not count them.
        token_share: The same as a share of all tokens.
        epochs: How often it has been read, such as 1.25; None if its length is not known.
    """

    target: float
    elements: int
    element_share: float
    tokens: int | None
    token_share: float | None
    epochs: float | None


@dataclasses.dataclass(frozen=True)
class MixtureReport:
    """The components of a mixture at a position. Print it, or read its fields.

    Attributes:
        step: How many elements the mixture has given.
        components: By name, or by number if they have no names.
    """

    step: int
    components: dict[Any, ComponentShare]

    def __getitem__(self, name: Any) -> ComponentShare:
        return self.components[name]

    def __str__(self) -> str:
        width = max(len("component"), *(len(str(name)) for name in self.components))
        lines = [
            f"step {self.step:,}",
            f"{'component':<{width}}  target  elements   share        tokens   share  epochs",
        ]
        for name, one in self.components.items():
            tokens = "-" if one.tokens is None else f"{one.tokens:,}"
            token_share = "-" if one.token_share is None else f"{one.token_share:.1%}"
            epochs = "-" if one.epochs is None else f"{one.epochs:.2f}"
            lines.append(
                f"{name!s:<{width}}  {one.target:>6.1%}"
                f"  {one.elements:>8,}  {one.element_share:>6.1%}"
                f"  {tokens:>12}  {token_share:>6}  {epochs:>6}"
            )
        return "\n".join(lines)


def report_of(
    step: int,
    names: Any,
    weights: list[float],
    elements: list[int],
    tokens: list[int] | None,
    epochs: list[float | None],
) -> MixtureReport:
    """Return the report of a mixture, given the values of its components."""
    of_weights, of_elements = _shares(weights), _shares(elements)
    of_tokens: list[Any] = [None] * len(names) if tokens is None else _shares(tokens)
    counts: list[Any] = [None] * len(names) if tokens is None else tokens
    rows = zip(of_weights, elements, of_elements, counts, of_tokens, epochs, strict=True)
    return MixtureReport(
        step, {name: ComponentShare(*row) for name, row in zip(names, rows, strict=True)}
    )


def _shares(values: Any) -> list[float]:
    total = sum(values)
    return [value / total if total else 0.0 for value in values]


def epochs_read(component: Any, elements: int, ended: int | None = None) -> float | None:
    """Return how often a component has been read.

    Args:
        component: The dataset.
        elements: How many elements it has given.
        ended: How often it was read to its end, if that is known.
    """
    length: int | None = getattr(component, "_period", None)
    source = component.parents[0] if getattr(component, "is_bridge", False) else component
    if length is None and hasattr(source, "getitems") and not source.sparse:
        length = len(source) if len(source) < _ENDLESS else None
    if length:
        return elements / length
    return None if ended is None else float(ended)
