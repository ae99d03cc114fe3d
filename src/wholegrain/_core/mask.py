"""The mark of padding: a boolean beside an element, or beside each row of a batch."""

from typing import Any

_KEY = "mask"


def with_mask(element: Any, mask: Any) -> Any:
    """Return an element or a batch, and what of it is no padding.

    The mask is the value of the key "mask" of a dict, else the second of a pair.
    """
    if not isinstance(element, dict):
        return element, mask
    if _KEY in element:
        raise ValueError(
            f'remainder="pad" adds the key {_KEY!r}, but the elements have that key already: rename'
            " it with a `map`."
        )
    return {**element, _KEY: mask}
