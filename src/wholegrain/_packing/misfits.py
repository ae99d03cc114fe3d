"""Notes for elements that cannot be packed: which feature, and what is wrong with it."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from wholegrain._core.errors import add_stage_note
from wholegrain._core.interruption import is_interruption
from wholegrain._core.types import NDArray
from wholegrain._packing.features import Feature


def add_misfit_note(
    error: Exception, stage: str, element: Any, rows: Iterable[tuple[Feature, NDArray[Any] | None]]
) -> None:
    """Add a note to an error that names the stage and the feature that could not be packed.

    Args:
        error: The error that was raised.
        stage: The name of the packing dataset.
        element: The element that could not be packed.
        rows: The features, each with its rows, if there are any.
    """
    what = _misfit(element, rows)
    add_stage_note(error, f"This happened in {stage}" + (f": {what}." if what else "."))


def _misfit(element: Any, rows: Iterable[tuple[Feature, NDArray[Any] | None]]) -> str | None:
    if not isinstance(element, Mapping):
        return f"it packs dicts of arrays, but the element is of type {type(element).__name__}"
    for feature, values in rows:
        name = ".".join(map(str, feature.path))
        try:
            value = feature.of(element)
        except Exception as error:
            if is_interruption(error):
                raise
            return f"the element has no feature {name!r}, but {list(element)}"
        try:
            array = np.asarray(value)
        except Exception as error:
            if is_interruption(error):
                raise
            return f"the feature {name!r} is not an array, but {value!r}"
        if values is None:
            continue
        inner = array.shape[1:]
        if inner != values.shape[2:] or not np.can_cast(array.dtype, values.dtype, "same_kind"):
            return (
                f"the feature {name!r} of this element is {array.dtype}{list(array.shape)}, but the"
                f" first element set the rows to {values.dtype}{list(values.shape[1:])}"
            )
    return None
