"""Arrays in named shared memory."""

import contextlib
import copy
import gc
import multiprocessing
import pickle
from collections.abc import Iterator
from multiprocessing import shared_memory
from typing import Any

import numpy as np
import pytest

from wholegrain.multiprocessing import SharedMemoryArray, SharedMemoryArrayMetadata


@pytest.fixture
def array() -> Iterator[Any]:
    """Four sevens, whose block is removed after the test."""
    array = SharedMemoryArray((4,), np.int64)
    array[:] = 7
    metadata = array.metadata
    yield array
    del array
    with contextlib.suppress(FileNotFoundError):
        metadata.close_and_unlink_shm()


def _exists(metadata: SharedMemoryArrayMetadata) -> bool:
    try:
        SharedMemoryArray.from_metadata(metadata)
    except FileNotFoundError:
        return False
    return True


# Making and opening.


@pytest.mark.parametrize("dtype", [float, np.int8, "<U3", "S2", "M8[s]", bool, np.float16])
def test_a_new_array_is_of_zeros(dtype: Any) -> None:
    array = SharedMemoryArray([2, 3], dtype)
    array.unlink_on_del()
    assert isinstance(array, np.ndarray)
    assert (array.shape, array.dtype) == ((2, 3), np.dtype(dtype))
    assert array.tobytes() == bytes(array.nbytes)
    assert array.flags.writeable


def test_the_dtype_is_float_by_default() -> None:
    array = SharedMemoryArray(())
    array.unlink_on_del()
    assert (array.shape, array.dtype) == ((), np.float64)


def test_what_cannot_be_shared_is_refused() -> None:
    with pytest.raises(ValueError, match="without bytes"):
        SharedMemoryArray((0, 3))
    with pytest.raises(ValueError, match="Python objects"):
        SharedMemoryArray((2,), object)
    with pytest.raises(TypeError):
        SharedMemoryArray(3)  # type: ignore[arg-type]


def test_another_array_of_the_same_block_sees_what_is_written(array: Any) -> None:
    other = SharedMemoryArray.from_metadata(array.metadata)
    other[0] = 99
    assert array[0] == 99
    third = SharedMemoryArray.from_shared_memory(array.shm, (2, 2), np.int64)
    assert third.tolist() == [[99, 7], [7, 7]]


def test_the_metadata_is_a_value(array: Any) -> None:
    metadata = array.metadata
    assert metadata == SharedMemoryArrayMetadata(array.shm.name, (4,), np.dtype(np.int64))
    assert hash(metadata) == hash(copy.deepcopy(metadata))
    assert pickle.loads(pickle.dumps(metadata)) == metadata


# Pickling.


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_pickling_sends_the_name_and_not_the_data(protocol: int) -> None:
    array = SharedMemoryArray((100_000,))
    array.unlink_on_del()
    pickled = pickle.dumps(array, protocol)
    assert len(pickled) < 1000
    pickle.loads(pickled)[5] = 1.5
    assert array[5] == 1.5


def test_a_copy_is_pickled_with_its_data(array: Any) -> None:
    for part in (array.copy(), array[1:], array[::2], array[[0, 1]]):
        received = pickle.loads(pickle.dumps(part))
        np.testing.assert_array_equal(received, part)
        received[0] = 0
        assert part[0] == 7
        with pytest.raises(ValueError, match="not a copy or a part"):
            _ = part.metadata


def test_the_beginning_of_a_block_is_opened_as_what_it_is(array: Any) -> None:
    array[:] = range(4)
    for view in (array[:2], array.reshape(2, 2), array.view(np.int32)):
        np.testing.assert_array_equal(SharedMemoryArray.from_metadata(view.metadata), view)


def _double(array: Any) -> None:
    array *= 2


def test_another_process_writes_into_the_same_memory(array: Any) -> None:
    process = multiprocessing.get_context("spawn").Process(target=_double, args=(array,))
    process.start()
    process.join()
    assert process.exitcode == 0
    assert array.tolist() == [14, 14, 14, 14]


# Computing.


def test_results_are_ordinary_arrays_and_numbers(array: Any) -> None:
    for result in (array + 1, np.sin(array), array > 1, array.reshape(2, 2).sum(axis=0)):
        assert type(result) is np.ndarray
    assert type(array.sum()) is np.int64
    assert type(array.mean()) is np.float64
    assert type(np.stack([array, array])) is np.ndarray


def test_writing_into_the_array_keeps_it_shared(array: Any) -> None:
    before = array
    array += 1
    assert array is before
    assert np.add(array, 1, out=array) is before
    assert SharedMemoryArray.from_metadata(before.metadata).tolist() == [9, 9, 9, 9]


def test_views_have_the_block_and_copies_have_none(array: Any) -> None:
    for view in (array[1:], array.reshape(2, 2), array.T):
        assert view.shm is array.shm
    for copied in (array.copy(), array[[0, 1]], array.astype(np.int8)):
        assert copied.shm is None


# Removing.


def test_the_block_stays_until_it_is_removed() -> None:
    array = SharedMemoryArray((4,))
    metadata = array.metadata
    del array
    gc.collect()
    assert _exists(metadata)
    metadata.close_and_unlink_shm()
    assert not _exists(metadata)
    with pytest.raises(FileNotFoundError):
        metadata.close_and_unlink_shm()


def test_the_block_goes_with_the_array_that_is_to_remove_it() -> None:
    array = SharedMemoryArray((4,))
    other = SharedMemoryArray.from_metadata(array.metadata)
    array.unlink_on_del()
    metadata = array.metadata
    view = array[1:]
    del array
    gc.collect()
    assert _exists(metadata)  # A view still looks at it.
    view[:] = 5
    del view
    gc.collect()
    assert not _exists(metadata)
    assert other[1] == 5  # Mapped memory outlives its name.


def test_an_array_whose_block_is_gone_already_is_dropped_quietly() -> None:
    array = SharedMemoryArray((4,))
    array.unlink_on_del()
    array.metadata.close_and_unlink_shm()
    del array
    gc.collect()


def test_blocks_can_be_removed_in_the_background(monkeypatch: pytest.MonkeyPatch) -> None:
    class Removed(SharedMemoryArray):
        """A class of its own, so that others go on removing at once."""

    Removed.enable_async_del(num_threads=2, max_outstanding_requests=3)
    Removed.enable_async_del()  # Once is enough.
    names = []
    for _ in range(20):
        array = Removed((8,))
        array.unlink_on_del()
        names.append(array.metadata)
        del array
    pool = Removed._deleter
    assert pool is not None
    pool.shutdown(wait=True)
    assert not any(_exists(metadata) for metadata in names)

    # Later ones are removed by the thread that drops them.
    array = Removed((8,))
    array.unlink_on_del()
    metadata = array.metadata
    del array
    assert not _exists(metadata)


def test_a_block_can_be_closed_by_the_caller() -> None:
    block = shared_memory.SharedMemory(create=True, size=8)
    name = block.name
    SharedMemoryArray.close_shm_async(block, unlink=True)
    with pytest.raises(FileNotFoundError):
        shared_memory.SharedMemory(name=name)
