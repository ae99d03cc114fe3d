"""What the demo shows during a training run."""

import time
from collections.abc import Iterator
from typing import Any, Self

from wholegrain._cli.console import Console, rich_module
from wholegrain._cli.demo.data import BATCH_SIZE, MOST_READY, SIZE
from wholegrain._cli.demo.training import Progress

_FRAMES_PER_S = 15


def show_images(console: Console, images: Any) -> None:
    """Print images side by side, with two rows of pixels per line of text."""
    if console.rich is None:
        return
    images = list(images)
    text, style = rich_module("text"), rich_module("style")
    for upper in range(0, SIZE, 4):
        line = text.Text("  ")
        for image in images:
            for column in range(0, SIZE, 2):
                above, below = (
                    image[row : row + 2, column : column + 2].mean((0, 1)).astype(int).tolist()
                    for row in (upper, upper + 2)
                )
                colour, background = (f"rgb({r},{g},{b})" for r, g, b in (above, below))
                line.append("▀", style.Style(color=colour, bgcolor=background))
            line.append(" ")
        console.rich.print(line, soft_wrap=True)


def watch(console: Console, steps: Iterator[Progress], num_steps: int, last: int) -> Progress:
    """Show a run up to step `last`, and return its progress."""
    progress = None
    with _Screen(console, num_steps) as screen:
        for progress in steps:
            screen.show(progress)
            if progress.step >= last:
                break
    if progress is None or progress.step < last:
        raise RuntimeError("The training process ended early.")
    return progress


class _Screen:
    """A few lines of a terminal that are redrawn; no output elsewhere."""

    def __init__(self, console: Console, num_steps: int) -> None:
        self._console = console
        self._num_steps = num_steps
        self._last = 0.0
        self._live: Any = None

    def __enter__(self) -> Self:
        if self._console.rich is not None:
            self._live = rich_module("live").Live(
                console=self._console.rich, transient=True, auto_refresh=False
            )
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()
        elif self._console.is_terminal:
            print("\r\033[K", end="", file=self._console.file, flush=True)

    def show(self, progress: Progress) -> None:
        """Draw the progress of a run, unless it was drawn a moment ago."""
        now = time.monotonic()
        if now - self._last < 1 / _FRAMES_PER_S:
            return
        self._last = now
        if self._live is not None:
            self._live.update(self._drawn(progress), refresh=True)
        elif self._console.is_terminal:
            line = f"\r\033[K  {_bar(progress.step, self._num_steps, 30)} {_step(progress)}"
            print(line, end="", file=self._console.file, flush=True)

    def _drawn(self, progress: Progress) -> Any:
        text = rich_module("text").Text()
        text.append(f"  {_bar(progress.step, self._num_steps, 40)} ", "green")
        text.append(f"{_step(progress)}\n")
        for number, worker in enumerate(progress.workers):
            colour = {"working": "green", "ahead": "cyan"}.get(worker.state, "yellow")
            text.append(f"  worker {number}  ", "dim")
            text.append(_bar(worker.ready, MOST_READY, MOST_READY), colour)
            text.append(f" {worker.ready} ready ", "dim")
            text.append(f" {worker.state:<9}", colour)
            text.append(f" process {worker.pid}\n", "dim")
        return text


def _bar(done: int, total: int, width: int) -> str:
    full = width * done // total
    return "█" * full + "░" * (width - full)


def _step(progress: Progress) -> str:
    return f"step {progress.step}, {progress.rate:,.0f} images/s"


def summary(progress: Progress, first: int) -> str:
    """Return a line about a finished run."""
    images = (progress.step - first + 1) * BATCH_SIZE
    return f"steps {first} to {progress.step}: {images:,} images, {progress.rate:,.0f} a second"
