"""Trees: which containers there are, in what order leaves come, and what does not fit together."""

import types
from collections import OrderedDict, defaultdict
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import pytest

from wholegrain._core import tree


class Point(NamedTuple):
    x: Any
    y: Any


class Names(list[Any]):
    """A list of the user's."""


@pytest.fixture(params=[False, True], ids=["plain", "jax"])
def jax(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether the rules of jax hold."""
    monkeypatch.setattr(tree, "follows_jax", lambda: request.param)
    return bool(request.param)


@pytest.mark.usefixtures("jax")
@pytest.mark.parametrize(
    "element",
    [
        3,
        "text",
        b"bytes",
        np.zeros(2),
        {"a": 1, "b": [2, (3, 4)]},
        [1, [2], []],
        (1, (2,), ()),
        {},
        Point(1, {"a": 2}),
        OrderedDict(b=1, a=2),
        {1: 2, "a": 3},
        {3, 4},
    ],
    ids=str,
)
def test_structure_stays(element: Any) -> None:
    same = tree.map_leaves(lambda leaf: leaf, element)
    assert type(same) is type(element)
    assert str(same) == str(element)


@pytest.mark.usefixtures("jax")
def test_leaves_come_in_order() -> None:
    assert tree.leaves({"a": 1, "b": [2, (3, Point(4, 5))]}) == [1, 2, 3, 4, 5]
    assert tree.leaves("abc") == ["abc"]
    assert tree.leaves([]) == []


def test_keys_are_sorted_where_jax_is(jax: bool) -> None:
    element = {"b": 1, "a": {"d": 2, "c": 3}}
    assert tree.leaves(element) == ([3, 2, 1] if jax else [1, 2, 3])
    assert list(tree.map_leaves(str, element)) == (["a", "b"] if jax else ["b", "a"])
    assert tree.leaves(OrderedDict(b=1, a=2)) == [1, 2]
    assert tree.leaves({1: "x", "a": "y"}) == ["x", "y"]  # Cannot be sorted.


def test_none_is_empty_where_jax_is(jax: bool) -> None:
    assert tree.leaves([1, None, 2]) == ([1, 2] if jax else [1, None, 2])
    assert tree.map_leaves(lambda leaf: 0, {"a": None}) == {"a": None if jax else 0}
    if jax:
        with pytest.raises(tree.StructureMismatchError, match="None"):
            tree.zip_leaves(list, [None, 3])


def test_other_mappings_and_subclasses_are_leaves_where_jax_is(jax: bool) -> None:
    proxy: Mapping[str, int] = types.MappingProxyType({"a": 1, "b": 2})
    assert tree.leaves(proxy) == ([proxy] if jax else [1, 2])
    assert tree.leaves(Names([1, 2])) == ([Names([1, 2])] if jax else [1, 2])
    found = tree.map_leaves(str, proxy)
    assert found == (str(proxy) if jax else {"a": "1", "b": "2"})
    if not jax:
        assert type(tree.map_leaves(str, Names([1]))) is Names


@pytest.mark.usefixtures("jax")
def test_default_dicts_keep_their_default() -> None:
    found = tree.map_leaves(str, defaultdict(list, {"a": 1}))
    assert type(found) is defaultdict
    assert found.default_factory is list
    assert found == {"a": "1"}


@pytest.mark.usefixtures("jax")
def test_several_trees_are_walked_together() -> None:
    one, two = {"a": 1, "b": (2, [3])}, {"b": (5, [6]), "a": 4}
    assert tree.zip_leaves(list, [one, two]) == {"a": [1, 4], "b": ([2, 5], [[3, 6]])}
    assert tree.map_leaves(lambda x, y: x + y, one, two) == {"a": 5, "b": (7, [9])}


@pytest.mark.usefixtures("jax")
@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"a": 1}, {"b": 1}),
        ({"a": 1}, {"a": 1, "b": 2}),
        ({"a": 1}, 3),
        ({"a": 1}, [1]),
        ([1, 2], [1]),
        ([1], 1),
        ((1, 2), (1, 2, 3)),
        (Point(1, 2), 3),
        ({"a": [1, 2]}, {"a": [1]}),
    ],
)
def test_what_does_not_fit_together_is_refused(one: Any, other: Any) -> None:
    with pytest.raises(tree.StructureMismatchError) as raised:
        tree.zip_leaves(list, [one, other])
    assert isinstance(raised.value, ValueError)
    assert "where another has" in str(raised.value)


@pytest.mark.parametrize(
    ("one", "other", "said"),
    [
        ({"a": 1}, 3, "One element has a dict where another has an int."),
        ([1], 1, "One element has a list of length 1 where another has an int."),
        ([1], np.ones(2), "One element has a list of length 1 where another has an ndarray."),
    ],
)
def test_the_message_is_in_plain_english(one: Any, other: Any, said: str) -> None:
    with pytest.raises(tree.StructureMismatchError, match=said):
        tree.zip_leaves(list, [one, other])


def test_a_list_beside_a_tuple_is_refused_where_jax_is(jax: bool) -> None:
    if jax:
        with pytest.raises(tree.StructureMismatchError):
            tree.zip_leaves(list, [[1], (2,)])
    else:
        assert tree.zip_leaves(list, [[1], (2,)]) == [[1, 2]]


def test_classes_registered_with_jax_are_containers(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a stand-in for jax, which is not installed where these tests run."""

    class Box:
        def __init__(self, content: Any) -> None:
            self.content = content

    def tree_map(function: Any, first: Any, *rest: Any) -> Any:
        if any(not isinstance(box, Box) for box in rest):
            raise ValueError("not a Box")
        return Box(function(first.content, *(box.content for box in rest)))

    tree_util = types.SimpleNamespace(
        all_leaves=lambda values: not any(isinstance(value, Box) for value in values),
        tree_map=tree_map,
    )
    monkeypatch.setattr(tree, "follows_jax", lambda: True)
    monkeypatch.setitem(
        __import__("sys").modules, "jax", types.SimpleNamespace(tree_util=tree_util)
    )
    boxes = [{"box": Box(1)}, {"box": Box(2)}]
    assert tree.zip_leaves(sum, boxes)["box"].content == 3
    assert tree.leaves([Box(1), 2]) == [1, 2]
    with pytest.raises(tree.StructureMismatchError, match="not a Box"):
        tree.zip_leaves(sum, [Box(1), 3])


def test_jax_is_looked_for_and_not_imported() -> None:
    assert isinstance(tree.follows_jax(), bool)
