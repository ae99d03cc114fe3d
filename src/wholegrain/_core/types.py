"""Type names that many modules share."""

from typing import Any, TypeAlias, TypeVar

import numpy as np

T = TypeVar("T")
S = TypeVar("S")

ScalarT = TypeVar("ScalarT", bound=np.generic)
NDArray: TypeAlias = np.ndarray[tuple[Any, ...], np.dtype[ScalarT]]
"""As in `numpy.typing`, which takes longer to import than most modules of this package."""

Indices: TypeAlias = NDArray[np.int64]
IndexT = TypeVar("IndexT", int, Indices)
"""An index, or an array of them: index arithmetic is written once for both."""

State: TypeAlias = dict[str, Any]
