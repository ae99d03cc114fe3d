"""Counts the tokens of an element, for mixtures by tokens."""

from collections.abc import Mapping
from typing import Any

from wholegrain._core.names import kind_of


def token_count(element: Any) -> int:
    """Return the length of an element; of a dict: of `"tokens"`, or of its only sequence.

    The length of an array is that of its first axis. A missing element has no tokens.
    """
    if element is None:
        return 0
    if isinstance(element, Mapping):
        if "tokens" in element:
            return token_count(element["tokens"])
        found = [name for name, feature in element.items() if _has_length(feature)]
        if len(found) != 1:
            raise ValueError(
                'unit="tokens" counts the feature "tokens", or the only feature with a length, but'
                f" an element has the features {list(element)}. Pass a function instead, such as"
                ' `unit=lambda element: len(element["text"])`.'
            )
        return len(element[found[0]])
    if not _has_length(element):
        raise TypeError(
            f'unit="tokens" counts the length of each element, but got {kind_of(element)}. Pass a'
            " function of the element instead."
        )
    return len(element)


def _has_length(feature: Any) -> bool:
    # An array without axes has the attribute, but no length.
    return hasattr(feature, "__len__") and getattr(feature, "ndim", 1) != 0
