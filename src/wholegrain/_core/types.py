"""Type names that many modules share."""

from typing import Any, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

T = TypeVar("T")
S = TypeVar("S")

Indices: TypeAlias = npt.NDArray[np.int64]
IndexT = TypeVar("IndexT", int, Indices)
"""An index, or an array of them: index arithmetic is written once for both."""

State: TypeAlias = dict[str, Any]
