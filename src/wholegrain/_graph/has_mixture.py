"""What an iterator offers if there is a mixture in its pipeline."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from wholegrain._graph import nodes

if TYPE_CHECKING:
    from wholegrain._observe.mixture import MixtureReport


class HasMixture:
    """Reports and steers the mixture of components with names that a pipeline contains."""

    def set_weights(self, weights: Mapping[str, float] | None, at_step: int | None = None) -> int:
        """Change the weights of the mixture in this pipeline, and return from which step on.

        The change is kept in the state: a restored run repeats it. A run that calls this method
        again after the same elements also yields the same elements.

        Args:
            weights: A weight for each component by name; some may be 0. None returns to the weights
                that were passed to `mix`.
            at_step: From which element of the mixture on; by default from the next one that the
                consumer, and stages that hold elements for it, have not got yet. Batches consist of
                several elements: in a pipeline that ends with `batch(32)`, the batch number 1000
                begins with element 32,000 of the mixture. If workers or lanes mix their shares,
                steps count the elements of all of them.

        Raises:
            ValueError: If there is no such mixture.

        Example:
            >>> it.set_weights({"web": 1, "code": 1})
        """
        raise ValueError(
            f"The weights of a mixture cannot change through {self}. Call `set_weights` on the"
            " iterator that `iter(ds)` returned."
        )

    def mixture(self) -> MixtureReport:
        """Report the target and the realised shares of the mixture in this pipeline.

        They hold at the position of `get_state()`. Print the report, or read its fields.

        Example:
            >>> print(it.mixture())
            >>> it.mixture()["web"].token_share
        """
        return nodes.describe_mixture(self)
