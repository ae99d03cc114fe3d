"""Look for cliffs: random realistic pipelines, each timed here, on Grain and as a plain loop.

    python benchmarks/cliffs.py                         400 pipelines, and the shapes of programs
    python benchmarks/cliffs.py --seed 3 --count 100    others
    python benchmarks/cliffs.py --seed 3 --only 17      one of them, where the table named it
    python benchmarks/cliffs.py --only 17 --profile     where its time goes here
    python benchmarks/cliffs.py --plain                 beside plain loops alone, which is quicker

Prints the worst first, then how they are distributed. Ratios above 1 mean that wholegrain is the
quicker one. They are those of the sums of interleaved rounds; `cpu` is the processor time of the
process and of all that it started, which is the steadier one on a busy machine.
"""

import argparse
import contextlib
import json
import select
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

from harness.environments import HOME, Environments  # noqa: E402
from pipelines.build import has_workers  # noqa: E402
from pipelines.draw import draw, text_of  # noqa: E402

_LONG_S = 0.5
"""A sample that takes this long is taken once."""


class Stuck(Exception):
    """A process did not answer in time, or ended."""


class Library:
    """A process that runs pipelines with one library; another one after it got stuck."""

    def __init__(self, name: str, python: str, patience: float) -> None:
        self._name, self._python, self._patience = name, python, patience
        self._process: subprocess.Popen[bytes] | None = None

    def ask(self, command: str, *arguments: Any) -> Any:
        """Send a command and return the answer.

        Raises:
            Stuck: If there is none in time. The next question goes to another process.
        """
        process = self._process or self._start()
        assert process.stdin is not None
        assert process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(json.dumps([command, *arguments]).encode() + b"\n")
            process.stdin.flush()
        ready, _, _ = select.select([process.stdout], [], [], self._patience)
        line = process.stdout.readline() if ready else b""
        if not line:
            self.stop()
            raise Stuck(f"{self._name} did not answer `{command}` within {self._patience:g} s")
        good, answer = json.loads(line)
        if not good:
            raise Stuck(f"{self._name}, `{command}`: {answer}")
        return answer

    def _start(self) -> "subprocess.Popen[bytes]":
        logs = HOME / "logs"
        logs.mkdir(parents=True, exist_ok=True)
        with (logs / f"cliffs-{self._name}.log").open("ab") as log:
            self._process = subprocess.Popen(
                [self._python, "-m", "pipelines.worker", self._name],
                cwd=HERE,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                bufsize=0,
            )
        return self._process

    def stop(self) -> None:
        """End the process: it closes its pipelines, or is killed."""
        process, self._process = self._process, None
        if process is None:
            return
        assert process.stdin is not None
        assert process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()
        try:
            process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()


class Measured:
    """A pipeline and what was measured of it."""

    def __init__(self, label: str, text: str) -> None:
        self.label, self.text = label, text
        self.failure = ""
        self.ratios: dict[str, float] = {}
        self.seconds = 0.0  # Of the processor, for one of its items, here.
        self.noise = 1.0  # The longest of its samples here divided by the shortest.

    @property
    def worst(self) -> float:
        """How bad it is beside what is expected of all of them."""
        wanted = {"grain cpu": 3, "grain wall": 1.5, "plain cpu": 0.2}
        return min(
            self.ratios[name] / least for name, least in wanted.items() if name in self.ratios
        )

    def line(self) -> str:
        if self.failure:
            return f"{self.label:>6}  {self.failure}\n        {self.text}"
        found = [self.ratios.get(name) for name in ("grain cpu", "grain wall", "plain cpu")]
        figures = "".join("        -" if value is None else f"{value:9.2f}" for value in found)
        return f"{self.label:>6}{figures}{1e6 * self.seconds:10.2f} us   {self.text}"


def measure(
    measured: Measured,
    what: Any,
    here: Library,
    grain: Library | None,
    rounds: int,
    seconds: float,
) -> None:
    """Time one pipeline in rounds: on Grain, here, and as a plain loop."""
    here.ask("open", what, "library")
    has_plain = here.ask("open", what, "plain")
    runs = [("here", here, "library")]
    if grain is not None:
        grain.ask("open", what, "library")
        runs.append(("grain", grain, "library"))
    elif not has_plain:
        return
    if has_plain:
        runs.append(("plain", here, "plain"))
    if isinstance(what, str):
        seconds = max(seconds, 0.5)  # Long enough to fill the buffers of threads by the way.
    size = next((step[2] for step in what if step[0] == "batch"), 1) if type(what) is list else 32
    items = max(3, 128 // size)
    if grain is not None and here.ask("digest", items) != grain.ask("digest", items):
        raise Stuck("the first elements are not those of Grain")
    counts = [
        library.ask("calibrate", kind, seconds / 2 if library is grain else seconds)
        for _, library, kind in runs
    ]
    samples: list[list[list[float]]] = [[] for _ in runs]
    for turn in range(rounds):
        for place in ((place + turn) % len(runs) for place in range(len(runs))):
            taken, (_, library, kind) = samples[place], runs[place]
            if not taken or taken[0][1] * counts[place] < _LONG_S:
                taken.append(library.ask("sample", kind, counts[place]))
    # Not the best ones: of elements that are read in large chunks, some samples have fewer reads.
    means = [[statistics.mean(column) for column in zip(*taken, strict=True)] for taken in samples]
    for (name, _, _), (cpu, wall) in zip(runs[1:], means[1:], strict=True):
        measured.ratios[f"{name} cpu"] = cpu / max(means[0][0], 1e-12)
        measured.ratios[f"{name} wall"] = wall / max(means[0][1], 1e-12)
    measured.seconds = means[0][0]
    own = [one[0] for one in samples[0]]
    measured.noise = max(own) / max(min(own), 1e-12)


def summary(name: str, values: list[float]) -> str:
    if not values:
        return ""
    values = sorted(values)
    low = values[int(0.05 * len(values))]
    return (
        f"{name:11} geometric mean {statistics.geometric_mean(values):7.2f}, median"
        f" {statistics.median(values):7.2f}, 5th percentile {low:6.2f}, minimum {values[0]:6.2f}"
        f"   ({len(values)} pipelines)"
    )


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", type=int, default=400, help="how many pipelines")
    parser.add_argument("--seed", type=int, default=0, help="which ones")
    parser.add_argument("--only", help="numbers of some, with commas; or `programs`")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=0.1, help="how long a sample takes")
    parser.add_argument("--patience", type=float, default=60, help="seconds for one answer")
    parser.add_argument("--show", type=int, default=40, help="how many of the worst to print")
    parser.add_argument("--plain", action="store_true", help="leave Grain out")
    parser.add_argument("--profile", action="store_true", help="profile here instead")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every ratio to FILE")
    parser.add_argument("--use", action="append", default=[], metavar="LIBRARY=PYTHON")
    return parser.parse_args()


def cases(options: argparse.Namespace, programs: list[str]) -> list[tuple[str, str, Any]]:
    """Return label, text and what to build for each pipeline that is asked for."""
    found: list[tuple[str, str, Any]] = []
    if options.only != "programs":
        numbers = map(int, options.only.split(",")) if options.only else range(options.count)
        drawn = [(number, draw(options.seed, number)) for number in numbers]
        # Those with workers last: of Grain's it takes seconds to start them.
        drawn.sort(key=lambda one: has_workers(one[1]))
        found += [(str(number), text_of(steps), steps) for number, steps in drawn]
    if options.only in (None, "programs"):
        found += [(f"p{place}", name, name) for place, name in enumerate(programs)]
    return found


def main() -> int:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    options = arguments()
    environments = Environments(dict(given.split("=", 1) for given in options.use))
    here = Library("wholegrain", environments.python("wholegrain"), options.patience)
    grain = None
    if not (options.plain or options.profile):
        grain = Library("grain", environments.python("grain"), options.patience)
    try:
        programs = here.ask("programs")
        if options.profile:
            for label, text, what in cases(options, programs):
                here.ask("open", what, "library")
                items = here.ask("calibrate", "library", 1.0)
                print(f"{label}: {text}\n{here.ask('profile', items)}")
                here.ask("close")
            return 0
        return compare(options, cases(options, programs), here, grain)
    finally:
        here.stop()
        if grain is not None:
            grain.stop()


def compare(
    options: argparse.Namespace,
    chosen: list[tuple[str, str, Any]],
    here: Library,
    grain: Library | None,
) -> int:
    all_measured = []
    began = time.perf_counter()
    for place, (label, text, what) in enumerate(chosen):
        measured = Measured(label, text)
        all_measured.append(measured)
        try:
            measure(measured, what, here, grain, options.rounds, options.seconds)
        except Stuck as stuck:
            measured.failure = str(stuck)
            print(measured.line(), file=sys.stderr, flush=True)
        for library in (here, grain):
            if library is not None:
                with contextlib.suppress(Stuck):
                    library.ask("close")
        if (place + 1) % 20 == 0:
            took = time.perf_counter() - began
            print(f"{place + 1} of {len(chosen)} in {took:.0f} s", file=sys.stderr, flush=True)
    good = [one for one in all_measured if not one.failure and one.ratios]
    if options.json:
        rows = [vars(one) for one in all_measured]
        options.json.write_text(json.dumps(rows, indent=1))
    print(f"The worst first; `--seed {options.seed} --only NUMBER` runs one again.")
    print(f"{'number':>6}{'grain cpu':>9}{'wall':>9}{'plain':>9}{'here, cpu':>13}   pipeline")
    for one in sorted(good, key=lambda one: one.worst)[: options.show]:
        print(one.line())
    for name in ("grain cpu", "grain wall", "plain cpu", "plain wall"):
        print(summary(name, [one.ratios[name] for one in good if name in one.ratios]))
    noise = statistics.median(one.noise for one in good) if good else 1.0
    print(f"The longest sample of a pipeline here took {noise:.2f} times as long as the shortest.")
    bad = [one for one in all_measured if one.failure]
    for one in bad:
        print(f"FAILED {one.line()}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
