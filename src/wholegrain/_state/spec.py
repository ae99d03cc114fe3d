"""What a saved position depends on, as a transformation declares it."""

from typing import Literal, NamedTuple


class CheckpointSpec(NamedTuple):
    """What a checkpoint has to know of a dataset's class, in the class attribute `checkpoint`.

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
