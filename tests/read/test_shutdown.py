"""A program that ends in the middle leaves no thread in the middle of a read."""

import subprocess
import sys

import pytest

# Functions that are registered first are called last.
_BEFORE = """
import atexit, threading, time
atexit.register(lambda: print(sum(t.daemon for t in threading.enumerate())))
import wholegrain as wg

class Slow:
    def __len__(self):
        return 1000
    def __getitem__(self, index):
        time.sleep(0.005)
        return index
"""


def _printed_at_the_end(code: str) -> str:
    run = subprocess.run(
        [sys.executable, "-c", _BEFORE + code],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (run.returncode, run.stderr) == (0, "")
    return run.stdout


@pytest.mark.parametrize(
    "pipeline",
    [
        "it = iter(ds.to_iter_dataset())",
        "it = iter(wg.experimental.ThreadPrefetchIterDataset(plain, prefetch_buffer_size=50))",
    ],
    ids=["read-ahead", "thread prefetch"],
)
def test_reading_threads_have_ended_when_the_program_does(pipeline: str) -> None:
    code = f"""
ds = wg.MapDataset.source(Slow())
plain = ds.to_iter_dataset(wg.ReadOptions(0))
{pipeline}
[next(it) for _ in range(20)]
"""
    assert _printed_at_the_end(code) == "0\n"


def test_a_read_that_takes_forever_does_not_hold_up_the_end() -> None:
    code = """
reading = threading.Event()
def stuck(x):
    if x >= 150:
        reading.set()
        time.sleep(1e6)
    return x
it = iter(wg.MapDataset.source(Slow()).map(stuck).to_iter_dataset())
[next(it) for _ in range(40)]
reading.wait()
"""
    assert int(_printed_at_the_end(code)) > 0
