"""What a MapDataset can do about records that are broken or expensive."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Generic, Literal, cast

from wholegrain._core.types import NDArray, T_co
from wholegrain._graph import nodes

if TYPE_CHECKING:
    import os

    from wholegrain._core.tolerated import FailedRecord
    from wholegrain._graph.map_dataset import MapDataset


class MapSteering(Generic[T_co]):
    """Methods of MapDataset."""

    def balance(
        self,
        cost: Callable[[T_co], float] | Sequence[float] | NDArray[Any],
        *,
        batch_size: int,
        ways: int,
        window: int = 16,
    ) -> MapDataset[T_co]:
        """Reorder elements, so that the hosts of an `ElasticIterator` have even costs in each step.

        The elements of a window are sorted by cost into steps, whose rows are dealt out evenly.
        The steps of a window come in a random order. Every host computes the same order.

        Args:
            cost: A function of an element, for which every host reads all elements once: call
                `balance` before expensive stages. Or the cost of each record of the source.
            batch_size: The `global_batch_size` of the `ElasticIterator`.
            ways: Its `lanes`, or the number of hosts: element `i` belongs to way `i % ways`.
            window: How many steps are planned together. More of them are more even.
        """
        return nodes.BalanceMapDataset(cast("Any", self), cost, batch_size, ways, window)

    def on_error(
        self,
        policy: Literal["raise", "skip", "replace"] | Callable[[Exception, FailedRecord], Any],
        *,
        budget: float | None = 100,
        consecutive: int | None = 100,
        log: str | os.PathLike[str] | None = None,
    ) -> MapDataset[T_co]:
        """Tolerate elements that fail upstream, instead of ending the run.

        Programming errors are raised all the same: NameError, ImportError, SyntaxError,
        MemoryError, NotImplementedError. `it.errors()` lists what failed.

        Args:
            policy: "skip" leaves the element out: it reads as None. "replace" puts another element
                of the epoch in its place, always the same one. A function gets the exception and
                a `FailedRecord`, and returns what takes its place. "raise" changes nothing.
            budget: How many failures are tolerated: a number, or a share of an epoch such as
                0.001. If there are more, an error lists them. None tolerates any number.
            consecutive: How many failures in a row are tolerated.
            log: A file to which each failure is appended, as a line of JSON.
        """
        rule = nodes.checked_rule(policy, budget, consecutive, log)
        ds = cast("MapDataset[T_co]", self)
        return ds if policy == "raise" else nodes.OnErrorMapDataset(ds, rule)
