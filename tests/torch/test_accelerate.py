"""Hugging Face Accelerate: `prepare`, `save_state` and `load_state` with two processes."""

from pathlib import Path

import pytest

from tests.torch.programs import in_processes

pytest.importorskip("torch", reason="PyTorch is not installed")
pytest.importorskip("accelerate", reason="Accelerate is not installed")


def test_two_ranks_resume_exactly(tmp_path: Path) -> None:
    ranks = in_processes("accelerated", 2, tmp_path)
    for filtered in ("False", "True"):
        shards = [{n for _, numbers, _ in seen[filtered][0] for n in numbers} for seen in ranks]
        assert shards[0].isdisjoint(shards[1])
        for seen in ranks:
            whole, resumed = seen[filtered]
            assert len(whole) == {"False": 10, "True": 8}[filtered]
            assert len({tuple(numbers) for _, numbers, _ in whole}) == len(whole)
            for step, found in resumed.items():
                elements = [one[:2] for one in whole[int(step) :]]
                assert [one[:2] for one in found] == elements, (filtered, step)
            # The last batch of an epoch completes an optimizer step, however few there are.
            half = len(whole) // 2
            assert [synchronised for _, _, synchronised in whole[:half]][-1]
            assert [synchronised for _, _, synchronised in whole[half:]][-1]
