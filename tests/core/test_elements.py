"""What messages say about elements, and how large elements are taken to be."""

import dataclasses
from typing import Any

import numpy as np
import pytest

from wholegrain._core.elements import describe, nbytes


@dataclasses.dataclass
class Sample:
    x: Any
    y: int


@pytest.mark.parametrize(
    ("element", "expected"),
    [
        (3, "int[]"),
        (2.5, "float[]"),
        ("abc", "str[]"),
        (None, "NoneType[]"),
        (np.zeros((2, 3), np.float32), "float32[2, 3]"),
        (np.int8(3), "int8[]"),
        ({"a": np.zeros(2), "b": "s"}, {"a": "float64[2]", "b": "str[]"}),
        ([1, 2, 3], "list<int>[3]"),
        ((1, 2), "tuple<int>[2]"),
        ([], "list<>[0]"),
        ([1, "a"], ["int[]", "str[]"]),
        ((1, np.zeros(2)), ("int[]", "float64[2]")),
        (Sample(np.zeros(2), 3), "Sample\n{'x': 'float64[2]', 'y': 'int[]'}[]"),
    ],
    ids=str,
)
def test_elements_are_described_by_type_and_shape(element: Any, expected: Any) -> None:
    assert describe(element) == expected


def test_ragged_lists_are_described() -> None:
    assert "list" in str(describe([[1, 2], [3]]))


def test_the_size_counts_arrays_and_strings() -> None:
    assert nbytes(np.zeros(10)) == 80
    assert nbytes({"a": np.zeros(10, np.uint8), "b": "abc", "c": [b"12", bytearray(4)]}) == 19
    assert nbytes([1, 2.0, object()]) == 96
    assert nbytes([]) == 0


def test_the_fields_of_objects_count() -> None:
    @dataclasses.dataclass
    class Example:
        image: Any
        label: int

    assert nbytes(Example(np.zeros(10), 3)) == 32 + 80 + 32
    assert nbytes([Example({"a": np.zeros(10)}, 3)]) == 32 + 80 + 32
    # What is further inside may be computed when it is asked for.
    assert nbytes(Example(Example(np.zeros(10), 3), 3)) == 32 + 32 + 32


def test_arrays_that_do_not_know_their_size_are_taken_as_small() -> None:
    class Sparse:
        @property
        def nbytes(self) -> int:
            raise NotImplementedError("not for this layout")

    class Strange:
        nbytes = "many"

    assert nbytes([Sparse(), Strange()]) == 64
