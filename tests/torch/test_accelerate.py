"""Hugging Face Accelerate: `prepare`, `save_state` and `load_state` with two processes."""

from pathlib import Path
from typing import Any

import pytest

from tests.torch.programs import in_processes

pytest.importorskip("torch", reason="PyTorch is not installed")
pytest.importorskip("accelerate", reason="Accelerate is not installed")


def test_two_ranks_resume_exactly(tmp_path: Path) -> None:
    ranks = in_processes("accelerated", 2, tmp_path)
    for name in ("plain", "filtered", "lanes"):
        for epoch in (0, 1):
            shards = [
                {n for e, numbers, _ in seen[name][0] for n in numbers if e == epoch}
                for seen in ranks
            ]
            assert shards[0].isdisjoint(shards[1])
        for seen in ranks:
            whole, resumed, twice, early, left = (_elements(one) for one in seen[name])
            assert len(whole) == {"plain": 10, "filtered": 8, "lanes": 8}[name]
            assert len({tuple(numbers) for _, numbers in whole}) == len(whole)
            for step, found in resumed.items():
                assert found == whole[int(step) :], (name, step)
            assert twice == whole
            half = len(whole) // 2
            assert early == whole[:2] + whole[half : half + 2]
            for step, found in left.items():
                assert found == early[int(step) :], (name, step)
            # The last batch of an epoch completes an optimizer step, however few there are.
            synchronised = [one[2] for one in seen[name][0]]
            assert synchronised[half - 1]
            assert synchronised[-1]


def _elements(seen: Any) -> Any:
    """Return the epochs and the elements of the steps that a rank saw."""
    if isinstance(seen, dict):
        return {step: _elements(one) for step, one in seen.items()}
    return [one[:2] for one in seen]
