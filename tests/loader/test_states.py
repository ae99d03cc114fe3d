"""States of a DataLoader's iterator."""

import asyncio
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import wholegrain as wg
from wholegrain.samplers import IndexSampler, SequentialSampler
from wholegrain.sharding import NoSharding, ShardByJaxProcess, ShardOptions
from wholegrain.sources import RangeDataSource, SharedMemoryDataSource


class _Split(wg.transforms.FlatMap):
    max_fan_out = 2

    def flat_map(self, element: int) -> list[int]:
        return [element, -element]


class _Odd(wg.transforms.Filter):
    def filter(self, element: int) -> bool:
        return element % 2 == 1


def _loader(source: Any = range(10), *operations: Any, **arguments: Any) -> wg.DataLoader:
    return wg.DataLoader(
        **{
            "data_source": source,
            "sampler": SequentialSampler(len(source)),
            "operations": operations,
            **arguments,
        }
    )


def _decoded(it: Any) -> Any:
    return json.loads(it.get_state())


def _state_after(loader: wg.DataLoader, count: int) -> bytes:
    it = iter(loader)
    for _ in range(count):
        next(it)
    return it.get_state()


# Saving and restoring.


@pytest.mark.parametrize("worker_count", [0, 2])
def test_a_state_is_json_laid_out_by_lines(worker_count: int) -> None:
    shard = ShardOptions(shard_index=1, shard_count=3)
    sampler = IndexSampler(30, shard_options=shard, shuffle=True, num_epochs=1, seed=1)
    with iter(_loader(range(30), sampler=sampler, worker_count=worker_count)) as it:
        for _ in range(3):
            text = it.get_state().decode()
            assert text == json.dumps(json.loads(text), indent=4)
            next(it)


def test_a_state_says_what_was_handed_out_and_of_which_data() -> None:
    it = iter(_loader(RangeDataSource(0, 10, 1), _Odd()))
    next(it)
    assert _decoded(it) == {
        "version": 2,
        "last_seen_indices": {"0": 1},
        "last_worker_index": -1,
        "worker_count": 0,
        "sampler": "SequentialSampler(num_records=10, shard_options=NoSharding(shard_index=0,"
        " shard_count=1, drop_remainder=False))",
        "data_source": "RangeDataSource(start=0, stop=10, step=1)",
    }
    assert list(_decoded(it)) == [
        "version",
        "last_seen_indices",
        "last_worker_index",
        "worker_count",
        "sampler",
        "data_source",
    ]


@given(
    num_records=st.integers(1, 20),
    count=st.integers(1, 4),
    taken=st.integers(0, 12),
    batch=st.integers(1, 4),
    form=st.sampled_from([bytes, bytearray, bytes.decode, json.loads]),
)
def test_what_follows_a_state_is_what_followed_it(
    num_records: int, count: int, taken: int, batch: int, form: Callable[[bytes], Any]
) -> None:
    sampler = IndexSampler(num_records, ShardOptions(0, count), True, num_epochs=2, seed=5)
    loader = _loader(range(num_records), wg.transforms.Batch(batch, batch_fn=list), sampler=sampler)
    it = iter(loader)
    for _ in range(taken):
        next(it, None)
    state = it.get_state()
    rest = list(it)
    it.set_state(form(state))
    assert it.get_state() == state
    assert list(it) == rest
    fresh = iter(loader)
    fresh.set_state(form(state))
    assert list(fresh) == rest


def test_taking_a_state_changes_nothing() -> None:
    it = iter(_loader())
    for number in range(10):
        assert it.get_state() == it.get_state()
        assert next(it) == number


def test_an_iterator_can_be_made_at_a_state() -> None:
    loader = _loader()
    state = json.loads(_state_after(loader, 4))
    assert list(wg.DataLoaderIterator(loader, state)) == [4, 5, 6, 7, 8, 9]
    assert list(wg.DataLoaderIterator(loader, None)) == list(range(10))


def test_validation_can_be_switched_off() -> None:
    state = json.loads(_state_after(_loader(RangeDataSource(0, 10, 1)), 4))
    loader = _loader(RangeDataSource(100, 110, 1))
    with pytest.raises(ValueError, match="another `data_source`"):
        wg.DataLoaderIterator(loader, state)
    assert next(wg.DataLoaderIterator(loader, state, validate_state=False)) == 104


def test_a_flat_map_has_the_state_of_its_dataset() -> None:
    loader = _loader(range(3), _Split(), _Split())
    it = iter(loader)
    assert [next(it) for _ in range(6)] == [0, 0, 0, 0, 1, -1]
    state = _decoded(it)
    assert state == {
        "parent": {"parent": {"next_index": 0}, "next_index_in_buffer": 2},
        "next_index_in_buffer": 2,
    }
    for form in (it.get_state(), state):
        other = iter(loader)
        other.set_state(form)
        assert list(other) == [-1, 1, 2, -2, -2, 2]


def test_the_text_of_an_iterator_is_its_state() -> None:
    it = iter(_loader())
    next(it)
    assert str(it) == f"PyGrainDatasetIterator(state={it.get_state().decode()})"


# States that do not fit.


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"worker_count": 3}, "worker_count=3, but it lacks the position of some"),
        ({"sampler": "other"}, r"another `sampler`:\n    other\nbut.*has\n    SequentialSampler"),
        ({"data_source": "other"}, r"another `data_source`(.|\n)*give the class a `__repr__`"),
        ({"version": 1}, "version 1, but this release writes and reads version 2"),
    ],
)
def test_a_state_of_another_loader_is_refused(change: dict[str, Any], message: str) -> None:
    it = iter(_loader(RangeDataSource(0, 10, 1)))
    state = {**_decoded(it), **change}
    with pytest.raises(ValueError, match=message):
        it.set_state(state)
    assert next(it) == 0


def test_a_state_without_a_version_is_taken_for_one_of_this_release() -> None:
    it = iter(_loader())
    state = _decoded(it)
    del state["version"]
    it.set_state(state)
    assert next(it) == 0


def test_a_state_that_lacks_something_is_refused() -> None:
    it = iter(_loader())
    state = _decoded(it)
    for key in ("worker_count", "sampler", "data_source", "last_seen_indices"):
        with pytest.raises(KeyError, match=key):
            it.set_state({name: value for name, value in state.items() if name != key})


@pytest.mark.parametrize("text", [b"", b"{", b"nothing"])
def test_what_is_not_json_is_refused(text: bytes) -> None:
    with pytest.raises(json.JSONDecodeError):
        iter(_loader()).set_state(text)


@pytest.mark.parametrize("text", [b"[]", b"3", b'"text"', b"null"])
def test_json_that_is_not_a_state_is_refused(text: bytes) -> None:
    with pytest.raises(ValueError, match="JSON of a dict"):
        iter(_loader()).set_state(text)


def test_a_state_of_a_dataset_is_refused_by_name() -> None:
    it = iter(_loader())
    batches: Any = iter(wg.MapDataset.range(9).to_iter_dataset().batch(2))
    packed = {"parent": {}, "count": 1}
    for state in (batches.get_state(), packed, {"epoch": 1}):
        with pytest.raises(ValueError, match="not one of a DataLoader without a FlatMap"):
            it.set_state(state)


def test_loaders_with_and_without_a_flat_map_tell_their_states_apart() -> None:
    plain, split = iter(_loader()), iter(_loader(range(10), _Split()))
    with pytest.raises(ValueError, match="DataLoader without a FlatMap"):
        split.set_state(plain.get_state())
    with pytest.raises(ValueError, match="not one of a DataLoader without a FlatMap"):
        plain.set_state(split.get_state())
    with pytest.raises(ValueError, match="not one of a DataLoader with a FlatMap"):
        split.set_state({"next_index": 3})


@pytest.mark.parametrize("index", [-3, 10, 10**6])
def test_a_position_outside_of_the_data_is_refused(index: int) -> None:
    it = iter(_loader(RangeDataSource(0, 10, 1)))
    next(it)
    state = _decoded(it)
    state["last_seen_indices"] = {"0": index}
    with pytest.raises(IndexError):
        it.set_state(state)
    assert next(it) == 1


# The same sampler and source, named otherwise.


class _Unnamed:
    """A source whose `repr` is its address."""

    def __init__(self, count: int = 10) -> None:
        self._count = count

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> int:
        return index


class _AlsoUnnamed(_Unnamed):
    pass


def test_a_source_without_a_repr_restores_in_another_run_with_a_warning() -> None:
    before, after = _Unnamed(), _Unnamed()  # At different addresses, as in different runs.
    state = _state_after(_loader(before), 3)
    assert b" at 0x" in state
    it = iter(_loader(after))
    with pytest.warns(UserWarning, match=r"Cannot check .* same `data_source`.*__repr__") as seen:
        it.set_state(state)
    assert seen[0].filename == __file__
    assert next(it) == 3
    it.set_state(it.get_state())  # The same object is the same.
    with pytest.raises(ValueError, match="another `data_source`"):
        iter(_loader(_AlsoUnnamed())).set_state(state)


@pytest.mark.parametrize("source", [[5, 6, 7], (5, 6, 7), np.array([5, 6, 7])])
def test_lists_and_arrays_are_named_by_their_class(source: Any) -> None:
    it = iter(_loader(source))
    next(it)
    assert _decoded(it)["data_source"] == str(type(source))
    it.set_state(it.get_state())
    assert next(it) == 6


def test_shard_options_of_one_shard_are_the_same_whatever_their_class() -> None:
    options = [NoSharding(), ShardOptions(0, 1), ShardByJaxProcess()]
    for one in options:
        state = _state_after(_loader(sampler=SequentialSampler(10, one)), 2)
        for other in options:
            it = iter(_loader(sampler=SequentialSampler(10, other)))
            it.set_state(state)
            assert next(it) == 2
    it = iter(_loader(sampler=SequentialSampler(10, ShardOptions(0, 2))))
    with pytest.raises(ValueError, match="another `sampler`"):
        it.set_state(state)


def test_a_source_in_shared_memory_is_named_by_its_length() -> None:
    state = _state_after(_loader(SharedMemoryDataSource(range(5))), 2)
    assert json.loads(state)["data_source"] == "SharedMemoryDataSource(len=5)"
    other = iter(_loader(SharedMemoryDataSource(range(5))))
    other.set_state(state)
    assert list(other) == [2, 3, 4]
    with pytest.raises(ValueError, match="another `data_source`"):
        iter(_loader(SharedMemoryDataSource(range(6)), sampler=SequentialSampler(5))).set_state(
            state
        )


def test_grains_state_of_a_source_in_shared_memory_restores() -> None:
    state = json.loads(_state_after(_loader(SharedMemoryDataSource([1, "two", b"3", None])), 2))
    it = iter(_loader(SharedMemoryDataSource([1, "two", b"3", None])))
    # Grain writes all the values, and the name of a block.
    written = "SharedMemoryDataSource([1, 'two', b'3', None], name='psm_21467ab')"
    it.set_state({**state, "data_source": written})
    assert list(it) == [b"3", None]
    with pytest.raises(ValueError, match="another `data_source`"):
        it.set_state({**state, "data_source": "SharedMemoryDataSource([1], name='psm_21467ab')"})
    with pytest.raises(ValueError, match="another `data_source`"):
        it.set_state({**state, "data_source": "SharedMemoryDataSource([nan], name='psm_2')"})


# In another process.

_SCRIPT = """
import sys
import wholegrain as wg

class Source:
    def __len__(self):
        return 10

    def __getitem__(self, index):
        return index * 10

sampler = wg.samplers.IndexSampler(10, shuffle=True, num_epochs=1, seed=3)
it = iter(wg.DataLoader(data_source=Source(), sampler=sampler))
state = sys.stdin.buffer.read()
if state:
    it.set_state(state)
    print(list(it))
else:
    print([next(it) for _ in range(4)], file=sys.stderr)
    sys.stdout.buffer.write(it.get_state())
"""


def test_a_run_goes_on_in_another_process() -> None:
    def run(state: bytes) -> Any:
        return subprocess.run(
            [sys.executable, "-W", "ignore", "-c", _SCRIPT],
            input=state,
            capture_output=True,
            check=True,
        )

    first = run(b"")
    second = run(first.stdout)
    elements = [*json.loads(first.stderr), *json.loads(second.stdout)]
    sampler = IndexSampler(10, shuffle=True, num_epochs=1, seed=3)
    assert elements == [(sampler[i].record_key or 0) * 10 for i in range(10)]


# Files, in the way of Orbax's newer interface.


class _Directory:
    """What Orbax passes to `save`."""

    def __init__(self, path: Path) -> None:
        self._path = path

    async def await_creation(self) -> Path:
        self._path.mkdir()
        return self._path


def test_an_iterator_saves_itself_as_it_was_when_asked(tmp_path: Path) -> None:
    loader = _loader()
    it = iter(loader)
    next(it)

    async def save() -> None:
        write = await it.save(_Directory(tmp_path / "data"))
        next(it)
        await write

    asyncio.run(save())
    text = (tmp_path / "data" / "process_0-of-1.json").read_text()
    assert text.encode() == _state_after(loader, 1)

    async def load() -> None:
        await (await it.load(tmp_path / "data"))

    asyncio.run(load())
    assert next(it) == 1


def test_loading_from_where_nothing_is_says_so(tmp_path: Path) -> None:
    it = iter(_loader())

    async def load() -> None:
        await (await it.load(tmp_path))

    with pytest.raises(ValueError, match=r"process_0-of-1\.json does not exist"):
        asyncio.run(load())
