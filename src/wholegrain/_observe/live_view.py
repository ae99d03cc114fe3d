"""What a viewer shows of a running program: rates between two snapshots, as plain values."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from wholegrain._observe.shown import WORKERS

Values = dict[str, Any]

_STANDS_STILL_S = 2.0
"""A run that has given no element for so long says where it is."""


class Viewer:
    """Follows one program by its snapshots.

    The rates and shares are those since the snapshot before, so they show what happens now; a
    report shows the whole run.
    """

    def __init__(self) -> None:
        self._before: Values | None = None
        self._cpu_before: dict[int, tuple[float, float]] = {}
        self._moved_at: dict[int, tuple[int, float]] = {}  # Each run's count, and since when.

    def see(self, snapshot: Values) -> Values:
        """Return what to show of a snapshot, given the one before it."""
        before: Values = self._before or {"runs": [], "time": 0.0}
        self._before = snapshot
        seconds = snapshot["time"] - before["time"]
        runs = {run["id"]: run for run in before["runs"]}
        pids = [
            snapshot["pid"],
            *(one["pid"] for run in snapshot["runs"] for one in run["workers"]),
        ]
        usage = {pid: self._usage(pid, snapshot["time"]) for pid in pids}
        return {
            "pid": snapshot["pid"],
            "host": snapshot["host"],
            "program": snapshot["program"],
            "time": snapshot["time"],
            **usage[snapshot["pid"]],
            "runs": [
                _run(run, runs.get(run["id"]), seconds, usage, self._stands_still(run, snapshot))
                for run in snapshot["runs"]
            ],
        }

    def _stands_still(self, run: Values, snapshot: Values) -> str | None:
        """Return how long `next` has been waiting, and in which functions; None if it is not."""
        now = snapshot["time"]
        count, since = self._moved_at.get(run["id"], (-1, now))
        if count != run["elements"]:
            count, since = run["elements"], now
            self._moved_at[run["id"]] = count, since
        waits = run["seconds"] if not count else now - since
        if not run["is_waiting"] or waits < _STANDS_STILL_S:
            return None
        places = ", ".join(snapshot["at_work"])
        has_workers = any(stage["runs_in"] == WORKERS for stage in run["report"]["stages"])
        where = f" At work: {places}." if places else ""
        if has_workers:
            where += " It waits for its workers."
        return f"No element has come for {waits:,.0f} s.{where}"

    def _usage(self, pid: int, now: float) -> Values:
        """Return the CPUs and the memory that a process of this machine uses; None if unknown."""
        found = _cpu_and_memory(pid)
        if found is None:
            return {"cpus": None, "nbytes": None}
        cpu, nbytes = found
        at, cpu_before = self._cpu_before.get(pid, (now, cpu))
        self._cpu_before[pid] = now, cpu
        return {"cpus": (cpu - cpu_before) / (now - at) if now > at else None, "nbytes": nbytes}


def _run(
    run: Values,
    before: Values | None,
    seconds: float,
    usage: dict[int, Values],
    stands_still: str | None,
) -> Values:
    report = run["report"]
    wait, loop = report["wait_seconds"], report["loop_seconds"]
    stages_before: dict[str, Values] = {}
    if before is not None:
        stages_before = {stage["path"]: stage for stage in before["report"]["stages"]}
        wait -= before["report"]["wait_seconds"]
        loop -= before["report"]["loop_seconds"]
    whole = wait + loop
    wait_share = min(1.0, max(0.0, wait / whole)) if whole > 1e-9 else report["wait_share"]
    return {
        "id": run["id"],
        "pipeline": run["pipeline"],
        "elements": run["elements"],
        "seconds": run["seconds"],
        "rate": _rate("elements", run, before, seconds),
        "wait_share": 1.0 if stands_still else wait_share,
        "stands_still": stands_still,
        "limiting": report["limiting"],
        "verdict": report["verdict"],
        "advice": report["advice"],
        "stages": [
            _stage(stage, stages_before.get(stage["path"]), seconds, run["buffers"])
            for stage in report["stages"]
        ],
        "workers": [
            {"name": f"worker {one['worker']}", "pid": one["pid"], **usage[one["pid"]]}
            for one in run["workers"]
        ],
        "remote_workers": report["remote_workers"],
        **{name: run[name] for name in ("mixture", "errors", "error_count")},
        "lanes": _lanes(run["lanes"]),
    }


def _lanes(lanes: list[Values]) -> list[Values]:
    """Return which lanes each worker runs, for example "0, 2, 4"."""
    by_runner: dict[str, list[str]] = {}
    for one in lanes:
        by_runner.setdefault(one["run_by"], []).append(str(one["lane"]))
    return [{"run_by": name, "lanes": ", ".join(which)} for name, which in by_runner.items()]


def _stage(stage: Values, before: Values | None, seconds: float, buffers: Values) -> Values:
    ready, most = buffers.get(stage["path"], (None, None))
    return {
        **{name: stage[name] for name in ("id", "name", "inputs", "runs_in", "share")},
        **{name: stage[name] for name in ("wait_share", "idle_share", "elements", "nbytes")},
        "rate": _rate("elements", stage, before, seconds),
        "bytes_rate": _rate("nbytes", stage, before, seconds),
        "ready": ready,
        "buffer": most,
    }


def _rate(name: str, now: Values, before: Values | None, seconds: float) -> float | None:
    """Return by how much a count grows per second; None if unknown."""
    if before is None or now[name] is None or before[name] is None or seconds <= 0:
        return None
    return max(0.0, float(now[name] - before[name]) / seconds)


def _cpu_and_memory(pid: int) -> tuple[float, int] | None:
    """Return the CPU seconds and the resident bytes of a process of this machine."""
    try:
        # The name of the program, in brackets, may contain spaces.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except (OSError, ValueError, IndexError):
        return None
    ticks = int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK"), pages * os.sysconf("SC_PAGE_SIZE")
