"""A batch that grows has the content, and the errors, of one that is stacked at once."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wholegrain._core import stack as stack_module
from wholegrain._core.stack import GrowingBatch, has_large_arrays, stack
from wholegrain.testing import difference


@pytest.fixture(autouse=True, scope="module")
def _everything_is_large() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stack_module, "_LARGE_BYTES", 1)
        yield


def _grown(elements: list[Any], size: int) -> Any:
    batch = GrowingBatch(size, np.empty)
    for element in elements:
        batch.add(element)
    return batch.finish()


def _result(function: Any, *args: Any) -> Any:
    try:
        return function(*args)
    except ValueError as error:
        return str(error)


_SHAPES = st.sampled_from([(), (2,), (2, 3), (0,)])
_DTYPES = st.sampled_from(["u1", "i4", "f4", "f8", ">f4", "U3", "O"])


@st.composite
def _elements(draw: st.DrawFn) -> list[Any]:
    """Return elements that mostly go together."""
    shape, dtype, odd = draw(_SHAPES), draw(_DTYPES), draw(st.integers(0, 9))

    def array(number: int) -> Any:
        given_shape = draw(_SHAPES) if odd == 1 else shape
        given_dtype = draw(_DTYPES) if odd == 2 else dtype
        return np.full(given_shape, number).astype(given_dtype)

    def element(number: int) -> Any:
        tree: dict[str, Any] = {"b": array(number), "a": (array(-number), [number, "text"])}
        if odd == 3 and draw(st.booleans()):
            tree["c"] = array(number)
        if odd == 4 and draw(st.booleans()):
            tree["a"] = (number, [number, "text"])
        return tree

    return [element(number) for number in range(draw(st.integers(1, 5)))]


@given(_elements(), st.integers(0, 2))
def test_is_what_stack_returns(elements: list[Any], missing: int) -> None:
    expected = _result(stack, elements, np.empty)
    grown = _result(_grown, elements, len(elements) + missing)
    if isinstance(expected, str):
        assert grown == expected
    else:
        assert difference(grown, expected) is None


def test_large_arrays_are_in_the_memory_that_was_given() -> None:
    given_out = []

    def empty(shape: tuple[int, ...], dtype: Any) -> Any:
        given_out.append(np.empty(shape, dtype))
        return given_out[-1]

    batch = GrowingBatch(2, empty)
    for number in range(2):
        batch.add({"image": np.full((4, 4), number), "label": number})
    assert len(batch) == 2
    made = batch.finish()
    assert made["image"] is given_out[0]
    np.testing.assert_array_equal(made["label"], [0, 1])


def test_small_elements_are_not_worth_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stack_module, "_LARGE_BYTES", 1 << 15)
    assert has_large_arrays({"x": [1, np.zeros(100_000)]})
    assert not has_large_arrays({"x": [1, np.zeros(100), "text" * 100_000]})
