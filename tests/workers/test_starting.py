"""What workers find when they start."""

import inspect
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import wholegrain as wg
from tests.compat.programs import python
from wholegrain._workers.local import launcher


def _about_modules(_: int) -> Any:
    return {
        "files": [str(np.__file__), str(wg.__file__), str(inspect.__file__)],
        "source": inspect.getsource(np.full)[:3],
    }


def test_workers_have_the_modules_of_this_process() -> None:
    launcher.close_launchers()
    ds = wg.MapDataset.range(1).map(_about_modules).to_iter_dataset()
    [seen] = ds.mp_prefetch(wg.MultiprocessingOptions(num_workers=1))
    assert seen["files"] == [np.__file__, wg.__file__, inspect.__file__]
    assert seen["source"] == inspect.getsource(np.full)[:3]


def test_workers_do_not_inherit_what_is_open(tmp_path: Path) -> None:
    program = textwrap.dedent(
        """
        import os
        import wholegrain as wg

        inherited = os.open("marked", os.O_RDWR | os.O_CREAT)
        os.set_inheritable(inherited, True)

        def open_files(_):
            files = [f"/proc/self/fd/{number}" for number in os.listdir("/proc/self/fd")]
            return [f"{file} {os.readlink(file)}" for file in files if os.path.lexists(file)]

        ds = wg.MapDataset.range(1).map(lambda x: x).map(open_files).to_iter_dataset()
        [files] = ds.mp_prefetch(wg.MultiprocessingOptions(num_workers=1))
        print(any("marked" in file for file in files), "/proc/self/fd/0 /dev/null" in files)
        """
    )
    assert python("-c", program, cwd=tmp_path).stdout == "False True\n"


@pytest.mark.parametrize("closed", ["0", "1", "2", "0, 1, 2"])
def test_workers_start_where_standard_streams_are_closed(closed: str, tmp_path: Path) -> None:
    """As in services: what workers print is lost, and reaches nobody else."""
    program = textwrap.dedent(
        f"""
        import os
        for number in ({closed},):
            os.close(number)
        import wholegrain as wg

        def loud(x):
            os.write(1, b"output")
            os.write(2, b"output")
            return x

        ds = wg.MapDataset.range(300).map(loud).to_iter_dataset()
        seen = list(ds.mp_prefetch(wg.MultiprocessingOptions(num_workers=2)))
        open("seen", "w").write(str(seen == list(range(300))))
        """
    )
    python("-c", program, cwd=tmp_path)
    assert (tmp_path / "seen").read_text() == "True"
