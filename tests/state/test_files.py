"""save and load: states as files, the way checkpointing libraries ask for them."""

import asyncio
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import wholegrain as wg
from tests.graph.tools import R


class Directory:
    """A directory that is made later, by somebody else."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.created = 0

    async def await_creation(self) -> Path:
        await asyncio.sleep(0)
        self._path.mkdir(parents=True, exist_ok=True)
        self.created += 1
        return self._path


def _saved(it: Any, path: Path) -> Any:
    async def run() -> None:
        await (await it.save(Directory(path)))

    asyncio.run(run())
    return json.loads((path / "process_0-of-1.json").read_text())


def _load(it: Any, path: Any) -> None:
    async def run() -> None:
        await (await it.load(path))

    asyncio.run(run())


def test_a_state_goes_through_a_file(tmp_path: Path) -> None:
    ds = R(10).to_iter_dataset().random_map(lambda x, rng: (x, rng.random()), seed=1)
    it = iter(ds)
    for _ in range(4):
        next(it)
    assert _saved(it, tmp_path / "new") == it.get_state()
    restored = iter(ds)
    _load(restored, tmp_path / "new")
    assert list(restored) == list(it)


def test_the_file_is_indented_json(tmp_path: Path) -> None:
    it = iter(R(3).to_iter_dataset())
    _saved(it, tmp_path)
    text = (tmp_path / "process_0-of-1.json").read_text()
    assert text == json.dumps({"next_index": 0}, indent=4)


def test_the_state_is_taken_when_save_is_called(tmp_path: Path) -> None:
    it = iter(R(10).to_iter_dataset())
    next(it)
    directory = Directory(tmp_path)

    async def run() -> None:
        writing = await it.save(directory)
        next(it)
        assert directory.created == 0
        await writing

    asyncio.run(run())
    saved = json.loads((tmp_path / "process_0-of-1.json").read_text())
    assert saved == {"next_index": 1}


def test_loading_happens_when_it_is_awaited(tmp_path: Path) -> None:
    ds = R(10).to_iter_dataset()
    it = iter(ds)
    next(it)
    _saved(it, tmp_path)
    other = iter(ds)

    async def run() -> None:
        reading = await other.load(str(tmp_path))
        assert other.get_state() == {"next_index": 0}
        await reading

    asyncio.run(run())
    assert next(other) == 1


def test_a_missing_file_is_an_error(tmp_path: Path) -> None:
    it = iter(R(10).to_iter_dataset())
    with pytest.raises(ValueError, match=r"process_0-of-1\.json does not exist"):
        _load(it, tmp_path)


class Mine(wg.DatasetIterator[int]):
    """Has numpy numbers in its state."""

    def __init__(self, state: Any) -> None:
        super().__init__()
        self.state = state

    def __next__(self) -> int:
        return 0

    def get_state(self) -> Any:
        return self.state

    def set_state(self, state: Any) -> None:
        self.state = state


def test_numpy_numbers_can_be_saved(tmp_path: Path) -> None:
    it = Mine({"n": np.int64(3), "x": np.float32(0.5), "a": np.arange(3), "t": (1, 2)})
    assert _saved(it, tmp_path) == {"n": 3, "x": 0.5, "a": [0, 1, 2], "t": [1, 2]}


def test_what_json_cannot_hold_is_named(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="set"):
        _saved(Mine({"s": {1}}), tmp_path)


def test_states_take_numpy_numbers() -> None:
    for ds in (
        R(9).to_iter_dataset(),
        R(9).to_iter_dataset().map_with_index(lambda _, x: x),
        wg.experimental.LimitIterDataset(R(9).to_iter_dataset(), 8),
        wg.experimental.RepeatIterDataset(R(9).to_iter_dataset(), 1),
        wg.IterDataset.mix([R(9).to_iter_dataset()]),
        wg.experimental.InterleaveIterDataset([R(9)], cycle_length=1),
    ):
        it = iter(ds)
        next(it)
        state = it.get_state()
        other = iter(ds)
        other.set_state(_as_numpy(state))
        assert other.get_state() == state
        assert json.loads(json.dumps(other.get_state())) == state
        assert next(other) == 1


def _as_numpy(state: Any) -> Any:
    if isinstance(state, dict):
        return {key: _as_numpy(value) for key, value in state.items()}
    if isinstance(state, list):
        return [_as_numpy(value) for value in state]
    return np.asarray(state)[()]
