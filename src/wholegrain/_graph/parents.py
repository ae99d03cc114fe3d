"""The parents of datasets: all of them, and replacing those of one."""

from typing import Any


def upstream(dataset: Any) -> list[Any]:
    """Return a dataset and everything upstream of it, each stage before its parents."""
    found = [dataset]
    for stage in found:  # The list grows while it is walked.
        found.extend(getattr(stage, "parents", ()))
    return found


def replace_parents(dataset: Any, old: tuple[Any, ...], new: tuple[Any, ...]) -> None:
    """Replace the parents of a copied dataset, in every attribute that refers to them.

    A user's class may keep its parent under a name of its own. If that attribute still referred to
    the old parent, every worker would read all of the data.
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
