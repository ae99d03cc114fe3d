"""Collects what a dashboard shows: the views of some programs, and the history of the last hour."""

from __future__ import annotations

import json
import threading
import time
import urllib.parse
import urllib.request
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TextIO

from wholegrain._core.interruption import is_interruption
from wholegrain._observe import live
from wholegrain._observe.live_view import Values, Viewer

HISTORY_S = 3600.0
_TIMEOUT_S = 5.0

Ask = Callable[[], Values]
"""Returns the snapshot of a program."""


def of_process(pid: int) -> Ask:
    """Return a function that asks a process of this machine."""
    return lambda: live.ask(pid, _TIMEOUT_S)


def of_address(address: str) -> Ask:
    """Return a function that asks another dashboard, by its address with the token."""
    parts = urllib.parse.urlsplit(address)
    url = urllib.parse.urlunsplit(parts._replace(path="/snapshot"))

    def ask() -> Values:
        with urllib.request.urlopen(url, timeout=_TIMEOUT_S) as answer:
            found: Values = json.load(answer)
            return found

    return ask


class Program:
    """One program: what it is asked by, and what was seen last."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self._viewer = Viewer()
        self.view: Values | None = None
        self.snapshot: Values | None = None
        self.problem = ""

    def look(self) -> None:
        """Ask the program; keep what was seen before if it does not answer."""
        try:
            self.snapshot = self._ask()
            self.view = self._viewer.see(self.snapshot)
            self.problem = ""
        except Exception as error:
            if is_interruption(error):
                raise
            self.problem = f"It does not answer any more: {error}"


class Feed:
    """Looks at some programs once per interval, while somebody watches or it records.

    Args:
        asks: How to ask each program.
        interval: Seconds between two looks.
        record: A file to write what is seen to, one line for each look.
    """

    def __init__(
        self, asks: Sequence[Ask], interval: float = 1.0, record: TextIO | None = None
    ) -> None:
        self._programs = [Program(ask) for ask in asks]
        self._interval = interval
        self._record = record
        self._lock = threading.Lock()
        self._looked_at = 0.0
        self._frames: deque[Values] = deque()

    @property
    def interval(self) -> float:
        """Seconds between two looks."""
        return self._interval

    @property
    def records(self) -> bool:
        """Whether it has to look although nobody watches."""
        return self._record is not None

    def latest(self) -> Values:
        """Return the latest frame; look again if it is older than the interval."""
        with self._lock:
            now = time.monotonic()
            if now - self._looked_at >= 0.9 * self._interval:
                self._looked_at = now
                self._look()
            return self._frames[-1]

    def _look(self) -> None:
        threads = [threading.Thread(target=program.look) for program in self._programs]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        frame: Values = {
            "time": time.time(),
            "programs": [
                {"view": program.view, "problem": program.problem} for program in self._programs
            ],
        }
        self._frames.append(frame)
        while frame["time"] - self._frames[0]["time"] > HISTORY_S:
            self._frames.popleft()
        if self._record is not None:
            self._record.write(json.dumps(frame, default=str) + "\n")
            self._record.flush()

    def history(self) -> list[Values]:
        """Return the rate and the waiting of each run in the last hour, oldest first."""
        with self._lock:
            return [point(frame) for frame in self._frames]

    def snapshots(self) -> Values | None:
        """Return the latest snapshot of the first program, for another dashboard."""
        self.latest()
        return self._programs[0].snapshot


class Recording:
    """A recorded file, shown like a running program."""

    records = False
    interval = 1.0

    def __init__(self, path: str | Path) -> None:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
        try:
            self.frames: list[Values] = [json.loads(line) for line in lines if line.strip()]
            for frame in self.frames:
                point(frame)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise ValueError(f"{path} is not a recording of a dashboard: {error!r}.") from None
        if not self.frames:
            raise ValueError(f"{path} is empty: nothing was recorded.")

    def latest(self) -> Values:
        """Return the last frame."""
        return self.frames[-1]

    def history(self) -> list[Values]:
        """Return the rate and the waiting of each run, oldest first."""
        return [point(frame) for frame in self.frames]

    def snapshots(self) -> None:
        """Return nothing: a recording has no running program."""
        return


def point(frame: Values) -> Values:
    """Return what the history keeps of a frame."""
    views: list[Any] = [program["view"] for program in frame["programs"]]
    return {
        "time": frame["time"],
        "runs": [
            {"pid": view["pid"], "id": run["id"], "rate": run["rate"], "wait": run["wait_share"]}
            for view in views
            if view is not None
            for run in view["runs"]
        ],
    }
