"""Compare wholegrain with Grain, torch's DataLoader and plain Python, in one command.

    python benchmarks/run.py                       everything
    python benchmarks/run.py mix packing --quick   two questions, roughly
    python benchmarks/run.py mix --profile         where wholegrain's time goes

Needs nothing but Python: the environments are made under `.benchmarks/` at the first run.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
from pathlib import Path

from harness.environments import Environments
from harness.report import as_json, judgements, show
from harness.rounds import CompetitorFailed, Process, Result, Settings, described, run

HERE = Path(__file__).parent
ALONE = ("cliffs", "flat", "lanes", "ray", "report_cost")  # Measure in a way of their own.
ALL = sorted(file.stem for file in HERE.glob("*.py") if file.stem != "run")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="name", help=f"any of: {', '.join(ALL)}")
    parser.add_argument("--rounds", type=int, help="rounds that count (9; 3 with --quick)")
    parser.add_argument("--quick", action="store_true", help="short samples, few rounds")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every sample to FILE")
    parser.add_argument("--only", action="append", default=[], metavar="LIBRARY")
    parser.add_argument("--profile", action="store_true", help="profile wholegrain instead")
    parser.add_argument(
        "--use",
        action="append",
        default=[],
        metavar="LIBRARY=PYTHON",
        help="take this interpreter for wholegrain, grain or torch instead of making one",
    )
    options = parser.parse_args()
    unknown = set(options.names) - set(ALL)
    if unknown:
        parser.error(f"no benchmark is called {', '.join(sorted(unknown))}. There are {ALL}.")
    return options


def header(environments: Environments) -> str:
    """Say what the figures were measured with: they are only comparable within one run."""
    versions = []
    for library in ("wholegrain", "grain", "torch", "numpy"):
        python = environments.python("wholegrain" if library == "numpy" else library)
        code = f"from importlib.metadata import version; print(version('{library}'))"
        found = subprocess.run([python, "-c", code], capture_output=True, text=True, check=False)
        versions.append(f"{library} {found.stdout.strip() or 'from source'}")
    load = f", load {os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else ""
    return (
        f"{', '.join(versions)}; Python {platform.python_version()},"
        f" {os.cpu_count()} processors{load}, {platform.system()} {platform.machine()}"
    )


def cliff_arguments(environments: Environments, quick: bool) -> list[str]:
    """Return the options with which `cliffs.py` uses the same environments."""
    use = [f"--use={name}={environments.python(name)}" for name in ("wholegrain", "grain")]
    return [*use, "--count=40"] if quick else use


def profile(name: str, environments: Environments) -> None:
    with described(name, environments) as (result, describing):
        describing.ask("prepare")
    for case in result.cases:
        for one in case.competitors:
            if one.library != "wholegrain" or one.name != "wholegrain":
                continue
            process = Process(environments.python("wholegrain"), name, one.key)
            try:
                process.ask("start")
                items = process.ask("calibrate", 0.3)
                print(f"\n{name}, {one.key}\n{process.ask('profile', items)}")
            except CompetitorFailed as failure:
                print(failure)
            finally:
                process.stop()


def summary(results: list[Result]) -> str:
    lines = ["", "Targets", "======="]
    for result in results:
        lines += [
            f"{result.name}, {case.name}:{judgement['text']}"
            for case in result.cases
            for judgement in judgements(result, case)
        ]
    return "\n".join(lines)


def main() -> int:
    options = arguments()
    environments = Environments(dict(given.split("=", 1) for given in options.use))
    names = options.names or ALL
    if options.profile:
        for name in names:
            if name not in ALONE:
                profile(name, environments)
        return 0
    rounds = options.rounds or (3 if options.quick else 9)
    settings = Settings(rounds, 0.3 if options.quick else 1.0, tuple(options.only))
    results: list[Result] = []
    print(header(environments), flush=True)
    print(f"Medians of {rounds} interleaved rounds; ratios are medians of the rounds' ratios.")
    for name in names:
        if name in ALONE:
            python = environments.python("wholegrain")
            more = cliff_arguments(environments, options.quick) if name == "cliffs" else []
            subprocess.run([python, HERE / f"{name}.py", *more], check=False)
            continue
        results.append(run(name, environments, settings))
        print(show(results[-1]), flush=True)
        if options.json:
            options.json.write_text(json.dumps([as_json(result) for result in results], indent=1))
    print(summary(results))
    return 1 if any(result.failures for result in results) else 0


if __name__ == "__main__":
    sys.exit(main())
