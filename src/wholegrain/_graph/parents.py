"""The same dataset over other parents."""

from typing import Any


def replace_parents(dataset: Any, old: tuple[Any, ...], new: tuple[Any, ...]) -> None:
    """Give a copy of a dataset other parents, wherever it keeps them.

    A class of the user's may know its parent by a name of its own. If that went on to name the
    old one, every worker would read all of the data.
    """
    dataset._parents = new
    others = {id(before): after for before, after in zip(old, new, strict=True)}
    for name, value in vars(dataset).items():
        if id(value) in others:
            setattr(dataset, name, others[id(value)])
        elif type(value) in (list, tuple) and any(id(item) in others for item in value):
            setattr(dataset, name, type(value)(others.get(id(item), item) for item in value))
        elif type(value) is dict and any(id(item) in others for item in value.values()):
            setattr(dataset, name, {k: others.get(id(item), item) for k, item in value.items()})
