"""What transformations have to do with positions."""

from typing import Literal, NamedTuple


class Stage(NamedTuple):
    """Says what a checkpoint has to know of a dataset's class, as its attribute `_stage`.

    Settings are named as the attributes that hold them, without the underscore.

    Args:
        name: What the stage is called; by default its class.
        fixed: Settings without which a position means something else, such as a seed.
        free: Settings that may change between saving and restoring.
        position: Whose position a state holds. "own": the stage's. "parent": the parent's, of
            which the stage makes one element each; it may come and go. "regrouped": the parent's
            too, but more or fewer elements are made of those that follow.
        rereads: Whether a restored iterator reads some of the parent's elements again, and counts
            on finding the same number of them.
        inputs: The attribute that holds the datasets that are read, if it is not the parents.
        names: The attribute that holds names of the inputs, if they have any.
    """

    name: str | None = None
    fixed: tuple[str, ...] = ()
    free: tuple[str, ...] = ()
    position: Literal["own", "parent", "regrouped"] = "own"
    rereads: bool = False
    inputs: str | None = None
    names: str | None = None


class Step(NamedTuple):
    """What one stage does to positions.

    A class of datasets says so in its attribute `_step`, or None if an instance does not have one.

    Args:
        size: How many of the parent's elements make one.
        drop_remainder: Whether fewer of them, at the end, make none.
        counter: Under which name its state counts its elements, beside that of the parent.
        limit: How many elements there are at most.
    """

    size: int = 1
    drop_remainder: bool = False
    counter: str | None = None
    limit: int | None = None
