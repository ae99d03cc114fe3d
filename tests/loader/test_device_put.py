"""Elements moved to a device ahead of the training loop."""

import importlib
import importlib.util
from typing import Any

import numpy as np
import pytest

import wholegrain as wg
from wholegrain.experimental import device_put
from wholegrain.testing import check_iter_dataset

_HAS_JAX = importlib.util.find_spec("jax") is not None


@pytest.mark.skipif(_HAS_JAX, reason="jax is installed")
def test_without_jax_it_says_so() -> None:
    with pytest.raises(ModuleNotFoundError, match="jax"):
        device_put(wg.MapDataset.range(3), None)


needs_jax = pytest.mark.skipif(not _HAS_JAX, reason="jax is not installed")


@needs_jax
@pytest.mark.parametrize("sizes", [(4, 2), (1, 1), (0, 0), (0, 3)])
def test_elements_arrive_as_arrays_on_the_device(sizes: tuple[int, int]) -> None:
    jax: Any = importlib.import_module("jax")
    device = jax.devices()[0]
    source = [{"x": np.full((2, 3), i, np.float32), "y": np.int32(i)} for i in range(7)]
    ds: Any = device_put(
        wg.MapDataset.source(source).to_iter_dataset(),
        device,
        cpu_buffer_size=sizes[0],
        device_buffer_size=sizes[1],
    )
    with iter(ds) as it:
        for number, element in enumerate(it):
            assert isinstance(element["x"], jax.Array)
            assert element["x"].devices() == {device}
            np.testing.assert_array_equal(element["x"], source[number]["x"])
    assert number == 6


@needs_jax
def test_the_state_is_that_of_the_dataset() -> None:
    ds: Any = device_put(wg.MapDataset.range(7).map(np.int32), None)
    with iter(ds) as it:
        assert [int(next(it)), int(next(it))] == [0, 1]
        assert it.get_state() == {"next_index": 2}
        it.set_state({"next_index": 5})
        assert [int(element) for element in it] == [5, 6]
    check_iter_dataset(ds)


@needs_jax
def test_shardings_say_where_the_parts_of_an_element_go() -> None:
    jax: Any = importlib.import_module("jax")
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:1]), axis_names=("data",))
    sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("data"))
    ds: Any = device_put(wg.MapDataset.range(8).batch(4).to_iter_dataset(), sharding)
    batches = list(ds)
    assert [batch.tolist() for batch in batches] == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert batches[0].sharding == sharding


@needs_jax
def test_negative_buffers_are_refused() -> None:
    for sizes in ({"cpu_buffer_size": -1}, {"device_buffer_size": -1}):
        with pytest.raises(ValueError, match="-1"):
            device_put(wg.MapDataset.range(3), None, **sizes)
