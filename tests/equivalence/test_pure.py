"""The C extension and the numpy code beside it give the same."""

import hashlib
import json
import os
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

import wholegrain as wg
from wholegrain._core import native

X: Any = wg.experimental


def digests() -> dict[str, str]:
    """Return what several pipelines give, as short texts."""
    found: dict[str, Any] = {}
    for length in (2, 10, 1000, 2**16 - 1, 2**16 + 1, 2**17 + 5, 10**12, 2**62):
        for seed in (1, 2**32 - 1):
            ds = wg.MapDataset.range(length).shuffle(seed=seed)
            indices = np.linspace(0, length - 1, 50).astype(np.int64)
            later = indices[indices < 2**61] + (length if length < 2**40 else 0)
            found[f"shuffle {length} {seed}"] = [
                [ds[int(i)] for i in indices[::7]],
                list(ds.getitems(indices)),
                list(ds.getitems(later)),
            ]
    for max_index in (9_000, 70_000, 2**40):
        found[f"index_shuffle {max_index}"] = [
            X.index_shuffle(index, max_index, seed, rounds)
            for index in (0, 1, max_index // 2, max_index)
            for seed in (0, 7)
            for rounds in (4, 6, 40)
        ]
    windows = wg.MapDataset.range(300).to_iter_dataset()
    found["windows"] = list(X.WindowShuffleIterDataset(windows, window_size=70, seed=3))
    found["windows by index"] = list(
        X.WindowShuffleMapDataset(wg.MapDataset.range(300), window_size=70, seed=3).repeat(2)
    )
    mixed: Any = wg.MapDataset.mix(
        [wg.MapDataset.range(300).shuffle(seed=n) for n in range(3)], [1, 2, 3.5]
    )
    found["mixture"] = [batch.tolist() for batch in mixed.batch(7)]
    return {
        name: hashlib.sha256(repr(value).encode()).hexdigest()[:16] for name, value in found.items()
    }


@pytest.mark.skipif(native.lib is None, reason="The extension is not there to compare with.")
def test_the_same_with_and_without_the_extension() -> None:
    script = "import json; from tests.equivalence.test_pure import digests, native;"
    script += "assert native.lib is None; print(json.dumps(digests()))"
    environment = {**os.environ, "WHOLEGRAIN_PURE": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    run = subprocess.run(
        [sys.executable, "-c", script],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    assert json.loads(run.stdout) == digests()
