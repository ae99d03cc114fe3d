"""A training run that is killed half-way and goes on as if nothing had happened.

The "model" is a SHA-256 digest of every batch it has seen: if one pixel of one batch differs, or
two batches change places, the digest is another one.

    python examples/demo.py
"""

import hashlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import wholegrain as wg

SIZE = 16  # pixels
NUM_IMAGES = 10_000
BATCH_SIZE = 64
NUM_STEPS = 400  # two and a half epochs
SAVE_AT = NUM_STEPS // 2
KILL_AT = SAVE_AT + 37


# The data.


class Discs:
    """Images of discs: which colour, where and how large follows from the index."""

    def __init__(self) -> None:
        self._rows, self._columns = np.mgrid[:SIZE, :SIZE]

    def __len__(self) -> int:
        return NUM_IMAGES

    def __getitem__(self, index: int) -> dict[str, Any]:
        label = index % 6
        row, column, radius = 3 + index % 10, 3 + index // 10 % 10, 3 + index // 100 % 4
        inside = (self._rows - row) ** 2 + (self._columns - column) ** 2 <= radius**2
        image = np.full((SIZE, SIZE, 3), 28, np.uint8)
        image[inside] = COLOURS[label]
        return {"image": image, "label": label, "id": index}


COLOURS = np.array(
    [(230, 80, 70), (240, 170, 60), (110, 190, 90), (70, 180, 200), (90, 110, 220), (190, 100, 200)]
)


def augment(element: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    """Mirror at random, and make brighter or darker."""
    image = element["image"]
    if rng.random() < 0.5:
        image = image[:, ::-1]
    brightness = rng.uniform(0.5, 1.1)
    return {**element, "image": (image * brightness).clip(0, 255).astype(np.uint8)}


def pipeline() -> wg.IterDataset[Any]:
    """Return the batches of all epochs: each shuffled anew, each image augmented anew."""
    return (
        wg.MapDataset.source(Discs())
        .seed(42)
        .shuffle()
        .random_map(augment)
        .repeat()
        .batch(BATCH_SIZE)
        .to_iter_dataset()
    )


# The training.


def digest_of(digest: str, batch: dict[str, Any]) -> str:
    """Return the digest after one more batch."""
    sha = hashlib.sha256(digest.encode())
    for name in sorted(batch):
        sha.update(np.ascontiguousarray(batch[name]).data)
    return sha.hexdigest()


def train(checkpoint: Path) -> Iterator[tuple[int, str]]:
    """Train from the checkpoint on, if there is one; yield the number of steps and the digest."""
    batches = iter(pipeline())
    step, digest = 0, ""
    if checkpoint.exists():
        saved = json.loads(checkpoint.read_text())
        step, digest = saved["step"], saved["digest"]
        batches.set_state(saved["batches"])
    while True:
        step += 1
        digest = digest_of(digest, next(batches))
        if step == SAVE_AT:
            saved = {"step": step, "digest": digest, "batches": batches.get_state()}
            checkpoint.with_suffix(".new").write_text(json.dumps(saved))
            checkpoint.with_suffix(".new").rename(checkpoint)
        yield step, digest


def start_training(checkpoint: Path) -> subprocess.Popen[str]:
    """Do the same in a process of its own, which tells each step."""
    command = [sys.executable, __file__, "--train", str(checkpoint)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def steps_of(process: subprocess.Popen[str]) -> Iterator[tuple[int, str]]:
    """Yield what the process tells."""
    assert process.stdout is not None
    for line in process.stdout:
        step, digest = line.split()
        yield int(step), digest


def kill(process: subprocess.Popen[str]) -> None:
    """End the process without a chance to tidy up."""
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert process.returncode == -signal.SIGKILL


def train_until_killed(checkpoint: Path) -> None:
    """Be the other process."""
    for step, digest in train(checkpoint):
        print(step, digest, flush=True)


# The show.

PRETTY = sys.stdout.isatty() and "NO_COLOR" not in os.environ


def style(text: str, code: str) -> str:
    """Return `text` in a colour, where there are colours."""
    return f"\033[{code}m{text}\033[0m" if PRETTY else text


def headline(text: str) -> None:
    """Print what comes next."""
    print(f"\n{style(text, '1')}")


def show_images(images: Any) -> None:
    """Print images side by side, two rows of pixels in a line of text."""
    for upper, lower in zip(range(0, SIZE, 2), range(1, SIZE, 2), strict=True):
        line = []
        for image in images:
            for above, below in zip(image[upper], image[lower], strict=True):
                line.append(f"\033[38;2;{rgb(above)};48;2;{rgb(below)}m▀")
            line.append("\033[0m ")
        print("  " + "".join(line))


def rgb(pixel: Any) -> str:
    """Return a colour as terminals want it."""
    return ";".join(map(str, pixel))


def watch(steps: Iterator[tuple[int, str]], last: int) -> str:
    """Follow the training up to a step, and return its digest."""
    first, digest = next(steps)
    started = time.perf_counter()
    step = first
    while step < last:
        step, digest = next(steps)
        if PRETTY and step % 10 == 0:
            done = 40 * step // NUM_STEPS
            print(f"\r  {'█' * done}{'░' * (40 - done)} step {step}", end="", flush=True)
    rate = (last - first) * BATCH_SIZE / (time.perf_counter() - started)
    start_of_line = "\r\033[K" if PRETTY else ""
    print(f"{start_of_line}  steps {first} to {last}, {rate:,.0f} images per second")
    print(f"  digest {style(digest, '36')}")
    return digest


def main() -> int:
    """Run the demo; return the exit code."""
    print(f"wholegrain {wg.__version__}: {NUM_IMAGES:,} images, shuffled, augmented, batched,")
    print(f"{NUM_STEPS} batches of {BATCH_SIZE}, two and a half epochs.")
    batch = next(iter(pipeline()))
    if PRETTY:
        print()
        show_images(batch["image"][:6])
    print(f"  The first of the first batch: {batch['id'][:10].tolist()} ...")

    with tempfile.TemporaryDirectory() as folder:
        headline("1. A run that nobody disturbs")
        expected = watch(train(Path(folder, "undisturbed.json")), NUM_STEPS)

        checkpoint = Path(folder, "checkpoint.json")
        headline(f"2. The same in another process, killed at step {KILL_AT}")
        process = start_training(checkpoint)
        watch(steps_of(process), KILL_AT)
        kill(process)
        print(f"  {style('SIGKILL.', '31')} What is left is a file, written at step {SAVE_AT}:")
        print(f"  {style(checkpoint.read_text(), '2')}")

        headline("3. A new process goes on from there")
        process = start_training(checkpoint)
        found = watch(steps_of(process), NUM_STEPS)
        kill(process)

    if found != expected:
        print(style("\nThe digests differ. That should never happen.", "1;31"))
        return 1
    print(style("\nThe digests are the same: not one pixel of one batch was different.", "1;32"))
    return 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["--train"]:
        train_until_killed(Path(sys.argv[2]))
    else:
        sys.exit(main())
