"""Random generators by key.

numpy's `Philox(key=...)` asks the system for entropy, which it then does not use: that takes longer
than all the rest. A key can also be what a sequence of seeds gives.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.random.bit_generator import ISpawnableSeedSequence

_WORD = (1 << 64) - 1


class _Key(ISpawnableSeedSequence):
    """Gives Philox its key, as if it came from a seed."""

    def __init__(self, key: int) -> None:
        self._key = key

    def generate_state(self, n_words: int, dtype: Any = np.uint32) -> Any:
        return np.array([self._key & _WORD, self._key >> 64], np.uint64)

    def spawn(self, n_children: int) -> Any:
        # As from the entropy that a key alone would have asked for.
        return np.random.SeedSequence().spawn(n_children)


def generator(key: int) -> np.random.Generator:
    """Return what `Generator(Philox(key=key))` is."""
    return np.random.Generator(np.random.Philox(_Key(key)))  # type: ignore[arg-type]
