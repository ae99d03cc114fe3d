"""The demo's training: its "model" is a digest of all batches in order.

The digest changes if one pixel differs, or if two batches are swapped.
"""

import dataclasses
import hashlib
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from wholegrain._cli.demo.data import BATCH_SIZE, MOST_READY, NUM_WORKERS, new_counts, pipeline


@dataclasses.dataclass(frozen=True)
class Worker:
    """The progress of a worker process."""

    pid: int
    ready: int  # finished batches in the buffer
    state: str


@dataclasses.dataclass(frozen=True)
class Progress:
    """The progress of a training run."""

    step: int
    digest: str
    rate: float  # images per second
    workers: list[Worker]
    report: Any = None  # of the pipeline, at the end, where there is one


def train(folder: Path, checkpoint: Path, num_steps: int, save_every: int) -> Iterator[Progress]:
    """Train, from the checkpoint if there is one; save checkpoints; yield each step."""
    counts = new_counts(folder)
    batches = iter(pipeline(folder))
    first, digest = 0, ""
    if checkpoint.exists():
        saved = json.loads(checkpoint.read_text())
        first, digest = saved["step"], saved["digest"]
        batches.set_state(saved["pipeline"])
    started = time.perf_counter()
    for step in range(first + 1, num_steps + 1):
        digest = digest_of(digest, next(batches))
        if step == first + 1:
            started = time.perf_counter()  # workers have started
        if step % save_every == 0 and step < num_steps:
            save(checkpoint, {"step": step, "digest": digest, "pipeline": batches.get_state()})
        images = (step - first - 1) * BATCH_SIZE
        rate = images / max(time.perf_counter() - started, 1e-9)
        report = _report(batches) if step == num_steps else None
        yield Progress(step, digest, rate, _workers(counts, first, step), report)
    batches.close()


def _report(batches: Any) -> Any:
    return batches.report() if hasattr(batches, "report") else None


def digest_of(digest: str, batch: dict[str, Any]) -> str:
    """Return the digest after one more batch."""
    sha = hashlib.sha256(digest.encode())
    for name in sorted(batch):
        sha.update(np.ascontiguousarray(batch[name]).data)
    return sha.hexdigest()


def save(checkpoint: Path, content: dict[str, Any]) -> None:
    """Write a checkpoint atomically."""
    new = checkpoint.with_suffix(".new")
    new.write_text(json.dumps(content))
    new.rename(checkpoint)


def _workers(counts: Any, first: int, step: int) -> list[Worker]:
    workers = []
    for number, (pid, images) in enumerate(counts.tolist()):
        # Batches come from the workers round-robin.
        before, now = (-((number - taken) // NUM_WORKERS) for taken in (first, step))
        taken = now - before
        ready = min(max(0, images // BATCH_SIZE - taken), MOST_READY)
        workers.append(Worker(pid, ready, _state(pid, ready)))
    return workers


def _state(pid: int, ready: int) -> str:
    if not pid:
        return "starting"
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "" if not os.path.isdir("/proc/self") else "gone"
    if state == "R":
        return "working"
    return "ahead" if ready > MOST_READY // 2 else "waiting"


def tell(folder: str, checkpoint: str, num_steps: str, save_every: str) -> None:
    """Run as the training process that will be killed: print each step as JSON."""
    for progress in train(Path(folder), Path(checkpoint), int(num_steps), int(save_every)):
        said = dataclasses.replace(progress, report=None)
        print(json.dumps(dataclasses.asdict(said)), flush=True)
