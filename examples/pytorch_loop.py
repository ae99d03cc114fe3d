"""A PyTorch training loop on batches from worker processes, stopped and started again.

Every loss of the interrupted run is that of the whole one.

pip install wholegrain torch
python examples/pytorch_loop.py
"""

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch

import wholegrain as wg

BATCH_SIZE = 32
NUM_STEPS = 150
STOP_AT = 80
SIZE = 12  # pixels


# The data: bars that stand or lie, somewhere, in noise.


def draw_bar(index: int) -> dict[str, Any]:
    """Return an image and whether its bar stands."""
    stands, place = index % 2, 1 + index // 2 % (SIZE - 2)
    image = np.zeros((SIZE, SIZE), np.float32)
    image[:, place] = 1
    return {"image": image if stands else image.T, "stands": np.int64(stands)}


def add_noise(element: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    """Add noise that belongs to the element: the same in every run, with any number of workers."""
    noise = rng.normal(0, 0.4, element["image"].shape).astype(np.float32)
    return {**element, "image": element["image"] + noise}


def to_tensors(batch: dict[str, np.ndarray]) -> dict[str, torch.Tensor]:
    """Share the memory of the arrays."""
    return {name: torch.from_numpy(array) for name, array in batch.items()}


def pipeline(num_workers: int = 2) -> wg.IterDataset[Any]:
    """Return batches of tensors, without end."""
    return (
        wg.MapDataset.range(2000)
        .seed(7)
        .shuffle()
        .map(draw_bar)
        .random_map(add_noise)
        .repeat()
        .batch(BATCH_SIZE)
        .to_iter_dataset()
        .mp_prefetch(wg.MultiprocessingOptions(num_workers, per_worker_buffer_size=4))
        .map(to_tensors)  # here, not in a worker: arrays are what travels without a copy
    )


# The loop.


def train(checkpoint: Path, stop_at: int = NUM_STEPS) -> tuple[list[float], float]:
    """Train from the checkpoint on, if there is one; return the losses and the share of hits."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Flatten(),
        torch.nn.Linear(SIZE * SIZE, 32),
        torch.nn.ReLU(),
        torch.nn.Linear(32, 2),
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=0.003)
    it = iter(pipeline())
    step = 0
    if checkpoint.exists():
        saved = torch.load(checkpoint)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        it.set_state(saved["data"])
        step = saved["step"]
        print(f"  goes on behind step {step}")

    losses, hits = [], 0.0
    while step < stop_at:
        batch = next(it)
        logits = model(batch["image"])
        loss = torch.nn.functional.cross_entropy(logits, batch["stands"])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step += 1
        losses.append(loss.item())
        hits = (logits.argmax(1) == batch["stands"]).float().mean().item()

    torch.save(
        {
            "step": step,
            "model": model.state_dict(),
            "optimizer": optimizer.state_dict(),
            "data": it.get_state(),
        },
        checkpoint,
    )
    it.close()
    print(f"  step {step}: loss {losses[-1]:.3f}, {hits:.0%} right")
    return losses, hits


def main() -> None:
    """Train in two ways, and compare."""
    with tempfile.TemporaryDirectory() as folder:
        print("Without interruption:")
        expected, _ = train(Path(folder, "whole.pt"))
        print(f"Stopped at step {STOP_AT}:")
        first, _ = train(Path(folder, "stopped.pt"), stop_at=STOP_AT)
        print("Started again:")
        second, _ = train(Path(folder, "stopped.pt"))
    same = expected == first + second
    print("The losses of all steps are equal." if same else "The losses differ.")
    if not same:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
