"""The process that runs drawn pipelines with one library: answers commands, one JSON line each."""

import gc
import importlib
import json
import os
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from itertools import chain, islice
from typing import Any

from harness.digest import digest
from harness.processes import allow_workers, cpu_seconds, is_busy

from pipelines.build import build, has_workers, plain_loop
from pipelines.draw import lump_of
from pipelines.programs import PROGRAMS

# Nobody runs if none is seen running so many times, so far apart.
_LOOKS, _LOOK_SECONDS = 4, 1e-3


class Stream:
    """A pipeline as one endless stream: opened again whenever it ends."""

    def __init__(self, start: Callable[[], Any]) -> None:
        self.start = start
        self._open: Any = None
        self._stream = chain.from_iterable(self._epochs())

    def _epochs(self) -> Iterator[Any]:
        while True:
            self._open = iter(self.start())
            yield self._open

    def take(self, count: int) -> Iterator[Any]:
        return islice(self._stream, count)

    def close(self) -> None:
        close = getattr(self._open, "close", None)
        self._open = None
        self._stream = iter(())
        if close is not None:
            close()


def wait_until_quiet(most: float) -> float:
    """Wait until threads and workers have read ahead as far as they may; return since when."""
    began = since = time.perf_counter()
    seen = 0
    while seen < _LOOKS and time.perf_counter() < began + most:
        if is_busy():
            seen = 0
        elif not seen:
            seen, since = 1, time.perf_counter()
        else:
            seen += 1
        time.sleep(_LOOK_SECONDS)
    return since if seen else time.perf_counter()


class Worker:
    """Runs one pipeline at a time with a library, and the plain loop beside it."""

    def __init__(self, library: str) -> None:
        self._library = importlib.import_module(library)
        allow_workers(self._library)
        self._streams: dict[str, Stream] = {}

    def programs(self) -> list[str]:
        """Return the names of the fixed cases."""
        return list(PROGRAMS)

    def open(self, steps: Any, kind: str) -> bool:
        """Open a pipeline, or the plain loop of it; say whether there is one."""
        if kind == "plain":
            start = PROGRAMS[steps].plain if isinstance(steps, str) else plain_loop(steps)
            if start is None:
                return False
        elif isinstance(steps, str):
            dataset, self._lump = PROGRAMS[steps].build(self._library), PROGRAMS[steps].lump
            start = lambda: dataset  # noqa: E731
        else:
            dataset, self._lump = build(self._library, steps), lump_of(steps)
            start = lambda: dataset  # noqa: E731
        self._streams[kind] = Stream(start)
        self._has_workers = not isinstance(steps, str) and has_workers(steps)
        return True

    def digest(self, items: int) -> str:
        return digest(self._streams["library"].take(items))

    def calibrate(self, kind: str, seconds: float) -> int:
        """Return how many items take about `seconds`, once what was read ahead is used up."""
        lump = items = self._epoch_of(kind, 2 * seconds) or self._lump
        # To start workers is not what takes long.
        deque(self._streams[kind].take(64 if self._has_workers else 1), maxlen=0)
        while True:
            wall = time.perf_counter()
            deque(self._streams[kind].take(items), maxlen=0)
            wall = time.perf_counter() - wall
            if wall > seconds / 2 or items > 1 << 30:
                wait_until_quiet(10.0)
                return lump * max(1, round(items * seconds / wall / lump))
            items *= 2 if wall > seconds / 20 else 5

    def _epoch_of(self, kind: str, seconds: float) -> int:
        """Return how many items an epoch has, if it is over in some time; 0 if not.

        Then samples are whole epochs: what is read ahead, or opened, belongs to them.
        """
        if self._has_workers:
            return 0  # They are endless, and slow to start.
        epoch, count = iter(self._streams[kind].start()), 0
        began = time.perf_counter()
        try:
            # A few large batches may all be read ahead: then nothing less than all says much.
            while time.perf_counter() < began + (seconds if count >= 64 else 4.0):
                found = sum(1 for _ in islice(epoch, 16))
                count += found
                if found < 16:
                    return count
            return 0
        finally:
            close = getattr(epoch, "close", None)
            if close is not None:
                close()

    def sample(self, kind: str, items: int) -> tuple[float, float]:
        """Return the processor time and the time by the clock that an item takes.

        Both between two moments at which all buffers are full: what is read ahead cancels out.
        """
        stream = self._streams[kind]
        gc.collect()
        cpu, wall = cpu_seconds(), time.perf_counter()
        deque(stream.take(items), maxlen=0)
        ended, looking = time.perf_counter(), time.thread_time()
        if kind != "plain":
            ended = wait_until_quiet(5.0)
        looking = time.thread_time() - looking  # The library's threads ran meanwhile, this one not.
        return (cpu_seconds() - cpu - looking) / items, (ended - wall) / items

    def profile(self, items: int) -> str:
        """Return where the time of some items goes."""
        import cProfile
        import io
        import pstats

        profiler = cProfile.Profile()
        profiler.runcall(deque, self._streams["library"].take(items), 0)
        text = io.StringIO()
        pstats.Stats(profiler, stream=text).sort_stats("tottime").print_stats(22)
        return text.getvalue()

    def close(self) -> None:
        for stream in self._streams.values():
            stream.close()
        self._streams.clear()
        gc.collect()


def main() -> None:
    # What libraries print goes to the log; the real standard output is for answers alone.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    worker = Worker(sys.argv[1])
    for line in sys.stdin:
        command, *arguments = json.loads(line)
        try:
            answer = [True, getattr(worker, command)(*arguments)]
        except Exception as error:
            answer = [False, f"{type(error).__name__}: {error}"]
        print(json.dumps(answer), file=answers)


if __name__ == "__main__":
    main()
