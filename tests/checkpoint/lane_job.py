"""A job of several hosts with lanes that may be killed at any moment, and goes on from its files.

All hosts are iterators of one process, with workers of their own. After each step they save, each
in a file of its own. Run as `python -m tests.checkpoint.lane_job <folder> <job as JSON>`.
"""

import json
import os
import pickle
import sys
from pathlib import Path
from typing import Any, NamedTuple

import wholegrain as wg
from tests.checkpoint.lane_pipelines import LANES, random_pipeline
from wholegrain.checkpoint import CheckpointHandler
from wholegrain.experimental import ElasticIterator
from wholegrain.sharding import ShardOptions

BATCH = 2 * LANES
END = "end"


class Job(NamedTuple):
    """What to run: the pipeline, on how many hosts, and with how many workers each."""

    seed: int
    remainder: str
    hosts: int
    workers: Any

    def open(self, folder: Path) -> list[Any]:
        """Return the iterators of all hosts."""
        options = wg.MultiprocessingOptions(self.workers) if self.workers else None
        return [
            ElasticIterator(
                random_pipeline(self.seed),
                BATCH,
                ShardOptions(host, self.hosts),
                multiprocessing_options=options,
                lanes=LANES,
                steps="count",
                remainder=self.remainder,  # type: ignore[arg-type]
                count_cache=folder / "counts",
            )
            for host in range(self.hosts)
        ]

    def handler(self, host: int) -> CheckpointHandler:
        """Return what saves and restores a host."""
        return CheckpointHandler(process_index=host, process_count=self.hosts)


def newest(folder: Path) -> Path | None:
    """Return the checkpoint of the last step that all hosts have saved."""
    complete = []
    for step in folder.glob("step_*"):
        files = [file.name for file in step.glob("process_*.json")]
        if files and len(files) == int(files[0].rpartition("-of-")[2].removesuffix(".json")):
            complete.append(step)
    return max(complete, key=lambda step: int(step.name.removeprefix("step_")), default=None)


def main() -> None:
    folder, job = Path(sys.argv[1]), Job(*json.loads(sys.argv[2]))
    its = job.open(folder)
    saved = newest(folder)
    if saved is not None:
        for host, it in enumerate(its):
            job.handler(host).restore(saved, it)
    with open(folder / f"notes_{os.getpid()}", "wb", buffering=0) as notes:
        while True:
            step = its[0].step_in_epoch
            batches = [next(it, None) for it in its]
            notes.write(pickle.dumps((step, END if batches[0] is None else batches)))
            if batches[0] is None:
                break
            # A folder of a run that was killed may have files of another number of hosts.
            target = folder / f"step_{step + 1}"
            if target.exists():
                for file in target.iterdir():
                    file.unlink()
            target.mkdir(exist_ok=True)
            for host, it in enumerate(its):
                job.handler(host).save(target, it)
            print(step, flush=True)  # Whoever is going to kill us counts these.
    print(END, flush=True)
    for it in its:
        it.close()


if __name__ == "__main__":
    main()
