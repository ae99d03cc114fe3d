"""Stacking has quick ways for plain numbers and equal arrays: all equal `np.stack`."""

from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wholegrain._core import tree
from wholegrain._core.stack import stack
from wholegrain.testing import difference

_EXAMPLES = settings().max_examples

_SCALARS: dict[str, st.SearchStrategy[Any]] = {
    "int": st.integers(-(2**63), 2**63 - 1),
    "small int": st.integers(-3, 3),
    "huge int": st.integers(-(2**70), 2**70),
    "unsigned": st.integers(2**63, 2**64 - 1),
    "float": st.floats(),
    "bool": st.booleans(),
    "str": st.text(max_size=4),
    "bytes": st.binary(max_size=4),
    "complex": st.complex_numbers(),
    "numpy int": st.builds(np.int16, st.integers(-9, 9)),
    "numpy long": st.builds(np.int64, st.integers(-(2**63), 2**63 - 1)),
    "numpy unsigned": st.builds(np.uint64, st.integers(0, 2**64 - 1)),
    "numpy half": st.builds(np.float16, st.floats(width=16)),
    "numpy float": st.builds(np.float32, st.floats(width=32)),
    "numpy bool": st.builds(np.bool_, st.booleans()),
    "date": st.builds(np.datetime64, st.integers(0, 99), st.just("D")),
}
_DTYPES = [
    *("bool", "int8", "uint8", "int16", "int32", "int64", "uint64", "float16", "float32"),
    *("float64", "complex64", "complex128", "<U3", "S3", ">i4", "<M8[s]", "object"),
]
_SHAPES = st.sampled_from([(), (1,), (3,), (0,), (2, 3), (2, 0), (0, 2), (1, 1, 1)])


def _array(dtype: str, shape: tuple[int, ...], start: int, layout: str) -> np.ndarray[Any, Any]:
    numbers = np.arange(start, start + int(np.prod(shape))).reshape(shape)
    array = numbers.astype(dtype)
    if layout == "fortran" and array.ndim:
        return np.asfortranarray(array)
    if layout == "view" and array.ndim:
        return np.repeat(array, 2, axis=0)[::2]
    return array


@st.composite
def _arrays(draw: Any, count: int, mixed: bool) -> list[Any]:
    shape = draw(_SHAPES)
    dtype = draw(st.sampled_from(_DTYPES))
    arrays = []
    for place in range(count):
        if mixed:
            dtype = draw(st.sampled_from(["bool", "int8", "int64", "uint64", "float32", "f8"]))
        layout = draw(st.sampled_from(["plain", "fortran", "view"]))
        arrays.append(_array(dtype, shape, draw(st.integers(0, 50)) + place, layout))
    return arrays


@st.composite
def _leaves(draw: Any, count: int) -> list[Any]:
    kind = draw(st.sampled_from(["scalars", "mixed scalars", "arrays", "mixed arrays"]))
    if kind == "scalars":
        strategy = _SCALARS[draw(st.sampled_from(sorted(_SCALARS)))]
        return draw(st.lists(strategy, min_size=count, max_size=count))  # type: ignore[no-any-return]
    if kind == "mixed scalars":
        numbers = [_SCALARS[name] for name in ("small int", "float", "bool", "numpy int")]
        return draw(st.lists(st.one_of(numbers), min_size=count, max_size=count))  # type: ignore[no-any-return]
    return draw(_arrays(count, kind == "mixed arrays"))  # type: ignore[no-any-return]


def _plain(leaves: list[Any]) -> np.ndarray[Any, Any]:
    return np.stack(leaves) if len(leaves) > 1 else np.expand_dims(leaves[0], 0)


@settings(max_examples=2 * _EXAMPLES)
@given(data=st.data(), count=st.integers(1, 6))
def test_leaves_are_stacked_as_by_numpy(data: st.DataObject, count: int) -> None:
    leaves = data.draw(_leaves(count))
    found = stack(leaves)
    assert difference(_plain(leaves), found) is None
    assert type(found) is np.ndarray


@settings(max_examples=_EXAMPLES)
@given(data=st.data(), count=st.integers(1, 6))
def test_memory_of_the_callers_changes_nothing(data: st.DataObject, count: int) -> None:
    leaves = data.draw(_leaves(count))
    given_out: list[Any] = []

    def empty(shape: tuple[int, ...], dtype: Any) -> Any:
        given_out.append(np.empty(shape, dtype))
        return given_out[-1]

    found = stack(leaves, empty)
    assert difference(_plain(leaves), found) is None
    assert all(found is memory for memory in given_out)


class Pair(NamedTuple):
    x: Any
    y: Any


def _trees(leaves: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Functions that put the leaves of one element into a tree."""
    return st.recursive(
        leaves.map(lambda _: "leaf"),
        lambda inner: st.one_of(
            st.dictionaries(st.sampled_from("abcd"), inner, min_size=1, max_size=3),
            st.lists(inner, min_size=1, max_size=3),
            st.tuples(inner, inner),
            st.builds(Pair, inner, inner),
        ),
        max_leaves=6,
    )


def _fill(shape: Any, columns: Any, place: int) -> Any:
    """Return the tree with the leaf of one element at each place."""
    if isinstance(shape, str):
        return next(columns)[place]
    if isinstance(shape, dict):
        return {key: _fill(value, columns, place) for key, value in shape.items()}
    if isinstance(shape, Pair):
        return Pair(*(_fill(value, columns, place) for value in shape))
    return type(shape)(_fill(value, columns, place) for value in shape)


@pytest.mark.parametrize("jax", [False, True])
@settings(max_examples=_EXAMPLES // 2)
@given(data=st.data(), count=st.integers(1, 4))
def test_trees_are_stacked_leaf_by_leaf(jax: bool, data: st.DataObject, count: int) -> None:
    shape = data.draw(_trees(st.just("leaf")))
    num_leaves = repr(shape).count("'leaf'")
    columns = [data.draw(_leaves(count)) for _ in range(num_leaves)]
    elements = [_fill(shape, iter(columns), place) for place in range(count)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tree, "follows_jax", lambda: jax)
        found = stack(elements)
        found_leaves = tree.leaves(found)
        expected = [_plain([_leaf(e, n) for e in elements]) for n in range(num_leaves)]
        assert _structure(found) == _structure(elements[0])
    assert difference(expected, found_leaves) is None


def _leaf(element: Any, number: int) -> Any:
    return tree.leaves(element)[number]


def _structure(element: Any) -> Any:
    return repr(tree.map_leaves(lambda _: "leaf", element))


@pytest.mark.parametrize(
    "elements",
    [
        [np.zeros(2), np.zeros(4), np.zeros(3)],  # As many numbers as three of three.
        [np.zeros((2, 3)), np.zeros((3, 2))],
        [np.zeros((2, 1)), np.zeros(2)],
        [np.zeros(2), np.zeros(())],
        [{"a": 1, "b": 2}, {"a": 1, "c": 2}],
        [{"a": 1}, {"a": 1, "b": 2}],
        [{"a": 1}, [1]],
        [(1, 2), (1, 2, 3)],
        [{"a": (1, 2)}, {"a": (1,)}],
    ],
)
def test_what_does_not_belong_together_is_refused(elements: list[Any]) -> None:
    with pytest.raises(ValueError, match="Cannot batch"):
        stack(elements)
