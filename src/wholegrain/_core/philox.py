"""Creates random generators from keys.

numpy's `Philox(key=...)` asks the system for entropy that it does not use, which takes longer than
everything else. Passing the key as the output of a seed sequence avoids that.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.random.bit_generator import ISpawnableSeedSequence

_WORD = (1 << 64) - 1
_START = np.zeros(4, np.uint64)  # numpy takes longer to make this of its default.


class _Key(ISpawnableSeedSequence):
    """Passes Philox its key as the output of a seed sequence."""

    def __init__(self, key: int) -> None:
        self._key = key

    def generate_state(self, n_words: int, dtype: Any = np.uint32) -> Any:
        return np.array([self._key & _WORD, self._key >> 64], np.uint64)

    def spawn(self, n_children: int) -> Any:
        # `Philox(key=...)` spawns from fresh entropy, too.
        return np.random.SeedSequence().spawn(n_children)


def generator(key: int) -> np.random.Generator:
    """Return the equivalent of `Generator(Philox(key=key))`."""
    return np.random.Generator(np.random.Philox(_Key(key), counter=_START))  # type: ignore[arg-type]
