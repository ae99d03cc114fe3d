"""Hugging Face Accelerate: `prepare`, `save_state` and `load_state` with two processes."""

from pathlib import Path

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
            whole, resumed = seen[name]
            assert len(whole) == {"plain": 10, "filtered": 8, "lanes": 8}[name]
            assert len({tuple(numbers) for _, numbers, _ in whole}) == len(whole)
            for step, found in resumed.items():
                elements = [one[:2] for one in whole[int(step) :]]
                assert [one[:2] for one in found] == elements, (name, step)
            # The last batch of an epoch completes an optimizer step, however few there are.
            half = len(whole) // 2
            assert [synchronised for _, _, synchronised in whole[:half]][-1]
            assert [synchronised for _, _, synchronised in whole[half:]][-1]
