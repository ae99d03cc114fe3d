"""A PyTorch training loop on batches from worker processes, stopped and started again.

Every loss of the interrupted run equals that of the uninterrupted one.

pip install 'wholegrain[torch]'
python examples/pytorch_loop.py
"""

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch

import wholegrain as wg
import wholegrain.torch

BATCH_SIZE = 32
NUM_EPOCHS = 3
NUM_STEPS = 150
STOP_AT = 80
SIZE = 12  # pixels
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


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


def make_loader(num_workers: int = 2) -> wholegrain.torch.Loader:
    """Return a DataLoader of PyTorch. Each epoch has another order and other noise."""
    ds = (
        wg.MapDataset.range(1600)
        .seed(7)
        .shuffle()
        .map(draw_bar)
        .random_map(add_noise)
        .batch(BATCH_SIZE)
        .to_iter_dataset()
        .mp_prefetch(wg.MultiprocessingOptions(num_workers, per_worker_buffer_size=4))
    )
    return wg.torch.loader(ds, device=DEVICE)


# The loop.


def train(checkpoint: Path, stop_at: int = NUM_STEPS) -> tuple[list[float], float]:
    """Train, from the checkpoint if there is one; return the losses and the accuracy."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Flatten(),
        torch.nn.Linear(SIZE * SIZE, 32),
        torch.nn.ReLU(),
        torch.nn.Linear(32, 2),
    ).to(DEVICE)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.003)
    loader = make_loader()
    step = 0
    if checkpoint.exists():
        saved = torch.load(checkpoint)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        loader.load_state_dict(saved["loader"])
        step = saved["step"]
        print(f"  resumes after step {step}, in epoch {loader.epoch}")

    losses, accuracy = [], 0.0
    for _ in range(loader.epoch, NUM_EPOCHS):
        for batch in loader:
            logits = model(batch["image"])
            loss = torch.nn.functional.cross_entropy(logits, batch["vertical"])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            losses.append(loss.item())
            accuracy = (logits.argmax(1) == batch["vertical"]).float().mean().item()
            if step == stop_at:
                break
        if step == stop_at:
            break

    torch.save(
        {
            "step": step,
            "model": model.state_dict(),
            "optimizer": optimizer.state_dict(),
            "loader": loader.state_dict(),
        },
        checkpoint,
    )
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
