"""Workers and read-ahead without what only Linux has, as on other systems."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests.workers.processes import SOURCE

# Found by every interpreter of the program, also by those of spawned workers.
_ELSEWHERE = """
import os, sys

for name in ("memfd_create", "sched_getaffinity", "getresuid", "getresgid", "posix_fadvise"):
    if hasattr(os, name):
        delattr(os, name)


def hide(event, arguments):
    if event in ("open", "os.listdir", "os.scandir"):
        path = arguments[0]
        if isinstance(path, bytes):
            path = path.decode()
        if isinstance(path, str) and path.startswith(("/proc", "/sys/fs")):
            raise FileNotFoundError(2, "hidden", path)


sys.addaudithook(hide)
"""

_HIDDEN = """
def is_hidden(number=0):
    import os
    try:
        open(f"/proc/{os.getpid()}/stat").close()
    except FileNotFoundError:
        return not hasattr(os, "memfd_create")
    return False
"""


def _run_elsewhere(folder: Path, program: str, memory: str = "auto") -> str:
    (folder / "sitecustomize.py").write_text(_ELSEWHERE)
    (folder / "hidden.py").write_text(_HIDDEN)
    (folder / "main.py").write_text(textwrap.dedent(program))
    environ = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(folder), str(SOURCE)]),
        "WHOLEGRAIN_WORKER_START": "spawn",
        "WHOLEGRAIN_SHARED_MEMORY": memory,
    }
    done = subprocess.run(
        [sys.executable, "main.py"],
        cwd=folder,
        env=environ,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    # The check of backends has workers exit with this code.
    unexpected = [line for line in done.stderr.splitlines() if "with exit code 3." not in line]
    assert unexpected == []
    return done.stdout


@pytest.mark.parametrize("memory", ["auto", "named"], ids=["as on macOS", "as on Windows"])
def test_workers_share_memory(memory: str, tmp_path: Path) -> None:
    program = """
        import numpy as np
        import wholegrain as wg
        from hidden import is_hidden
        from wholegrain._workers.local.memory import choose_kind

        if __name__ == "__main__":
            ds = wg.MapDataset.range(2).map(is_hidden).to_iter_dataset()
            options = wg.MultiprocessingOptions(num_workers=1)
            print(is_hidden(), list(ds.mp_prefetch(options)), choose_kind())
            large = wg.MapDataset.source([np.full(200_000, n) for n in range(6)]).batch(2)
            held = list(large.to_iter_dataset().mp_prefetch(options))
            print([batch[:, -1].tolist() for batch in held])
    """
    kind = "unlinked" if memory == "auto" else memory
    assert _run_elsewhere(tmp_path, program, memory).splitlines() == [
        f"True [True, True] {kind}",
        "[[0, 1], [2, 3], [4, 5]]",
    ]


def test_workers_behave_as_on_linux(tmp_path: Path) -> None:
    program = """
        from wholegrain import testing

        if __name__ == "__main__":
            testing.check_backend(None)
            print("conforms")
    """
    assert _run_elsewhere(tmp_path, program) == "conforms\n"


def test_reading_ahead_needs_no_proc(tmp_path: Path) -> None:
    program = """
        import time
        import wholegrain as wg
        from hidden import is_hidden
        from wholegrain._read import machine, waiting


        class Slow:
            def __len__(self):
                return 60

            def __getitem__(self, index):
                time.sleep(0.005)
                return index


        print(is_hidden(), machine.available_cpus() >= 1, machine.available_memory() > 0)
        print(machine.private_memory(1), waiting.queued_seconds(), waiting.queued_for_each_second())
        it = iter(wg.MapDataset.source(Slow()).shuffle(seed=1).map(lambda n: n).to_iter_dataset())
        first = [next(it) for _ in range(20)]
        state = it.get_state()
        rest = list(it)
        it.set_state(state)
        print(list(it) == rest, sorted(first + rest) == list(range(60)))
    """
    assert _run_elsewhere(tmp_path, program).splitlines() == [
        "True True True",
        "None 0.0 0.0",
        "True True",
    ]
