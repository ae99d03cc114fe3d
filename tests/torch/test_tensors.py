"""Elements as tensors: what shares memory, what is copied, and what is left alone."""

import dataclasses
import itertools
from collections import OrderedDict, UserDict, defaultdict
from typing import Any, NamedTuple

import numpy as np
import pytest

import wholegrain as wg

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

import wholegrain.torch  # noqa: E402

to_tensors = wholegrain.torch.to_tensors

_TYPES = "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64 complex64"


@pytest.mark.parametrize("dtype", _TYPES.split())
def test_a_tensor_shares_the_memory_of_its_array(dtype: str) -> None:
    array = np.ones((2, 3), dtype)
    tensor = to_tensors(array)
    assert tensor.data_ptr() == array.ctypes.data
    assert str(tensor.dtype) == f"torch.{dtype}"
    array[0, 0] = 0
    assert not tensor[0, 0]


def test_arrays_that_cannot_be_shared_are_copied() -> None:
    frozen = np.arange(3)
    frozen.flags.writeable = False
    tensor = to_tensors(frozen)  # Without torch's warning: here warnings are errors.
    tensor[0] = 7
    assert frozen[0] == 0
    assert to_tensors(np.arange(4)[::-1]).tolist() == [3, 2, 1, 0]
    assert to_tensors(np.arange(3, dtype=">i4")).tolist() == [0, 1, 2]
    assert to_tensors(np.broadcast_to(np.float32(2), (2,))).tolist() == [2, 2]


def test_bfloat16_keeps_its_bits() -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes", reason="ml_dtypes is not installed")
    array = np.array([1.5, -2.0], ml_dtypes.bfloat16)
    tensor = to_tensors(array)
    assert tensor.dtype == torch.bfloat16
    assert tensor.tolist() == [1.5, -2.0]
    assert tensor.data_ptr() == array.ctypes.data


@pytest.mark.parametrize(
    "leaf",
    [
        "text",
        b"bytes",
        3,
        2.5,
        None,
        True,
        object(),
        np.str_("scalar"),
        np.array(["a", "b"]),
        np.array([None, {}], object),
        np.array(["2026-01-01"], "datetime64[D]"),
        np.zeros(2, [("x", int)]),
        np.zeros(2, np.longdouble),
    ],
)
def test_what_is_no_number_is_left_alone(leaf: Any) -> None:
    assert to_tensors({"leaf": leaf})["leaf"] is leaf


def test_numpy_scalars_become_tensors() -> None:
    tensor = to_tensors(np.float32(1.5))
    assert (tensor.shape, tensor.dtype, tensor.item()) == ((), torch.float32, 1.5)
    assert to_tensors(np.array(3)).item() == 3


class Pair(NamedTuple):
    first: Any
    second: Any


@dataclasses.dataclass(frozen=True)
class Example:
    image: Any
    name: str
    nested: Any = None


class Both(UserDict[str, Any]):
    pass


@pytest.mark.parametrize(
    ("make", "get"),
    [
        (lambda x: {"b": x, "a": 1}, lambda e: e["b"]),
        (lambda x: [x, "s"], lambda e: e[0]),
        (lambda x: (x,), lambda e: e[0]),
        (lambda x: Pair("s", x), lambda e: e.second),
        (lambda x: OrderedDict(b=x), lambda e: e["b"]),
        (lambda x: defaultdict(list, b=x), lambda e: e["b"]),
        (lambda x: Both(b=x), lambda e: e["b"]),
        (lambda x: Example(x, "n"), lambda e: e.image),
        (lambda x: Example("s", "n", {"deep": [x]}), lambda e: e.nested["deep"][0]),
    ],
    ids=["dict", "list", "tuple", "named", "ordered", "default", "user", "dataclass", "nested"],
)
def test_structures_keep_their_types(make: Any, get: Any) -> None:
    array = np.arange(3)
    before = make(array)
    after = to_tensors(before)
    assert type(after) is type(before)
    assert torch.equal(get(after), torch.arange(3))
    assert get(before) is array  # The element itself is not changed.
    assert list(to_tensors({"b": 1, "a": 2})) == ["b", "a"]


def test_tensors_keep_the_shared_memory_of_workers() -> None:
    def image(number: int) -> Any:
        return {"image": np.full((64, 1024), number, np.float32), "name": f"image {number}"}

    ds = wg.MapDataset.range(120).map(image).to_iter_dataset()
    ds = ds.mp_prefetch(wg.MultiprocessingOptions(num_workers=1))
    kept: list[Any] = []
    shared = 0
    for number, batch in enumerate(wholegrain.torch.loader(ds)):
        assert batch["name"] == f"image {number}"
        shared += batch["image"].numpy().base is not None
        kept.append(batch["image"][2:4, 5])
        del batch
        if len(kept) > 20:
            del kept[:5]
        for before, after in itertools.pairwise(kept):
            assert (after == before + 1).all()
    assert shared == 120


@pytest.mark.parametrize("device", ["cpu", "meta", torch.device("meta"), None])
@pytest.mark.parametrize("prefetch", [0, 1, 5])
def test_batches_are_copied_to_a_device(device: Any, prefetch: int) -> None:
    def element(number: int) -> Any:
        return {"x": np.full(3, number), "nested": [np.float32(number)], "name": str(number)}

    ds = wg.MapDataset.range(20).map(element)
    loader = wholegrain.torch.loader(ds, device=device, prefetch=prefetch)
    for number, batch in enumerate(loader):
        assert batch["x"].device.type == torch.device(device or "cpu").type
        assert batch["nested"][0].device == batch["x"].device
        assert batch["name"] == str(number)
        assert loader.state_dict()["epoch"] * 20 + loader.state_dict()["batch"] == number + 1
    assert number == 19


def test_a_device_that_does_not_exist_is_an_error() -> None:
    with pytest.raises(RuntimeError, match="nothing"):
        wholegrain.torch.loader(wg.MapDataset.range(3), device="nothing")


@pytest.mark.skipif(torch.accelerator.is_available(), reason="there is an accelerator")
def test_pinning_without_an_accelerator_warns_and_changes_nothing() -> None:
    with pytest.warns(UserWarning, match="no accelerator"):
        loader = wholegrain.torch.loader(wg.MapDataset.range(4).batch(2), pin_memory=True)
    assert [batch.tolist() for batch in loader] == [[0, 1], [2, 3]]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
def test_batches_arrive_on_the_gpu() -> None:
    ds = wg.MapDataset.range(50).map(lambda n: {"x": np.full(1000, n, np.float32)})
    for number, batch in enumerate(wholegrain.torch.loader(ds, device="cuda")):
        assert batch["x"].device.type == "cuda"
        assert (batch["x"] == number).all()
