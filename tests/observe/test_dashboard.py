"""The dashboard: what it serves and to whom, and how it looks in a real browser."""

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import wholegrain as wg
from wholegrain._observe import live
from wholegrain._observe.dashboard import Dashboard
from wholegrain._observe.dashboard.feed import Feed, Recording, of_address, of_process

pytest.importorskip("uvicorn")
pytest.importorskip("starlette")

_NAME = "<script>document.title='hacked'</script>"

_PROGRAM = f"""
    import time
    import wholegrain as wg

    def decode(x):
        time.sleep(0.004)
        return x

    ds = wg.MapDataset.range(10**6).named({_NAME!r}).to_iter_dataset().map(decode).batch(4)
    it = iter(ds)
    end = time.time() + 120
    while time.time() < end:
        next(it)
        time.sleep(0.002)
"""


@pytest.fixture(scope="module")
def pid() -> Iterator[int]:
    environment = {**os.environ, "WHOLEGRAIN_TOP": "1"}
    program = subprocess.Popen([sys.executable, "-c", textwrap.dedent(_PROGRAM)], env=environment)
    try:
        end = time.monotonic() + 60
        while program.pid not in live.visible_pids() and time.monotonic() < end:
            assert program.poll() is None
            time.sleep(0.1)
        yield program.pid
    finally:
        program.kill()
        program.wait()


def _get(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=20) as answer:
        return answer.read().decode()


@contextlib.contextmanager
def _browser() -> Iterator[Any]:
    selenium = pytest.importorskip("selenium.webdriver")
    chromium, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if chromium is None or driver is None:
        pytest.skip("There is no Chromium with its driver.")
    options = selenium.ChromeOptions()
    options.binary_location = chromium
    for flag in (
        *("headless", "no-sandbox", "disable-gpu", "no-first-run", "disable-sync"),
        *("disable-background-networking", "disable-component-update", "window-size=1200,1400"),
    ):
        options.add_argument(f"--{flag}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    service = selenium.ChromeService(executable_path=driver)
    page = selenium.Chrome(options=options, service=service)
    try:
        yield page
    finally:
        page.quit()


def _until(find: Any, wanted: Any, seconds: float = 40) -> Any:
    """Return the first result of `find()` that is as wanted; fail after some seconds."""
    end = time.monotonic() + seconds
    while True:
        found = find()
        if wanted(found):
            return found
        assert time.monotonic() < end, found
        time.sleep(0.2)


def test_figures_move_and_the_limiting_stage_stands_out(pid: int) -> None:
    with Dashboard(Feed([of_process(pid)], 0.5)) as board, _browser() as page:
        page.get(board.url)

        def text() -> str:
            body: str = page.find_element("tag name", "body").text
            return body

        def tiles() -> tuple[str, ...]:
            script = "return [...document.querySelectorAll('.tile b')].map(one => one.innerText)"
            return tuple(page.execute_script(script))

        _until(text, lambda found: "map(decode) is the bottleneck" in found)
        first = _until(tiles, lambda found: len(found) >= 4 and found[0] != "?")
        _until(tiles, lambda found: found[2:] != first[2:])
        hot = page.find_elements("css selector", "svg .limits text")
        assert hot[0].text == "map(decode)"
        assert page.find_elements("css selector", "polyline.rate")
        assert _NAME in text()  # As text, not as a script.
        assert page.title == "wholegrain dashboard"
        for scheme in ("dark", "light"):
            media = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
            page.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
            page.set_window_size(500, 900)
            width = page.execute_script("return document.documentElement.scrollWidth")
            assert width <= 500, scheme
        problems = [line for line in page.get_log("browser") if line["level"] != "INFO"]
        assert not problems


def test_nothing_is_shown_without_the_token(pid: int) -> None:
    with Dashboard(Feed([of_process(pid)])) as board:
        base, _, token = board.url.partition("/?token=")
        assert "<title>wholegrain dashboard" in _get(board.url)
        assert json.loads(_get(f"{base}/snapshot?token={token}"))["pid"] == pid
        for path in ("", "events", "snapshot", "frames"):
            for wrong in ("", "?token=", f"?token={token[:-1]}", "?token=%C3%A9"):
                with pytest.raises(urllib.error.HTTPError) as error:
                    _get(f"{base}/{path}{wrong}")
                assert error.value.code == 403
                assert str(pid) not in error.value.read().decode()
                error.value.close()


def test_only_this_machine_can_reach_it_unless_asked(pid: int) -> None:
    with Dashboard(Feed([of_process(pid)])) as board:
        port = int(board.url.split(":")[2].partition("/")[0])
        with socket.socket() as other:
            other.settimeout(5)
            assert other.connect_ex(("127.0.0.2", port)) != 0
    with Dashboard(Feed([of_process(pid)]), host="0.0.0.0") as board:
        port = int(board.url.split(":")[2].partition("/")[0])
        with socket.socket() as other:
            other.settimeout(5)
            assert other.connect_ex(("127.0.0.2", port)) == 0


def test_a_recording_is_shown_later(pid: int, tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    with path.open("w") as file, Dashboard(Feed([of_process(pid)], 0.2, file)):
        # Nobody looks, but it records.
        _until(path.read_text, lambda text: text.count("\n") >= 5)
    recording = Recording(path)
    assert len(recording.history()) >= 5
    assert recording.latest()["programs"][0]["view"]["pid"] == pid
    with Dashboard(recording) as board, _browser() as page:
        page.get(board.url)
        script = "return document.getElementById('status').innerText"
        _until(lambda: page.execute_script(script), lambda text: text.endswith("(recorded)"))
        assert page.find_element("id", "at").is_displayed()
    path.write_text('{"time": 1}\n')
    with pytest.raises(ValueError, match="not a recording of a dashboard"):
        Recording(path)


def test_several_hosts_are_compared(pid: int) -> None:
    with Dashboard(Feed([of_process(pid)], 0.2)) as there:
        feed = Feed([of_process(pid), of_address(there.url)], 0.2)
        frame = _until(feed.latest, lambda frame: all(one["view"] for one in frame["programs"]))
        assert [one["view"]["pid"] for one in frame["programs"]] == [pid, pid]
    time.sleep(0.3)
    problems = [one["problem"] for one in feed.latest()["programs"]]
    assert problems[0] == ""
    assert "does not answer any more" in problems[1]


def test_a_program_shows_itself() -> None:
    ds = wg.MapDataset.range(10**6).to_iter_dataset().map(lambda x: x + 1)
    it, stop = iter(ds), threading.Event()

    def loop() -> None:
        while not stop.wait(0.001):
            next(it)

    thread = threading.Thread(target=loop)
    with wg.dashboard(interval=0.2) as board:
        thread.start()
        try:
            url = board.url.replace("/?", "/snapshot?")
            # Runs of other tests may be there too.
            names = lambda: [run["pipeline"] for run in json.loads(_get(url))["runs"]]  # noqa: E731
            _until(names, lambda found: any("map(lambda)" in name for name in found))
        finally:
            stop.set()
            thread.join()
    assert not [one for one in threading.enumerate() if one.name == "wholegrain-dashboard"]


def test_mixtures_errors_and_lanes_are_tables_of_text() -> None:
    def decode(x: int) -> int:
        if x % 3 == 0:
            raise ValueError(f"bad {_NAME}")
        return x

    part = wg.MapDataset.range(1000).map(decode).on_error("skip").repeat().to_iter_dataset()
    ds = wg.IterDataset.mix({_NAME: part, "code": part}, {_NAME: 3, "code": 1})
    lanes = ds.mp_prefetch(wg.MultiprocessingOptions(num_workers=0, lanes=4))
    others = {run["id"] for run in live.snapshot()["runs"]}  # Of other tests.
    with iter(lanes) as it:
        for _ in range(100):
            next(it)
        with wg.dashboard(interval=0.2) as board, _browser() as page:
            page.get(board.url)
            script = """return [...document.querySelectorAll('section.run')].map(run =>
                [...run.querySelectorAll('table')].map(table =>
                    [...table.rows].map(row => [...row.cells].map(cell => cell.innerText))))"""
            runs = _until(lambda: page.execute_script(script), lambda found: len(found) > 0)
            tables = [table for tables in runs for table in tables]
            rows = [row for table in tables for row in table]
            assert ["0, 1, 2, 3", "this process"] in rows
            ((target, share),) = [row[1:3] for row in rows if row[0] == _NAME]
            assert (target, 65 < int(share[:-2]) < 85) == ("75 %", True)
            assert any(row[-1] == f"ValueError: bad {_NAME}" for row in rows)
            assert page.title == "wholegrain dashboard"
            assert not [line for line in page.get_log("browser") if line["level"] != "INFO"]
    assert {run["id"] for run in live.snapshot()["runs"]} <= others


def test_the_command_serves_until_it_is_interrupted(pid: int, tmp_path: Path) -> None:
    record = tmp_path / "run.jsonl"
    command = [sys.executable, "-m", "wholegrain", "dashboard", str(pid), "--record", str(record)]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as program:
        assert program.stdout is not None
        try:
            url = program.stdout.readline().split()[-1]
            assert json.loads(_get(url.replace("/?", "/snapshot?")))["pid"] == pid
            _until(record.read_text, bool)
        finally:
            program.send_signal(signal.SIGINT)
        assert program.wait(20) == 130
    again = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (again.returncode, "exists" in again.stderr) == (2, True)
