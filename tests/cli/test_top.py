"""`wholegrain top`, started beside a program that runs a pipeline."""

import contextlib
import json
import os
import pty
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from wholegrain._observe import live

_PROGRAM = """
import sys, time
import wholegrain as wg

def decode(x):
    time.sleep(0.004)
    return x

def slow_model(batch):
    time.sleep(0.05)

def steps(it, seconds):
    began = time.time()
    while time.time() - began < 60:
        next(it)
        time.sleep(seconds)
"""

_PIPELINES = {
    "map(decode)": """
        ds = wg.MapDataset.range(10**6).to_iter_dataset().map(decode).batch(4)
        steps(iter(ds), 0.002)
    """,
    "source(Slow)": """
        class Slow:
            def __len__(self): return 10**6
            def __getitem__(self, index): time.sleep(0.03); return index
        ds = wg.MapDataset.source(Slow()).to_iter_dataset(wg.ReadOptions(2, 8)).batch(2)
        steps(iter(ds), 0.001)
    """,
    "map(burn)": """
        def burn(x):
            end = time.thread_time() + 0.01
            while time.thread_time() < end: pass
            return x
        ds = wg.MapDataset.range(10**6).map(burn).to_iter_dataset().batch(2)
        steps(iter(ds), 0.001)
    """,
    "workers": """
        ds = wg.MapDataset.range(10**6).to_iter_dataset().map(decode).batch(4)
        steps(iter(ds.mp_prefetch(wg.MultiprocessingOptions(num_workers=1))), 0.001)
    """,
    "": """
        ds = wg.MapDataset.range(10**6).to_iter_dataset().batch(4)
        steps(iter(ds), 0.02)
    """,
}


@contextlib.contextmanager
def _running(tmp_path: Path, body: str, **environment: str) -> Iterator[int]:
    file = tmp_path / "train.py"
    file.write_text(_PROGRAM + textwrap.dedent(body))
    program = subprocess.Popen(
        [sys.executable, str(file)],
        env={**os.environ, "WHOLEGRAIN_TOP": "1", **environment},
        stderr=subprocess.PIPE,
    )
    try:
        end = time.monotonic() + 60
        while program.pid not in live.visible_pids() and time.monotonic() < end:
            assert program.poll() is None, program.stderr.read()  # type: ignore[union-attr]
            time.sleep(0.1)
            if environment:
                break
        yield program.pid
    finally:
        program.kill()
        program.wait()
        program.stderr.close()  # type: ignore[union-attr]


def _top(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "wholegrain", "top", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize("limiting", _PIPELINES)
def test_the_limiting_stage_is_named(limiting: str, tmp_path: Path) -> None:
    with _running(tmp_path, _PIPELINES[limiting]) as pid:
        end = time.monotonic() + 40
        while True:
            done = _top(pid, "--json")
            assert done.returncode == 0, done.stderr
            view = json.loads(done.stdout)
            (run,) = view["runs"]
            named = run["limiting"] is not None
            if (named == bool(limiting) and run["rate"]) or time.monotonic() > end:
                break
    assert (view["pid"], run["rate"] > 0) == (pid, True)
    stages = {stage["id"]: stage for stage in run["stages"]}
    if limiting == "workers":
        assert stages[run["limiting"]]["name"] == "map(decode)"
        assert stages[run["limiting"]]["runs_in"] == "workers"
        (worker,) = run["workers"]
        assert worker["nbytes"] > 1 << 20
        assert worker["pid"] != pid
    elif limiting:
        assert stages[run["limiting"]]["name"] == limiting
    else:
        assert run["limiting"] is None
        assert "Data is not the limit" in run["verdict"]


def test_figures_move_in_a_terminal(tmp_path: Path) -> None:
    pytest.importorskip("rich")
    with _running(tmp_path, _PIPELINES["map(decode)"]) as pid:
        child, terminal = pty.fork()
        if not child:
            os.environ.update(TERM="xterm-256color", COLUMNS="110", LINES="40")
            command = [sys.executable, "-m", "wholegrain", "top", str(pid), "--interval", "0.3"]
            os.execv(sys.executable, command)
        try:
            seen = b""
            end = time.monotonic() + 30
            while seen.count(b"elements in") < 4 and time.monotonic() < end:
                seen += os.read(terminal, 1 << 16)
            os.kill(child, signal.SIGINT)
            with contextlib.suppress(OSError):  # The terminal is closed at the end.
                while part := os.read(terminal, 1 << 16):
                    seen += part
        finally:
            _, status = os.waitpid(child, 0)
            os.close(terminal)
    assert os.waitstatus_to_exitcode(status) == 130
    counts = {text.split()[-1] for text in seen.decode().split(" elements in")[:-1]}
    assert len(counts) >= 3
    assert "map(decode)" in seen.decode()


def test_a_run_that_hangs_in_its_first_element_says_where(tmp_path: Path) -> None:
    body = """
        def hang(x):
            time.sleep(60)
        next(iter(wg.MapDataset.range(9).to_iter_dataset().map(hang)))
    """
    with _running(tmp_path, body) as pid:
        end = time.monotonic() + 30
        while True:
            (run,) = json.loads(_top(pid, "--json").stdout)["runs"]
            if run["stands_still"] or time.monotonic() > end:
                break
        shown = _top(pid, "--once").stdout
    assert (run["elements"], run["wait_share"]) == (0, 1.0)
    assert "At work: hang (train.py:" in run["stands_still"]
    assert "No element has come for" in shown


def test_a_program_of_short_runs_has_no_thread_for_others(tmp_path: Path) -> None:
    code = """
        import gc, threading, time
        import wholegrain as wg
        names = lambda: [one.name for one in threading.enumerate()]
        it = iter(wg.MapDataset.range(9).to_iter_dataset())
        assert "wholegrain-top" in names()
        del it
        gc.collect()
        end = time.monotonic() + 30
        while "wholegrain-top" in names() and time.monotonic() < end:
            time.sleep(0.1)
        assert "wholegrain-top" not in names()
        it = iter(wg.MapDataset.range(9).to_iter_dataset())
        assert "wholegrain-top" in names()
    """
    command = [sys.executable, "-c", textwrap.dedent(code)]
    subprocess.run(command, env={**os.environ, "WHOLEGRAIN_TOP": "1"}, timeout=60, check=True)


def test_lanes_mixtures_and_errors_are_tables(tmp_path: Path) -> None:
    body = """
        def decode(x):
            if x % 10 == 0:
                raise ValueError("bad")
            return x
        part = wg.MapDataset.range(1000).map(decode).on_error("skip").repeat().to_iter_dataset()
        ds = wg.IterDataset.mix({"web": part, "code": part}, {"web": 3, "code": 1})
        ds = ds.mp_prefetch(wg.MultiprocessingOptions(num_workers=2, lanes=4))
        steps(iter(ds), 0.01)
    """
    with _running(tmp_path, body) as pid:
        end = time.monotonic() + 40
        while True:
            shown = _top(pid, "--once").stdout
            if ("worker 1" in shown and "tolerated" in shown) or time.monotonic() > end:
                break
    rows = [line.split() for line in shown.splitlines()]
    assert ["0,", "2", "worker", "0"] in rows
    assert ["1,", "3", "worker", "1"] in rows
    ((target, share),) = [row[1:3] for row in rows if row[:1] == ["web"]]
    assert (target, 65 < float(share[:-1]) < 85) == ("75.0%", True)
    assert any(row[-2:] == ["ValueError:", "bad"] for row in rows)


def test_without_a_process_it_finds_the_only_one_or_lists_them(tmp_path: Path) -> None:
    with _running(tmp_path, _PIPELINES["map(decode)"]) as pid:
        others = [other for other in live.visible_pids() if other != pid]
        done = _top("--once")
        if not others:
            assert "train.py" in done.stdout
        with _running(tmp_path, _PIPELINES[""]) as another:
            done = _top("--once")
    assert done.returncode == 2
    assert f"{pid} (" in done.stderr
    assert f"{another} (" in done.stderr


def test_text_in_names_cannot_control_the_terminal(tmp_path: Path) -> None:
    body = """
        ds = wg.MapDataset.range(10**6).to_iter_dataset().map(decode).named("evil\\033[2J")
        steps(iter(ds), 0.001)
    """
    with _running(tmp_path, body) as pid:
        done = _top(pid, "--once")
    assert "evil" in done.stdout
    assert "\033" not in done.stdout


def test_what_cannot_be_shown_is_explained(tmp_path: Path) -> None:
    done = _top(2**22 - 1, "--once")
    assert (done.returncode, "There is no process" in done.stderr) == (2, True)
    done = _top(os.getpid(), "--once")
    assert done.returncode == 2
    assert "run a pipeline of wholegrain for a second first" in done.stderr
    with _running(tmp_path, _PIPELINES[""], WHOLEGRAIN_TOP="0") as pid:
        time.sleep(2.5)
        assert pid not in live.visible_pids()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_only_the_same_user_can_look(tmp_path: Path) -> None:
    with _running(tmp_path, _PIPELINES[""]) as pid:
        code = f"""
            import os
            from wholegrain._observe import live
            os.setuid(65534)
            try:
                live.ask({pid})
            except PermissionError as error:
                print("refused")
        """
        command = [sys.executable, "-c", textwrap.dedent(code)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert done.stdout.strip() == "refused", done.stderr
        # The program itself refuses as well: it answers nothing.
        code = code.replace("os.setuid", "live._check_user = lambda connection: None; os.setuid")
        command = [sys.executable, "-c", textwrap.dedent(code)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert done.stdout.strip() == "refused", done.stderr


def test_a_forked_child_has_an_address_of_its_own(tmp_path: Path) -> None:
    body = """
        import os
        it = iter(wg.MapDataset.range(10**6).to_iter_dataset().map(decode))
        began = time.time()
        while time.time() - began < 1.5:
            next(it)
        child = os.fork()
        if not child:
            steps(iter(wg.MapDataset.range(10**6).to_iter_dataset().map(decode)), 0.001)
        open(sys.argv[0] + ".child", "w").write(str(child))
        steps(it, 0.001)
    """
    with _running(tmp_path, body) as pid:
        note = tmp_path / "train.py.child"
        end = time.monotonic() + 30
        while not (note.exists() and note.read_text()) and time.monotonic() < end:
            time.sleep(0.1)
        child = int(note.read_text())
        try:
            while child not in live.visible_pids() and time.monotonic() < end:
                time.sleep(0.1)
            assert live.ask(pid)["pid"] == pid
            assert live.ask(child)["pid"] == child
        finally:
            os.kill(child, signal.SIGKILL)
