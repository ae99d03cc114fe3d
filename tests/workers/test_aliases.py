"""Other libraries that hold on to the memory of an element keep it from being used again."""

import itertools
from typing import Any

import numpy as np
import pytest

from tests.workers.iterators import remote


def images(number: int) -> Any:
    return {"image": np.full((64, 1024), number, np.float32), "label": np.full(16, number)}


def test_jax_arrays_hold_the_memory_that_they_alias() -> None:
    jax = pytest.importorskip("jax")
    kept = []
    aliased = 0
    for element in remote(300, images):
        address = element["image"].__array_interface__["data"][0]
        assert address % 64 == 0
        array = jax.device_put(element["image"])
        aliased += array.unsafe_buffer_pointer() == address
        # Not waited for: what jax reads later must still be there.
        kept.append((array[2:4], jax.numpy.sum(array), array))
        del element
        if len(kept) > 20:
            del kept[0]
        for number, (rows, total, whole) in enumerate(kept, start=int(kept[0][1]) // (64 * 1024)):
            assert int(total) == number * 64 * 1024
            assert float(rows.min()) == float(rows.max()) == number
            assert float(whole[5, 5]) == number
    assert aliased  # Else this test shows nothing.


def test_torch_tensors_hold_the_memory_that_they_alias() -> None:
    torch = pytest.importorskip("torch")
    kept = []
    for element in remote(200, images):
        tensor = torch.from_numpy(element["image"])
        tensor += 1
        kept.append(tensor[2:4, 5])
        del element, tensor
        if len(kept) > 20:
            del kept[:5]
        for before, after in itertools.pairwise(kept):
            assert (after == before + 1).all()


def test_workers_start_beside_a_jax_that_is_in_use() -> None:
    jax = pytest.importorskip("jax")
    # jax has threads now, and warns of every fork of this process: here a warning is an error.
    assert float(jax.jit(lambda x: (x @ x).sum())(jax.numpy.ones((64, 64)))) == 64**3
    for number, element in enumerate(remote(20, images)):
        assert float(jax.numpy.max(element["image"])) == number


def test_workers_see_no_device_but_the_processor() -> None:
    pytest.importorskip("jax")

    def platforms(number: int) -> Any:
        import jax

        return {device.platform for device in jax.devices()}

    assert list(remote(1, platforms)) == [{"cpu"}]
