"""The C extension in threads, with and without the GIL."""

import os
import shutil
import subprocess
import sys
import sysconfig
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from wholegrain._core import native

_SOURCES = Path(__file__).parents[2] / "src/wholegrain/_core"
_THREADS = 4

pytestmark = pytest.mark.skipif(native.lib is None, reason="needs the C extension")


def _lib() -> Any:
    return native.lib


def _in_threads(work: Callable[[], None]) -> None:
    """Call `work` in several threads, which switch as often as they can."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=work) for _ in range(_THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)


def test_threads_that_fill_the_same_bins_never_get_the_same_place() -> None:
    bins, capacity = 200, 7
    arrays = [np.zeros((bins, capacity), np.int32) for _ in range(3)]
    feature = ("x", *arrays, 1)
    filled = _lib().Bins((feature,), bins, 0, False, np.ndarray)
    places: list[tuple[int, ...]] = []

    def place() -> None:
        while (found := filled.place((1,))) is not None:
            places.append(found)

    _in_threads(place)
    assert sorted(places) == [(row, start) for row in range(bins) for start in range(capacity)]


def test_threads_that_add_to_the_same_bins_lose_no_element() -> None:
    bins, capacity, per_thread = 100, 8, 200
    values, segments, positions = (np.zeros((bins, capacity), np.int32) for _ in range(3))
    filled = _lib().Bins((("x", values, segments, positions, 1),), bins, 0, False, np.ndarray)
    numbers = iter(range(1, _THREADS * per_thread + 1))
    shares = [
        [{"x": np.full(1, next(numbers), np.int32)} for _ in range(per_thread)]
        for _ in range(_THREADS)
    ]

    def add() -> None:
        share = shares.pop()
        for index in range(per_thread):
            assert filled.add([share[index]], 0, None) == 1

    _in_threads(add)
    assert sorted(values.ravel()) == list(range(1, _THREADS * per_thread + 1))


def test_an_iterator_over_texts_gives_each_once_to_many_threads() -> None:
    words = [f"{number:05d}" for number in range(5000)]
    offsets = np.arange(0, 5 * len(words) + 1, 5, dtype=np.int32)
    texts = _lib().Texts(offsets, "".join(words).encode(), 0, len(words), False, True)
    taken: list[str] = []
    _in_threads(lambda: taken.extend(texts))
    assert Counter(taken) == Counter(words)


def test_bins_keep_arrays_alive_only_while_they_copy_them() -> None:
    arrays = [np.zeros((2, 4), np.int32) for _ in range(3)]
    filled = _lib().Bins((("x", *arrays, 1),), 2, 0, False, np.ndarray)
    array = np.ones(3, np.int32)
    element = {"x": array}
    before = sys.getrefcount(array), sys.getrefcount(element)
    for expected in (1, 1, 0):  # The third does not fit.
        assert filled.add([element], 0, None) == expected
    assert filled.add([{"y": array}], 0, None) == 0
    assert filled.add([{"x": array.astype(np.int64)}], 0, None) == 0
    assert (sys.getrefcount(array), sys.getrefcount(element)) == before


@pytest.mark.skipif(not sysconfig.get_config_var("Py_GIL_DISABLED"), reason="a build with the GIL")
def test_importing_the_extension_does_not_bring_the_gil_back() -> None:
    code = "import sys, wholegrain._core._native; sys.exit(sys._is_gil_enabled())"
    subprocess.run([sys.executable, "-X", "gil=0", "-W", "error", "-c", code], check=True)


@pytest.mark.skipif(not sysconfig.get_config_var("Py_GIL_DISABLED"), reason="a build with the GIL")
def test_without_the_gil_workers_are_threads_unless_processes_are_asked_for() -> None:
    code = """if True:
        import wholegrain as wg
        ds = wg.MapDataset.range(4).to_iter_dataset()
        print(ds.mp_prefetch(wg.MultiprocessingOptions(num_workers=2)))
    """
    for start, expected in (("", "Multithread"), ("fork", "Process")):
        environment = {**os.environ, "WHOLEGRAIN_WORKER_START": start}
        command = [sys.executable, "-X", "gil=0", "-c", code]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        assert ("thread" in done.stdout) == (expected == "Multithread"), done.stdout


@pytest.mark.skipif(sys.version_info < (3, 13), reason="older headers know only the GIL")
@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
def test_the_sources_compile_for_a_python_without_the_gil() -> None:
    include = sysconfig.get_path("include")
    if not Path(include, "Python.h").exists():
        pytest.skip("needs Python's headers")
    command = ["cc", "-fsyntax-only", "-Wall", "-Werror", "-DPy_GIL_DISABLED=1", f"-I{include}"]
    subprocess.run([*command, *map(str, sorted(_SOURCES.glob("_native*.c")))], check=True)
