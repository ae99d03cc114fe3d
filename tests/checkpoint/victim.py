"""A training job that may be killed at any moment, and goes on from what Orbax wrote.

It reads one element of each of its pipelines in every step, notes them in a file, and saves all
iterators in one checkpoint now and then. Run as
`python -m tests.checkpoint.victim <folder> <steps> <seeds> <workers of each>`.
"""

import json
import os
import pickle
import sys
from pathlib import Path
from typing import Any

import orbax.checkpoint as ocp  # type: ignore[import-not-found,import-untyped,unused-ignore]

from tests.checkpoint.random_pipelines import random_pipeline
from wholegrain.checkpoint import CheckpointRestore, CheckpointSave

SAVE_EVERY = 3


def main() -> None:
    folder = Path(sys.argv[1])
    iterators = {
        f"pipeline_{seed}": iter(random_pipeline(seed, workers))
        for seed, workers in zip(json.loads(sys.argv[3]), json.loads(sys.argv[4]), strict=True)
    }
    manager = ocp.CheckpointManager(
        folder / "checkpoints", options=ocp.CheckpointManagerOptions(max_to_keep=2)
    )
    start = manager.latest_step()
    if start is not None:
        items = {name: CheckpointRestore(it) for name, it in iterators.items()}
        manager.restore(start, args=ocp.args.Composite(**items))
    with open(folder / f"elements_{os.getpid()}", "wb", buffering=0) as notes:
        for step in range(start or 0, int(sys.argv[2])):
            elements: dict[str, Any] = {name: next(it, "end") for name, it in iterators.items()}
            notes.write(pickle.dumps((step, elements)))
            if (step + 1) % SAVE_EVERY == 0:
                items = {name: CheckpointSave(it) for name, it in iterators.items()}
                manager.save(step + 1, args=ocp.args.Composite(**items))
            print(step, flush=True)  # Whoever is going to kill us counts these.
    manager.close()
    print("done", flush=True)


if __name__ == "__main__":
    main()
