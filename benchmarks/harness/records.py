"""ArrayRecord files of random bytes, written once and kept."""

from pathlib import Path

import numpy as np

from harness.environments import DATA


def record_files(records: int, nbytes: int, files: int) -> list[str]:
    """Return the names of `files` files with `records` records of `nbytes` bytes in all."""
    folder = DATA / f"records-{records}x{nbytes}-in-{files}"
    return [str(folder / f"{number:02d}.array_record") for number in range(files)]


def write_record_files(records: int, nbytes: int, files: int) -> None:
    """Write those files. Called by a benchmark's `prepare`."""
    from array_record.python.array_record_module import ArrayRecordWriter

    names = record_files(records, nbytes, files)
    done = Path(names[0]).parent / "complete"
    if done.exists():
        return
    done.parent.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(5)
    for name in names:
        writer = ArrayRecordWriter(name, "group_size:1,uncompressed")
        for _ in range(records // files):
            writer.write(rng.bytes(nbytes))
        writer.close()
    done.touch()
