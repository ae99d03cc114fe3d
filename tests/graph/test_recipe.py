"""A transformation made by the recipe in ARCHITECTURE.md passes every check for transformations."""

import importlib
import pickle
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import wholegrain as wg
from wholegrain import testing
from wholegrain._state.counting import CountedStates, is_one_to_one
from wholegrain.checkpoint import CheckpointHandler, fingerprint
from wholegrain.experimental import multithread_prefetch

_TEXT = (Path(__file__).parents[2] / "ARCHITECTURE.md").read_text()
_SECTION = _TEXT.split("## A new transformation\n")[1].split("\n## ")[0]


@pytest.fixture(scope="module")
def recipe(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Return the recipe's code as a module, which other processes can import too."""
    (code,) = re.findall(r"^```python\n(.*?)^```$", _SECTION, re.DOTALL | re.MULTILINE)
    folder = tmp_path_factory.mktemp("recipe")
    (folder / "nodes_by_the_recipe.py").write_text(code)
    sys.path.insert(0, str(folder))
    try:
        yield importlib.import_module("nodes_by_the_recipe")
    finally:
        sys.path.remove(str(folder))
        del sys.modules["nodes_by_the_recipe"]


@pytest.fixture
def backwards(recipe: Any) -> Any:
    return recipe.ReverseMapDataset(wg.MapDataset.range(11).shuffle(seed=1))


@pytest.fixture
def numbered(recipe: Any, backwards: Any) -> Any:
    return recipe.EnumerateIterDataset(backwards.to_iter_dataset())


def test_it_does_what_it_says(backwards: Any, numbered: Any) -> None:
    epoch = list(wg.MapDataset.range(11).shuffle(seed=1))
    assert list(backwards) == epoch[::-1]
    assert list(numbered) == list(enumerate(epoch[::-1]))


def test_chunks_threads_and_epochs(backwards: Any) -> None:
    testing.check_map_dataset(backwards)
    testing.check_map_dataset(backwards.map(lambda x: x + 1).batch(3))


def test_states(backwards: Any, numbered: Any) -> None:
    testing.check_iter_dataset(backwards.to_iter_dataset())
    testing.check_iter_dataset(numbered)
    testing.check_iter_dataset(numbered.batch(3))
    testing.check_iter_dataset(multithread_prefetch(numbered, 2, 2))
    testing.assert_equal_output_after_checkpoint(numbered)


def test_states_in_another_process(numbered: Any) -> None:
    testing.check_resume(numbered, num_restores=1)


def test_states_by_arithmetic(numbered: Any) -> None:
    it = iter(numbered)
    states = [it.get_state(), *(it.get_state() for _ in it)]
    counted = CountedStates(numbered)
    assert counted.left(states[0]) == 11
    assert [counted.after(states[0], count) for count in range(1, 12)] == states[1:]
    assert not is_one_to_one(numbered)  # Each worker counts by itself.


@pytest.mark.parametrize("num_workers", [2, "auto"])
def test_workers(num_workers: Any, backwards: Any, numbered: Any) -> None:
    options = wg.MultiprocessingOptions(num_workers=num_workers)
    with iter(backwards.to_iter_dataset().mp_prefetch(options)) as it:
        assert list(it) == list(backwards)
    if num_workers == "auto":
        with iter(numbered.mp_prefetch(options)) as it:
            assert list(it) == list(numbered)


def test_checkpoints(numbered: Any, backwards: Any, tmp_path: Path) -> None:
    names = [stage["stage"] for stage in fingerprint(numbered)["stages"]]
    assert names[-1] == "EnumerateIterDataset"
    assert "ReverseMapDataset" in names
    it = iter(numbered)
    next(it)
    CheckpointHandler().save(tmp_path, it)
    assert list(CheckpointHandler().restore(tmp_path, iter(numbered))) == list(it)
    with pytest.raises(ValueError, match="another pipeline"):
        CheckpointHandler().restore(tmp_path, iter(backwards.to_iter_dataset()))


@pytest.mark.parametrize("state", [None, {}, {"parent": {"next_index": 1}, "count": -1}])
def test_a_state_of_another_pipeline_is_refused(state: Any, numbered: Any) -> None:
    it = iter(numbered)
    next(it)
    before = it.get_state()
    with pytest.raises(ValueError, match="state"):
        it.set_state(state)
    assert it.get_state() == before


def test_it_is_pickled_closed_and_described(numbered: Any) -> None:
    assert list(pickle.loads(pickle.dumps(numbered))) == list(numbered)
    assert "EnumerateIterDataset" in repr(numbered) + numbered.explain()
    it = iter(numbered)
    next(it)
    assert str(it.report())
    it.close()
    with pytest.raises(ValueError, match="closed"):
        next(it)


def test_what_it_may_define_is_known_to_its_kind() -> None:
    members = re.findall(r"^\| (`.*?`) \|", _SECTION, re.MULTILINE)
    names = re.findall(r"`(\w+)`", " ".join(members))
    assert len(names) <= 10
    kind = importlib.import_module("wholegrain._graph.kinds").IterNode
    assert all(f"`{name}`" in str(kind.__doc__) for name in names)
