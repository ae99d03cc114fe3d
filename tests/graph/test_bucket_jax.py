"""Bucketed batches compile a jitted function once for each boundary."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import wholegrain as wg

jax = pytest.importorskip("jax")


def test_a_jitted_function_is_compiled_once_for_each_boundary() -> None:
    rng = np.random.default_rng(0)
    lengths = np.clip(rng.lognormal(4, 1, 3000), 1, 512).astype(int)
    rows = [np.ones(length, np.int32) for length in lengths]
    boundaries = [32, 64, 128, 256, 512]
    ds = wg.MapDataset.source(rows).seed(0).shuffle().repeat(2).to_iter_dataset()
    traced: list[tuple[int, ...]] = []

    def step(batch: Any) -> Any:
        traced.append(batch.shape)  # Runs only while the function is traced, to be compiled.
        return batch.sum()

    compiled = jax.jit(step)
    total = sum(int(compiled(batch)) for batch in ds.bucket(len, boundaries, budget=4096))
    assert sorted(traced) == sorted((4096 // width, width) for width in boundaries)
    assert compiled._cache_size() == len(boundaries)
    assert total > 0.9 * 2 * lengths.sum()
