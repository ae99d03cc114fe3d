"""What a saved position depends on, declared by each transformation."""

from typing import Literal, NamedTuple


class CheckpointSpec(NamedTuple):
    """What a checkpoint needs to know about a dataset's class, in the class attribute `checkpoint`.

    Settings have the names of the attributes that hold them, without the underscore.

    Args:
        name: The name of the stage; by default its class.
        fixed: Settings that determine what a position means, such as a seed.
        free: Settings that may change between saving and restoring.
        position: Whose position a state holds. "own": the stage's. "parent": the parent's, because
            the stage makes one element from each; it may be added or removed. "regrouped": also
            the parent's, but the stage makes more or fewer elements from those that follow.
        rereads: Whether a restored iterator reads some of the parent's elements again, and relies
            on finding the same number of them.
        inputs: The attribute that holds the datasets that it reads, if they are not the parents.
        names: The attribute that holds the names of the inputs, if they have any.
    """

    name: str | None = None
    fixed: tuple[str, ...] = ()
    free: tuple[str, ...] = ()
    position: Literal["own", "parent", "regrouped"] = "own"
    rereads: bool = False
    inputs: str | None = None
    names: str | None = None
