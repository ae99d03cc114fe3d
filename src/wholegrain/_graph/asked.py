"""What one may ask the iterator of a pipeline about its steps: origins, positions, digests."""

from __future__ import annotations

from typing import Any

from wholegrain._core.origins import Origin


class Asked:
    """The steps of a run. Step `n` is the element with `n` elements before it."""

    def _whole_run(self, method: str) -> Any:
        """Return the run that answers questions about steps; raise if this is none."""
        raise TypeError(
            f"`{method}` needs the iterator of a whole pipeline, which `iter(ds)` returns, but"
            f" {type(self).__name__} is only a part of one."
        )

    step: Any  # Not `int | None`, because a user's iterator may have a `step` of its own.
    """The step that `next` returns next; None if that is not known. Only `iter(ds)` has it.

    After `set_state`, the step follows from the state if each position has an element, as it does
    without filters, flat maps and packing. Otherwise set it: `it.step = 1000`.
    """

    def provenance(self, step: int | None = None) -> list[Origin]:
        """Return which records an element was made from.

        They are computed again, with another graph whose elements carry their origins. The run
        does not move, and nothing is recorded while it runs. Where the position of a step is
        arithmetic, only the records of that step are read. After filters, flat maps, packing and
        the like, the pipeline is read again, from the closest position that is known: the last
        restored state, or the beginning.

        Args:
            step: The element, counted from 0; by default the one that `next` returned last.

        Example:
            >>> for origin in it.provenance(41_320):
            ...     print(origin.path, origin.index, "in row", origin.row)
        """
        from wholegrain._graph import provenance  # Rarely used, and so are the others.

        return provenance.origins_of(self._whole_run("provenance"), step)

    def seek(self, step: int) -> None:
        """Go to a step, so that `next` returns it.

        Where the position of a step is arithmetic, nothing is read. Otherwise the elements since
        the closest known position are read and dropped.

        Args:
            step: The step, counted from 0. Steps that are skipped count, too.
        """
        from wholegrain._graph import steered_run

        steered_run.seek(self._whole_run("seek"), step)

    def skip(self, steps: range) -> None:
        """Leave steps out. The state says which, so that a resumed run leaves them out, too.

        The other steps keep their numbers: after `skip(range(10, 20))`, step 20 follows step 9.
        The state then also has the key "steered".

        Args:
            steps: The steps, counted from 0, in addition to those that are skipped already.

        Example:
            >>> it.skip(range(41_300, 41_340))
        """
        from wholegrain._graph import steered_run

        steered_run.skip(self._whole_run("skip"), steps)

    def digest(self) -> str:
        """Return a digest of all elements since the first call, in hexadecimal.

        Call it once before the first element. From then on each element is digested as it is
        returned, at more than 1 GB/s. Two runs have the same digest after the same number of steps
        only if all their elements were the same, with any workers and on any machine. It is part of
        the state, so that a resumed run continues it.

        Example:
            >>> it.digest()  # Starts it.
            >>> batch = next(it)
            >>> print(it.step, it.digest())
        """
        from wholegrain._graph import steered_run

        return steered_run.running_digest(self._whole_run("digest"))


class HasStep(Asked):
    """The iterator of a whole pipeline. Other iterators may have a `step` of their own."""

    @property
    def step(self) -> int | None:
        from wholegrain._graph import provenance

        return provenance.step_of(self._whole_run("step"))

    @step.setter
    def step(self, step: int) -> None:
        from wholegrain._graph import steered_run

        steered_run.set_step(self._whole_run("step"), step)
