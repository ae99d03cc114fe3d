"""`ds.cache(path)`: elements are computed once and kept on disk."""

import logging
import os
import random
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import wholegrain as wg
from tests.graph import cached_pipeline
from tests.graph.tools import R, Unreadable, X, fails_on, source
from wholegrain._disk_cache import folder
from wholegrain._disk_cache.store import MISSING
from wholegrain._graph.shares import shard
from wholegrain.testing import check_iter_dataset, check_map_dataset
from wholegrain.testing.checks import assert_equal

KILLS = int(os.environ.get("CACHE_KILLS", "6"))


class Pair(NamedTuple):
    left: Any
    right: Any


class Counted:
    """A function that counts its calls in a file, so that those of workers count too."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "calls"

    def __call__(self, x: int) -> Any:
        with self._file.open("a") as file:
            file.write(f"{x}\n")
        return {"x": np.full((x % 4, 3), x, np.int16), "label": x}

    @property
    def calls(self) -> list[int]:
        """The arguments of all calls so far, which are forgotten."""
        text = self._file.read_text() if self._file.exists() else ""
        self._file.unlink(missing_ok=True)
        return [int(line) for line in text.split()]


@pytest.fixture(name="function")
def _function(tmp_path: Path) -> Counted:
    return Counted(tmp_path)


@pytest.fixture(name="path")
def _path(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def data_files(path: Path) -> list[Path]:
    return sorted(path.glob("*/data-*"))


def test_elements_are_computed_once_and_random_access_stays(function: Counted, path: Path) -> None:
    plain = R(30).map(function)
    cached = plain.cache(path)
    assert_equal(plain[7], cached[7], "element 7")
    assert_equal(plain[7], cached[37], "element 7 in the next epoch")
    check_map_dataset(cached)
    assert len(cached) == 30
    function.calls  # noqa: B018
    both = zip(cached.shuffle(seed=1).repeat(2), plain.shuffle(seed=1).repeat(2), strict=True)
    for found, expected in both:
        assert_equal(expected, found, "an element")
    assert len(function.calls) == 60  # Only of the pipeline without a cache.


def test_another_run_and_another_object_find_the_elements(function: Counted, path: Path) -> None:
    list(R(10).map(function).cache(path))
    assert sorted(function.calls) == list(range(10))
    again = R(10).map(function).cache(path).map(lambda e: e["label"]).batch(5)
    assert [batch.tolist() for batch in again] == [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9]]
    assert function.calls == []


def test_a_partly_filled_cache_is_used(function: Counted, path: Path) -> None:
    cached = R(20).map(function).cache(path)
    list(cached[5:15])
    function.calls  # noqa: B018
    list(cached)
    assert sorted(function.calls) == [*range(5), *range(15, 20)]


@pytest.mark.parametrize("workers", [2, "auto"])
def test_workers_fill_it_together(workers: Any, function: Counted, path: Path) -> None:
    plain = R(40).map(function).seed(1).shuffle(seed=3)
    cached = R(40).map(function).cache(path).seed(1).shuffle(seed=3)
    options = wg.MultiprocessingOptions(num_workers=workers)
    expected = [element["label"] for element in plain]
    for _ in range(2):
        found = list(cached.to_iter_dataset().mp_prefetch(options))
        assert [element["label"] for element in found] == expected
    function.calls  # noqa: B018
    assert [element["label"] for element in cached] == expected
    assert function.calls == []


@pytest.mark.parametrize("sequential", [False, True])
@pytest.mark.parametrize("batched", [False, True])
def test_shares_of_workers_are_those_without_a_cache(
    sequential: bool, batched: bool, path: Path
) -> None:
    def shares(ds: Any) -> list[Any]:
        parts = [shard(ds.to_iter_dataset(), index, 2, sequential) for index in range(2)]
        return [[np.asarray(element).tolist() for element in part] for part in parts]

    plain = R(21).map(_square)
    plain = plain.batch(3) if batched else plain
    for _ in range(2):
        assert shares(plain.cache(path)) == shares(plain)


def _square(x: int) -> int:
    return x * x


def test_seeds_downstream_do_not_depend_on_it(path: Path) -> None:
    plain = R(50).seed(7).map(_square)
    assert list(plain.cache(path).shuffle()) == list(plain.shuffle())
    spec = plain.cache(path).seed(1).shuffle().to_iter_dataset()
    check_iter_dataset(spec)


def test_missing_elements_stay_missing(function: Counted, path: Path) -> None:
    cached = R(10).map(function).filter(lambda e: e["label"] % 2).cache(path)
    assert [element["label"] for element in cached] == [1, 3, 5, 7, 9]
    assert cached[0] is None
    function.calls  # noqa: B018
    assert [element["label"] for element in cached] == [1, 3, 5, 7, 9]
    assert function.calls == []


def test_an_element_that_fails_is_not_kept_and_the_others_are(path: Path) -> None:
    cached = R(6).map(fails_on(2)).cache(path)
    for _ in range(2):
        it = iter(cached)
        assert [next(it), next(it)] == [0, 1]
        with pytest.raises(Unreadable, match="element 2"):
            next(it)
        assert list(it) == [3, 4, 5]
    with pytest.raises(Unreadable):
        cached[2]


def test_changing_an_element_does_not_change_the_cache(path: Path) -> None:
    cached = R(3).map(lambda x: {"x": np.full(5, x), "big": np.zeros(10_000)}).cache(path)
    for _ in range(3):
        element = cached[1]
        assert element["x"].tolist() == [1] * 5
        assert not element["big"].any()
        element["x"] += 1
        element["big"] += 1


leaves = (
    st.none()
    | st.integers()
    | st.text(max_size=5)
    | st.binary(max_size=9)
    | st.floats(allow_nan=False)
    | hnp.arrays(
        hnp.scalar_dtypes() | hnp.byte_string_dtypes() | hnp.array_dtypes(max_size=2),
        hnp.array_shapes(min_dims=0, min_side=0, max_side=4),
    )
    | st.builds(np.asfortranarray, hnp.arrays(np.int32, (2, 3)))
    | st.just(np.array(["x", None], dtype=object))
)
trees = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(max_size=3) | st.integers(0, 3), inner, max_size=3)
        | st.tuples(inner, inner)
        | st.builds(Pair, inner, inner)
    ),
    max_leaves=6,
)


@settings(max_examples=60)
@given(elements=st.lists(trees, min_size=1, max_size=5))
def test_elements_of_any_kind_come_back(
    elements: list[Any], tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("cache")
    cached = source([[element] for element in elements]).map(lambda e: e[0]).cache(path)
    first = [cached[index] for index in range(len(elements))]
    again = cached.getitems(np.arange(len(elements)))
    assert list(map(_text, first)) == list(map(_text, again)) == list(map(_text, elements))
    assert all(cached.store.get(index) is not MISSING for index in range(len(elements)))


def _text(value: Any) -> str:
    """Return a text that shows types, dtypes and the order of keys."""
    if isinstance(value, np.ndarray):
        # pickle does not keep the byte order of arrays of dates.
        dtype = value.dtype.newbyteorder("=")
        return f"{dtype!r} {value.shape} {value.flags.fnc} {value.tolist()!r}"
    if isinstance(value, dict):
        return str([(key, _text(item)) for key, item in value.items()])
    if isinstance(value, (list, tuple)):
        return f"{type(value).__name__} {[_text(item) for item in value]}"
    return f"{type(value).__name__} {value!r}"


def test_elements_that_cannot_be_pickled_are_errors(path: Path) -> None:
    cached = R(2).map(lambda x: (y for y in [x])).cache(path)
    with pytest.raises(TypeError, match=r"cannot keep element 1, a generator.*Call `cache` before"):
        cached[1]


# What it is the cache of.


def _add(amount: int) -> Any:
    return lambda x: x + amount


def test_another_pipeline_has_elements_of_its_own(path: Path) -> None:
    assert list(R(3).map(_add(1)).cache(path)) == [1, 2, 3]
    assert list(R(3).map(_add(2)).cache(path)) == [2, 3, 4]
    assert list(R(1, 4).map(_add(1)).cache(path)) == [2, 3, 4]
    assert list(source([1, 2, 3]).cache(path)) == [1, 2, 3]
    assert list(source([1, 2, 4]).cache(path)) == [1, 2, 4]
    assert len(folder.names(str(path))) == 5


def test_files_that_changed_are_read_again(tmp_path: Path, path: Path) -> None:
    file = tmp_path / "array.npy"
    for value in (1, 2):
        np.save(file, np.full(4, value))
        os.utime(file, ns=(value, value))
        ds = source(wg.sources.NpyDataSource(file)).map(_square).cache(path)
        assert [int(element) for element in ds] == [value * value] * 4
    (tmp_path / "images").mkdir()
    for content in (b"a", b"b"):
        (tmp_path / "images" / "1.png").write_bytes(content)
        os.utime(tmp_path / "images" / "1.png", ns=(content[0], content[0]))
        images = wg.sources.FolderDataSource(tmp_path / "images")
        assert list(source(images).cache(path)) == [content]


_PROGRAM = """
import sys, tempfile
import wholegrain as wg

WORDS = {"a", "the", "of", "to", "in"}
FACTOR = 3

class Record:
    def __init__(self, words): self.words = words
    def __call__(self, x): return [x * FACTOR, sorted(self.words)]

def make():
    return wg.MapDataset.source(["x", "y"]).map(Record(WORDS)).map(lambda x: x)

ds = make().cache(sys.argv[1] if sys.argv[0].endswith(".py") else "cache")
if __name__ == "__main__":
    print(ds._name)
"""


def test_the_same_program_finds_its_elements_in_every_run(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(_PROGRAM)
    script = [sys.executable, "program.py", "cache"]
    imported = [sys.executable, "-c", "import sys; import program; print(program.ds._name)"]
    names = set()
    for command, seed in [(script, "1"), (script, "2"), (imported, "3")]:
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        names.add(subprocess.check_output(command, cwd=tmp_path, env=environment))
    assert len(names) == 1
    changed = _PROGRAM.replace("FACTOR = 3", "FACTOR = 4")
    (tmp_path / "program.py").write_text(changed)
    assert subprocess.check_output(script, cwd=tmp_path) not in names


# Where it may stand.


def test_stages_that_differ_by_epoch_come_after_it(path: Path) -> None:
    with pytest.raises(ValueError, match=r"random_map.*Call `cache` before it: `ds.cache\(path\)"):
        R(3).random_map(lambda x, rng: x, seed=1).cache(path)
    with pytest.raises(ValueError, match=r"`shuffle.*Call `cache` before it"):
        R(3).shuffle(seed=1).map(_square).cache(path)
    with pytest.raises(ValueError, match="map_with_index"):
        R(3).map_with_index(lambda i, x: i).cache(path)
    with pytest.raises(ValueError, match=r"mix.*on each of the datasets"):
        wg.MapDataset.mix([R(3), R(4)]).cache(path)
    with pytest.raises(ValueError, match="Call `repeat` after `cache`"):
        R(3).repeat().cache(path)
    assert not path.exists()
    assert list(X.ZipMapDataset([R(3), R(3)]).batch(2).cache(path)[1][0]) == [2]
    concatenated = wg.MapDataset.concatenate([R(3), R(2)]).cache(path)
    check_map_dataset(concatenated)


def test_an_empty_dataset_is_empty(path: Path) -> None:
    assert list(R(0).cache(path)) == []


def test_wrong_folders_and_sizes_are_refused(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("text")
    with pytest.raises(ValueError, match=r"not empty and not a cache.*mine\.txt"):
        R(3).cache(tmp_path)
    with pytest.raises(ValueError, match="not a number of bytes"):
        R(3).cache(tmp_path / "cache", "3 apples")
    with pytest.raises(ValueError, match="already the index of 3 elements takes"):
        R(3).cache(tmp_path / "cache", 10)
    lock_held: Any = source([1])
    lock_held._source = _Unpicklable()
    with pytest.raises(TypeError, match="needs a pipeline that can be pickled"):
        lock_held.cache(tmp_path / "cache")


class _Unpicklable:
    def __len__(self) -> int:
        return 1

    def __getitem__(self, index: int) -> int:
        return index

    def __reduce__(self) -> Any:
        raise TypeError("it has a lock")


# Limits and damage.


def size_of(path: Path) -> int:
    return sum(file.stat().st_size for file in path.glob("*/*"))


def test_a_full_cache_keeps_what_it_has(
    function: Counted, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "wholegrain"):
        cached = R(100).map(function).cache(path, 10_000)
        for _ in range(2):
            assert [element["label"] for element in cached] == list(range(100))
    assert 8_000 < size_of(path) <= 10_000
    assert 100 < len(function.calls) < 200
    assert len([r for r in caplog.records if "is full. It has" in r.getMessage()]) == 1


def test_elements_of_pipelines_that_nobody_uses_make_room(path: Path) -> None:
    first, second = R(200).map(_add(1)).cache(path, 40_000), R(200).map(_add(2))
    list(first)
    list(second.cache(path, 40_000))  # The first is in use.
    assert len(folder.names(str(path))) == 2
    del first
    third = R(200).map(_add(3)).cache(path, 40_000)
    assert list(third) == list(range(3, 203))
    assert size_of(path) <= 40_000
    assert not len(third.store.missing())


@pytest.mark.parametrize("what", ["truncated", "changed", "of another element", "no index"])
def test_damaged_elements_are_computed_again(what: str, path: Path) -> None:
    cached = cached_pipeline.pipeline(str(path))
    list(cached)
    del cached
    (data,) = data_files(path)
    index = data.parent / "index"
    if what == "truncated":
        os.truncate(data, data.stat().st_size // 2)
    elif what == "changed":
        content = bytearray(data.read_bytes())
        content[1000::5000] = b"?" * len(content[1000::5000])
        data.write_bytes(content)
    elif what == "of another element":
        entries = bytearray(index.read_bytes())
        entries[64:80], entries[80:96] = entries[80:96], entries[64:80]
        index.write_bytes(entries)
    else:
        index.write_bytes(index.read_bytes()[:100])
    again: Any = cached_pipeline.pipeline(str(path))
    for _ in range(2):
        for number, element in enumerate(again):
            assert cached_pipeline.is_right(number, element)


def test_a_disk_that_is_full_only_costs_the_cache(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> int:
        raise OSError(28, "No space left on device")

    cached = R(10).map(_square).cache(path)
    monkeypatch.setattr("wholegrain._disk_cache.store._write_all", full)
    assert list(cached) == [n * n for n in range(10)]


def test_a_folder_that_is_read_only_is_read(
    function: Counted, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    list(R(10).map(function).cache(path)[:5])
    function.calls  # noqa: B018

    def denied(*_: Any) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("wholegrain._disk_cache.folder.locked", denied)
    for _ in range(2):
        cached = R(10).map(function).cache(path)
        assert [element["label"] for element in cached] == list(range(10))
        assert sorted(function.calls) == [5, 6, 7, 8, 9]


def test_a_forked_child_writes_to_a_file_of_its_own(path: Path) -> None:
    cached: Any = cached_pipeline.pipeline(str(path))
    list(cached[:100])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # jax warns of all forks, if another test has imported it.
        child = os.fork()
    if not child:
        found = list(cached)
        os._exit(not all(cached_pipeline.is_right(n, e) for n, e in enumerate(found)))
    list(cached[::-1])
    _, status = os.waitpid(child, 0)
    assert status == 0
    assert len(data_files(path)) == 2
    assert all(cached_pipeline.is_right(n, e) for n, e in enumerate(cached))
    assert not len(cached.store.missing())


@pytest.mark.parametrize("limit", [0, 250_000])
def test_killed_processes_leave_nothing_wrong(limit: int, path: Path) -> None:
    rng = random.Random(0)
    readers: list[subprocess.Popen[str]] = []

    def start() -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "tests.graph.cached_pipeline", str(path), str(limit)]
        command.append(str(rng.randrange(1 << 30)))
        return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

    try:
        readers += [start() for _ in range(8 if KILLS > 20 else 3)]
        for _ in range(KILLS):
            victim = readers.pop(0)
            assert victim.stdout is not None
            assert victim.stdout.readline() == "ready\n"
            time.sleep(rng.random() * 0.1)
            assert victim.poll() is None
            victim.send_signal(signal.SIGKILL)
            victim.communicate()
            if limit:
                assert size_of(path) <= limit
            readers.append(start())
    finally:
        for reader in readers:
            reader.kill()
            output, _ = reader.communicate()
            assert "WRONG" not in output
    # No lock is left: this process reads and writes at once, and few files are enough.
    cached: Any = cached_pipeline.pipeline(str(path), limit or None)
    assert all(cached_pipeline.is_right(n, e) for n, e in enumerate(cached))
    assert len(data_files(path)) <= 9
    count, bad = cached.store.verify()
    assert bad == 0
    assert count == cached_pipeline.LENGTH or limit
    if limit:
        assert size_of(path) <= limit
        (name,) = folder.names(str(path))
        del cached
        with folder.locked(str(path)):
            assert folder.remove(str(path), name)
