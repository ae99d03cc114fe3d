"""Reads a pipeline with failures, writes down what it reads, and is killed at a given step."""

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import wholegrain as wg
from tests.graph.failing import Broken, FailsFor, with_workers

BROKEN = frozenset(range(3, 300, 23)) | {120, 121, 122}
BAD = BROKEN | {50, 51}


def pipeline(policy: Any, workers: Any, log: Path) -> Any:
    ds = wg.MapDataset.source(Broken(300, BROKEN)).seed(2).shuffle().map(FailsFor(50, 51))
    return with_workers(ds.on_error(policy, log=log).to_iter_dataset(), workers)


def main(folder: Path, policy: str, workers: Any, stop: int) -> None:
    it = iter(pipeline(policy, workers, folder / "bad.jsonl"))
    file = folder / "read.jsonl"
    if file.exists():
        it.set_state(json.loads(file.read_text().splitlines()[-1])["state"])
    with file.open("a") as out:
        for count, element in enumerate(it):
            if count == stop:
                os.kill(os.getpid(), signal.SIGKILL)
            out.write(json.dumps({"element": element, "state": it.get_state()}) + "\n")
            out.flush()


if __name__ == "__main__":
    main(
        Path(sys.argv[1]),
        sys.argv[2],
        sys.argv[3] if sys.argv[3] == "auto" else int(sys.argv[3]),
        int(sys.argv[4]),
    )
