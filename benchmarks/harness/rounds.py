"""Runs the competitors of a benchmark in interleaved rounds, each in a process of its own."""

import contextlib
import json
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.declare import Case, Competitor, Target
from harness.environments import HOME, Environments

BENCHMARKS = Path(__file__).parents[1]


class CompetitorFailed(Exception):
    """A competitor's process ended, or its items are not those of the others."""


class Process:
    """A running `worker.py` and the commands it knows."""

    def __init__(self, python: str, module: str, key: str) -> None:
        self.key = key
        logs = HOME / "logs"
        logs.mkdir(parents=True, exist_ok=True)
        self._log = logs / f"{module}-{key.replace('/', '-').replace(' ', '_')}.log"
        with self._log.open("w") as log:
            self._process = subprocess.Popen(
                [python, "-m", "harness.worker", module, key],
                cwd=BENCHMARKS,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                bufsize=1,
            )

    def ask(self, command: str, *arguments: Any) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps([command, *arguments]) + "\n")
            self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            said = "\n".join(self._log.read_text().splitlines()[-15:])
            raise CompetitorFailed(f"{self.key} ended during `{command}`:\n{said}")
        return json.loads(answer)

    def stop(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()


@dataclass
class Result:
    """The samples of one benchmark: `samples[key][round]`, keys being `case/name`."""

    name: str
    question: str
    cases: list[Case]
    samples: dict[str, list[dict[str, float]]] = field(default_factory=dict)
    memory: dict[str, int] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)

    def values(self, key: str, what: str = "value") -> list[float]:
        """Return the samples of a competitor, or of a constant."""
        if key in self.samples:
            return [sample[what] for sample in self.samples[key]]
        case, name = key.split("/", 1)
        constants = next(one.constants for one in self.cases if one.name == case)
        rounds = max((len(samples) for samples in self.samples.values()), default=1)
        return [constants[name]] * rounds if name in constants else []


@dataclass(frozen=True)
class Settings:
    """How thorough to be: `scale` shortens the samples."""

    rounds: int
    scale: float = 1.0
    only: tuple[str, ...] = ()


@contextlib.contextmanager
def described(name: str, environments: Environments) -> Iterator[tuple[Result, Process]]:
    """Ask a benchmark file what it says of itself, and have it write its files."""
    process = Process(environments.python("wholegrain"), name, "describe")
    try:
        said = process.ask("describe")
        cases = []
        for case in said["cases"]:
            competitors = [Competitor(setup=_elsewhere, **one) for one in case.pop("competitors")]
            targets = [Target(**one) for one in case.pop("targets")]
            cases.append(Case(**case, competitors=competitors, targets=targets))
        yield Result(name, said["question"], cases), process
    finally:
        process.stop()


def _elsewhere(library: Any) -> Any:
    raise NotImplementedError("competitors are set up in their own process")


def run(name: str, environments: Environments, settings: Settings) -> Result:
    """Run one benchmark and return its samples."""
    with described(name, environments) as (result, describing):
        entries = [
            (case, one)
            for case in result.cases
            for one in case.competitors
            if not settings.only or one.library in settings.only
        ]
        # All environments first: nothing is being installed while something is being measured.
        pythons = {one.environment: environments.python(one.environment) for _, one in entries}
        describing.ask("prepare")
    processes: dict[str, Process] = {}
    try:
        sizes: dict[str, int] = {}
        digests: dict[str, dict[str, str]] = {}
        for case, one in entries:
            process = Process(pythons[one.environment], name, one.key)
            try:
                process.ask("start")
                if one.ordered and case.digest_items:
                    digests.setdefault(case.name, {})[one.name] = process.ask("digest")
                sizes[one.key] = process.ask("calibrate", case.seconds * settings.scale)
            except CompetitorFailed as failure:
                result.failures.append(str(failure))
                process.stop()
                continue
            processes[one.key] = process
        for case_name, found in digests.items():
            if len(set(found.values())) > 1:
                result.failures.append(f"{name}, {case_name}: items differ: {found}")
        _take_rounds(result, processes, sizes, settings.rounds)
    finally:
        for process in processes.values():
            process.stop()
    return result


def _take_rounds(
    result: Result, processes: dict[str, Process], sizes: dict[str, int], rounds: int
) -> None:
    keys = list(processes)
    for number in range(-1, rounds):  # round -1 warms up
        turn = number % len(keys) if keys else 0
        for key in keys[turn:] + keys[:turn]:
            sample = processes[key].ask("sample", sizes[key])
            if number >= 0:
                result.samples.setdefault(key, []).append(sample)
    for key in keys:
        result.memory[key] = processes[key].ask("memory")
