"""The process of one competitor: answers commands, one line of JSON each.

Started by `rounds.py` with the interpreter of the competitor's environment. It waits without
using the processor while the others are being measured.
"""

import cProfile
import gc
import importlib
import io
import json
import os
import pstats
import sys
import time
from collections import deque
from collections.abc import Iterable, Iterator
from itertools import chain, islice
from typing import Any

from harness.declare import Benchmark, Epoch
from harness.digest import digest
from harness.memory import peak_bytes, resident_bytes
from harness.processes import cpu_seconds


class Stream:
    """Epoch after epoch of a competitor as one stream that can be closed."""

    def __init__(self, epoch: Epoch, first: int) -> None:
        self._epoch = epoch
        self._open: Any = None
        self.next_epoch = first

    def epochs(self) -> Iterator[Iterable[Any]]:
        while True:
            self._open = iter(self._epoch(self.next_epoch))
            self.next_epoch += 1
            yield self._open

    def take(self, items: int) -> Iterator[Any]:
        # Only built-ins in the loop over items: the harness must not be what is measured.
        return islice(chain.from_iterable(self.epochs()), items)

    def close(self) -> None:
        # Nothing of this sample may go on working while another competitor is measured.
        close = getattr(self._open, "close", None)
        if close is not None:
            close()
        self._open = None


class Worker:
    """Runs samples of one competitor."""

    def __init__(self, benchmark: Benchmark, key: str) -> None:
        self._case, self._competitor = benchmark.find(key)
        library = importlib.import_module(self._competitor.library)
        self._idle_bytes = resident_bytes()
        self._epoch = self._competitor.setup(library)
        # Every sample opens epochs nobody has seen, as training does: what a library keeps of
        # one epoch must not make the next one look quicker.
        self._next_epoch = 0

    def digest(self) -> str:
        stream = Stream(self._epoch, 0)
        try:
            return digest(islice(next(iter(stream.epochs())), self._case.digest_items))
        finally:
            stream.close()

    def calibrate(self, seconds: float) -> int:
        """Return how many items take about `seconds`."""
        items = self._competitor.lump
        while (taken := self._shorter_of_two(items)) < seconds / 4 and items < 1 << 40:
            items *= 2 if taken > seconds / 20 else 8
        lumps = round(items / self._competitor.lump * seconds / max(taken, 1e-9))
        return max(1, lumps) * self._competitor.lump

    def _shorter_of_two(self, items: int) -> float:
        """Return how long `items` take, though the machine may stall or import at the first time.

        Else a single item might pass for a whole sample.
        """
        return min(self.sample(items)["wall_s"] for _ in range(2))

    def sample(self, items: int) -> dict[str, float]:
        """Process `items` items and return what that took."""
        gc.collect()  # of everyone, so that nobody pays for earlier rounds; then on as usual
        stream = Stream(self._epoch, self._next_epoch)
        measured: deque[float] = deque(maxlen=0 if self._case.measures == "time" else None)
        running = stream.take(self._case.lead + items)
        deque(islice(running, self._case.lead), maxlen=0)
        wall, cpu = time.perf_counter(), cpu_seconds()
        measured.extend(running)
        wall, cpu = time.perf_counter() - wall, cpu_seconds() - cpu
        stream.close()
        self._next_epoch = stream.next_epoch
        units = items * self._competitor.per_item
        value = wall / units if self._case.measures == "time" else sum(measured) / units
        return {"value": value, "wall_s": wall, "cpu_s": cpu, "cpu": cpu / units, "items": items}

    def memory(self) -> int:
        """Return by how many bytes setting up and all samples so far raised the peak."""
        return peak_bytes() - self._idle_bytes

    def profile(self, items: int) -> str:
        profiler = cProfile.Profile()
        stream = Stream(self._epoch, self._next_epoch)
        profiler.enable()
        deque(stream.take(items), maxlen=0)
        profiler.disable()
        stream.close()
        text = io.StringIO()
        pstats.Stats(profiler, stream=text).sort_stats("tottime").print_stats(25)
        return text.getvalue()


def describe(benchmark: Benchmark) -> dict[str, Any]:
    """Return what the benchmark declares, without its functions."""
    cases = [dict(vars(case)) for case in benchmark.cases]
    for case in cases:
        case["targets"] = [dict(vars(one)) for one in case["targets"]]
        case["competitors"] = [dict(vars(one)) for one in case["competitors"]]
        for competitor in case["competitors"]:
            del competitor["setup"]
    return {"question": benchmark.question, "cases": cases}


def main() -> None:
    module, key = sys.argv[1:]
    # What libraries print goes to the log; the real standard output is for answers alone.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    benchmark: Benchmark = importlib.import_module(module).benchmark
    worker: Any = None
    answer: Any
    for line in sys.stdin:
        command, *arguments = json.loads(line)
        if command == "describe":
            answer = describe(benchmark)
        elif command == "prepare":
            answer = benchmark.prepare() if benchmark.prepare else None
        elif command == "start":
            worker, answer = Worker(benchmark, key), None
        else:
            answer = getattr(worker, command)(*arguments)
        print(json.dumps(answer), file=answers)


if __name__ == "__main__":
    main()
