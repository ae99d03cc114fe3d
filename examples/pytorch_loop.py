"""A PyTorch training loop on batches from worker processes, stopped and started again.

Every loss of the interrupted run equals that of the uninterrupted one.

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


# The data: vertical or horizontal bars at different positions, with noise.


def draw_bar(index: int) -> dict[str, Any]:
    """Return an image, and 1 if its bar is vertical."""
    vertical, column = index % 2, 1 + index // 2 % (SIZE - 2)
    image = np.zeros((SIZE, SIZE), np.float32)
    image[:, column] = 1
    return {"image": image if vertical else image.T, "vertical": np.int64(vertical)}


def add_noise(element: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    """Add noise that is the same for an element in every run, with any number of workers."""
    noise = rng.normal(0, 0.4, element["image"].shape).astype(np.float32)
    return {**element, "image": element["image"] + noise}


def to_tensors(batch: dict[str, np.ndarray]) -> dict[str, torch.Tensor]:
    """Return tensors that share the memory of the arrays."""
    return {name: torch.from_numpy(array) for name, array in batch.items()}


def pipeline(num_workers: int = 2) -> wg.IterDataset[Any]:
    """Return an infinite stream of batches of tensors."""
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
        .map(to_tensors)  # downstream of the workers, which pass arrays through shared memory
    )


# The loop.


def train(checkpoint: Path, stop_at: int = NUM_STEPS) -> tuple[list[float], float]:
    """Train, from the checkpoint if there is one; return the losses and the accuracy."""
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
        print(f"  resumes after step {step}")

    losses, accuracy = [], 0.0
    while step < stop_at:
        batch = next(it)
        logits = model(batch["image"])
        loss = torch.nn.functional.cross_entropy(logits, batch["vertical"])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step += 1
        losses.append(loss.item())
        accuracy = (logits.argmax(1) == batch["vertical"]).float().mean().item()

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
    print(f"  step {step}: loss {losses[-1]:.3f}, accuracy {accuracy:.0%}")
    return losses, accuracy


def main() -> None:
    """Train with and without an interruption, and compare."""
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
