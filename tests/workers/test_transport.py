import dataclasses
import gc
import pickle
import threading
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from tests.workers.test_ring import Pair
from wholegrain._workers.transport import Arrived, CannotSendError, Decoder, Encoder


class Point(NamedTuple):
    x: Any
    y: Any


@dataclasses.dataclass
class Example:
    name: str
    values: npt.NDArray[Any]


class Wire:
    """Both ends of the transport in one process, with pickled messages in between."""

    def __init__(self, budget: int = 1 << 30, inline_bytes: int = 1 << 14) -> None:
        self.pair = Pair()
        self.encoder = Encoder(self.pair.arena, inline_bytes)
        self.decoder = Decoder(self.pair.views, budget)

    def encode(self, element: Any) -> bytes:
        """Return what stands for an element in a message, pickled."""
        record, nbytes = self.encoder.encode(element)
        assert nbytes >= 0
        return pickle.dumps(record, 5)

    def receive(self, record: bytes) -> Arrived:
        layouts = list(self.encoder.new_layouts)
        self.encoder.new_layouts.clear()
        [arrived] = self.decoder.receive(layouts, [pickle.loads(record)])
        return arrived

    def send(self, element: Any) -> Any:
        return self.decoder.decode(self.receive(self.encode(element)))


def assert_same(actual: Any, expected: Any) -> None:
    assert type(actual) is type(expected)
    if isinstance(expected, dict):
        assert list(actual) == list(expected)
        assert [type(key) for key in actual] == [type(key) for key in expected]
        for key in expected:
            assert_same(actual[key], expected[key])
    elif isinstance(expected, (list, tuple)):
        assert len(actual) == len(expected)
        for left, right in zip(actual, expected, strict=True):
            assert_same(left, right)
    elif isinstance(expected, np.ndarray):
        assert actual.dtype == expected.dtype
        assert actual.shape == expected.shape
        assert actual.flags.fnc == expected.flags.fnc or expected.dtype.hasobject
        if expected.dtype.hasobject:
            assert actual.tolist() == expected.tolist()
        else:
            assert actual.tobytes() == expected.tobytes()
            assert actual.flags.writeable or not expected.flags.writeable
    else:
        assert actual == expected or actual != actual


def _read_only(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    array = array.copy()
    array.flags.writeable = False
    return array


_dtypes = st.one_of(
    hnp.boolean_dtypes(),
    hnp.integer_dtypes(endianness="?"),
    hnp.floating_dtypes(endianness="?"),
    hnp.complex_number_dtypes(),
    hnp.datetime64_dtypes(endianness="="),
    hnp.timedelta64_dtypes(endianness="="),
    hnp.unicode_string_dtypes(max_len=5),
    hnp.byte_string_dtypes(max_len=5),
    st.just(np.dtype([("a", "<i4"), ("b", "f8", (2,))])),
)
_arrays = hnp.arrays(_dtypes, hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=6))
_arrays = st.builds(
    lambda array, change: change(array),
    _arrays,
    st.sampled_from([np.array, np.asfortranarray, np.transpose, np.flip, _read_only]),
)
_large = st.builds(
    lambda n, d: np.arange(n).astype(d),
    st.integers(2_000, 60_000),
    st.sampled_from(["u1", "f4", "i8", "M8[s]", ">f8"]),
)
_turned = st.builds(
    lambda n, order: np.arange(6 * n, dtype=">i4").reshape(2, n, 3).copy(order),
    st.integers(1, 5_000),
    st.sampled_from(["C", "F"]),
)
_others = st.one_of(
    st.integers(),
    st.text(max_size=5),
    st.none(),
    st.floats(),
    st.sampled_from([0, 3, 5000, 50_000]).map(bytes),
    st.just(np.float32(2.5)),
    st.just(np.array([1, "x", None], dtype=object)),
)
_elements = st.recursive(
    st.one_of(_arrays, _large, _turned, _others),
    lambda children: st.one_of(
        st.dictionaries(st.text(max_size=3), children, max_size=12),
        st.dictionaries(st.one_of(st.integers(0, 1), st.booleans()), children, max_size=2),
        st.lists(children, max_size=12),
        st.tuples(children, children),
        st.builds(Point, children, children),
    ),
    max_leaves=15,
)


@settings(max_examples=50)
@given(st.lists(_elements, min_size=1, max_size=3))
def test_any_element_arrives_as_it_was_sent(elements: list[Any]) -> None:
    wire = Wire()
    received = [wire.send(element) for element in elements]
    for actual, expected in zip(received, elements, strict=True):
        assert_same(actual, expected)
    del received
    gc.collect()
    wire.pair.give_back_released()
    for element in elements:
        assert_same(wire.send(element), element)


@settings(max_examples=50)
@given(_elements)
def test_any_element_arrives_when_nothing_may_be_held(element: Any) -> None:
    wire = Wire(budget=0)
    received = wire.send(element)
    wire.pair.give_back_released()
    assert wire.pair.views.held_bytes == 0
    assert_same(received, element)


def test_arrays_that_are_not_contiguous_arrive() -> None:
    wire = Wire()
    grid = np.arange(1_000_000).reshape(1000, 1000)
    element = {"turned": grid.T, "some": grid[::7, ::3], "small": grid[:3, :4].copy().T}
    received = wire.send(element)
    for key, value in element.items():
        np.testing.assert_array_equal(received[key], value)
    assert [array.flags.fnc for array in received.values()] == [True, False, True]


def test_many_small_arrays_share_one_block() -> None:
    wire = Wire()
    element = {str(n): np.full((n % 5, 3), n, np.float32) for n in range(200)}
    record = wire.receive(wire.encode(element))
    assert len(record[1]) == 1
    assert_same(wire.decoder.decode(record), element)


def test_an_element_is_named_by_a_few_bytes() -> None:
    wire = Wire()
    element = {"image": np.zeros((100, 224, 224), np.uint8), "label": 7}
    wire.encode(element)
    assert len(wire.encode(element)) < 64


def test_arrays_start_at_multiples_of_64_bytes() -> None:
    wire = Wire()
    received = wire.send({"a": np.zeros(30_001, np.uint8), "b": np.zeros(30_001, np.float32)})
    assert all(array.__array_interface__["data"][0] % 64 == 0 for array in received.values())


def test_arrays_inside_other_objects_travel_in_the_slot_too() -> None:
    wire = Wire()
    record = wire.encode(Example("big", np.arange(100_000)))
    assert len(record) < 500
    received = wire.decoder.decode(wire.receive(record))
    assert received.name == "big"
    received.values[0] = 5
    np.testing.assert_array_equal(received.values[1:], np.arange(1, 100_000))
    assert wire.pair.give_back_released() == []
    del received
    assert len(wire.pair.give_back_released()) == 1


def test_a_large_pickle_leaves_its_slot_at_once() -> None:
    wire = Wire()
    received = wire.send(b"x" * 1_000_000)
    assert received == b"x" * 1_000_000
    assert len(wire.pair.give_back_released()) == 1


def test_memory_handed_out_before_is_not_copied() -> None:
    wire = Wire()
    for number in range(3):
        first = wire.encoder.empty((100, 200), np.float32)
        second = wire.encoder.empty((50_000,), np.uint8)
        small = wire.encoder.empty((3,), np.int64)
        first[:], second[:], small[:] = number, number + 1, number + 2
        loose = np.full(9_000, 7.0)
        element = [second, {"first": first, "loose": loose}, small, first]
        address = first.__array_interface__["data"][0]
        record = wire.receive(wire.encode(element))
        assert len(record[1]) == (3 if number == 0 else 2)
        received = wire.decoder.decode(record)
        assert_same(received, [second, {"first": first, "loose": loose}, small, first])
        first[0, 0] = 99
        assert received[1]["first"][0, 0] == 99
        assert received[3][0, 0] == number
        assert address % 64 == 0
        del received, element
        assert len(wire.pair.give_back_released()) == len(record[1])


def test_arrays_arrive_whatever_became_of_the_memory_handed_out() -> None:
    wire = Wire()
    loose = np.arange(40_000)
    for sizes in ([30_000], [30_000, 30_000], [], [3_000_000, 30_000], [30_000]):
        for size in sizes:
            wire.encoder.empty((size,), np.uint8)
        assert_same(wire.send({"loose": loose}), {"loose": loose})
    wire.pair.give_back_released()
    assert wire.pair.views.held_bytes == 0


def test_memory_handed_out_for_nothing_is_used_again() -> None:
    wire = Wire()
    for _ in range(50):
        wire.encoder.empty((1 << 20,), np.uint8)
        wire.encoder.abandon()
    assert wire.pair.segments == 1


def test_what_cannot_be_pickled_is_named() -> None:
    wire = Wire()
    element = {"a": [1, threading.Lock()], "b": np.zeros(100_000)}
    with pytest.raises(CannotSendError, match=r"element\['a'\]\[1\] is a _thread\.lock"):
        wire.encode(element)
    assert_same(wire.send([1]), [1])


def test_shapes_that_never_come_again_do_not_pile_up() -> None:
    wire = Wire()
    for length in range(3000):
        np.testing.assert_array_equal(wire.send(np.arange(length)), np.arange(length))
    assert len(wire.encoder._packings) <= 1024
    assert len(wire.decoder._layouts) <= 2048


def test_elements_may_be_decoded_long_after_they_arrived() -> None:
    wire = Wire()
    elements = [np.arange(length) for length in range(5000)]
    arrived = [wire.receive(wire.encode(element)) for element in elements]
    for record, element in zip(arrived, elements, strict=True):
        np.testing.assert_array_equal(wire.decoder.decode(record), element)


_TAGGED = np.dtype("i4", metadata={"unit": "m"})


@pytest.mark.parametrize("size", [3, 30_000], ids=["in the message", "in a slot"])
@pytest.mark.parametrize("count", [1, 9])
@pytest.mark.parametrize(
    "dtypes",
    [
        (np.dtype("i4"), _TAGGED, np.dtype("i4", metadata={"unit": "km"}), np.dtype("i4")),
        (np.dtype([("x", "i4")]), np.dtype([("x", _TAGGED)]), np.dtype([("x", "i4")])),
    ],
    ids=["plain", "structured"],
)
def test_metadata_of_a_dtype_stays_with_its_array(dtypes: Any, count: int, size: int) -> None:
    def metadata(dtype: Any) -> list[Any]:
        fields = [field[0].metadata for field in (dtype.fields or {}).values()]
        return [dtype.metadata, *fields]

    wire = Wire()
    for dtype in (*dtypes, *reversed(dtypes)):
        element = {str(number): np.zeros(size, dtype) for number in range(count)}
        for array in wire.send(element).values():
            assert metadata(array.dtype) == metadata(dtype)
