"""`wholegrain demo`: a training run that is killed halfway and resumes exactly.

It shows the main purpose of the library on generated data: two worker processes shuffle, augment
and batch images from ArrayRecord files. The run is killed with SIGKILL, resumes from its
checkpoint, and its digest equals that of an uninterrupted run.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import wholegrain as wg
from wholegrain._cli.console import Console, size_text, time_text
from wholegrain._cli.demo import data, screen, training
from wholegrain._cli.demo.training import Progress, Worker

_TRAINING = """
import sys
from wholegrain._cli.demo.training import tell
tell(*sys.argv[1:])
"""


def run(arguments: argparse.Namespace) -> int:
    """Run the demo; return the exit code."""
    console = Console()
    started = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="wholegrain-demo-") as folder:
        same = _show(console, Path(folder), arguments)
    took = time_text(time.perf_counter() - started)
    if not same:
        console.headline(f"The digests differ, which should never happen. ({took})")
        return 1
    console.line()
    text = f"The digests are equal: every pixel of every batch is the same. ({took})"
    console.line(text, "bold green")
    return 0


def _show(console: Console, folder: Path, arguments: argparse.Namespace) -> bool:
    steps, save_every = arguments.steps, max(1, arguments.steps // 10)
    kill_at = steps // 2 + save_every // 2
    _write(console, folder, arguments.images)
    epochs = steps * data.BATCH_SIZE / arguments.images
    console.line(
        f"  Training: shuffle, augment, batches of {data.BATCH_SIZE},"
        f" {data.NUM_WORKERS} workers; {steps} steps, {epochs:.1f} epochs."
    )

    console.headline("1. An uninterrupted run")
    expected = screen.watch(
        console,
        training.train(folder, folder / "undisturbed.json", steps, save_every),
        steps,
        steps,
    )
    _tell(console, expected, 1)

    checkpoint = folder / "checkpoint.json"
    console.headline(f"2. The same run in another process, killed at step {kill_at}")
    with _training(folder, checkpoint, steps, save_every) as process:
        killed = screen.watch(console, _steps_of(process), steps, kill_at)
        process.send_signal(signal.SIGKILL)
        process.communicate()
    assert process.returncode == -signal.SIGKILL
    _tell(console, killed, 1)
    saved = json.loads(checkpoint.read_text())
    console.line("  SIGKILL.", "bold red")
    console.line(f"  A checkpoint of {checkpoint.stat().st_size} bytes remains, written")
    console.line(f"  at step {saved['step']}. It has the position of each worker:")
    console.line(f"  {json.dumps(_where(saved['pipeline']))}", "dim")

    console.headline("3. A new process resumes from the checkpoint")
    with _training(folder, checkpoint, steps, save_every) as process:
        found = screen.watch(console, _steps_of(process), steps, steps)
        process.communicate()
    _tell(console, found, saved["step"] + 1)

    if expected.report is not None:
        console.headline("Where the first run spent its time: `it.report()`")
        console.show(expected.report)
        if arguments.report:
            expected.report.save_html(arguments.report)
            console.line(f"  As a page: {arguments.report}")
    return found.digest == expected.digest


def _write(console: Console, folder: Path, count: int) -> None:
    started = time.perf_counter()
    for written in data.write_images(folder, count):
        if not written:
            console.line(f"wholegrain {wg.__version__}", "bold")
    took = time_text(time.perf_counter() - started)
    files = list(folder.glob("*.array_record"))
    size = size_text(sum(file.stat().st_size for file in files))
    console.line(f"  Data: {count:,} images in {len(files)} ArrayRecord files, {size}, {took}.")
    screen.show_images(console, data.images(4))


def _tell(console: Console, progress: Progress, first: int) -> None:
    console.line(f"  {screen.summary(progress, first)}")
    console.line(f"  digest {progress.digest}", "cyan")


def _where(state: object) -> object:
    """Return the part of a state that the demo shows: the position of each worker."""
    if isinstance(state, dict) and "iterators_in_use_states" in state:
        return state["iterators_in_use_states"]
    return state


def _training(
    folder: Path, checkpoint: Path, steps: int, save_every: int
) -> "subprocess.Popen[str]":
    """Start a process that trains and reports each step."""
    here = str(Path(wg.__file__).parent.parent)
    path = os.pathsep.join([here, *filter(None, [os.environ.get("PYTHONPATH")])])
    arguments = [str(folder), str(checkpoint), str(steps), str(save_every)]
    return subprocess.Popen(
        [sys.executable, "-c", _TRAINING, *arguments],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
    )


def _steps_of(process: "subprocess.Popen[str]") -> Iterator[Progress]:
    assert process.stdout is not None
    for line in process.stdout:
        said = json.loads(line)
        yield Progress(**{**said, "workers": [Worker(**worker) for worker in said["workers"]]})
