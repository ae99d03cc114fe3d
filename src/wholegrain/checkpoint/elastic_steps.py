"""How many steps an epoch has: by arithmetic, by counting, or as given."""

from __future__ import annotations

import functools
import json
import os
from pathlib import Path
from typing import Any, Literal, NamedTuple

from wholegrain._core.interruption import is_interruption
from wholegrain._core.log import logger
from wholegrain._core.whole_number import whole_number
from wholegrain._graph.iter_dataset import IterDataset
from wholegrain._graph.lane_epochs import count_elements, known_counts
from wholegrain._graph.later_epochs import at_epoch, is_endless
from wholegrain._state.fingerprint import fingerprint
from wholegrain.options import MultiprocessingOptions


class StepOptions(NamedTuple):
    """How the epochs of an `ElasticIterator` end; see there."""

    lanes: int
    rows: int
    steps: int | Literal["count"] | None
    remainder: Literal["drop", "pad"]
    count_cache: Any

    def checked(self) -> StepOptions:
        """Return the options, or raise if one of them has a wrong value."""
        if self.remainder not in ("drop", "pad"):
            raise ValueError(f'`remainder` has to be "drop" or "pad", but got {self.remainder!r}.')
        steps = self.steps
        if steps is not None and steps != "count":
            steps = whole_number("steps", steps, '`steps` has to be a number, "count" or None')
            if steps < 1:
                raise ValueError(f"`steps` has to be at least 1, but got {steps}.")
        if self.count_cache is not None and steps != "count":
            raise ValueError('`count_cache` needs steps="count": nothing is counted without it.')
        return self._replace(steps=steps)


class EpochSteps:
    """The number of steps in each epoch, the same on all hosts.

    Args:
        ds: The whole pipeline.
        options: How epochs end.
        hosts: How many hosts there are.
        workers: The workers that count.
    """

    def __init__(
        self,
        ds: IterDataset[Any],
        options: StepOptions,
        hosts: int,
        workers: MultiprocessingOptions | None,
    ) -> None:
        self._ds = ds
        self._options = options
        self._workers = workers
        self.is_endless = is_endless(ds)
        self._known = None if self.is_endless else known_counts(ds, options.lanes)
        self._digest = functools.cache(self._hashed)
        self.counted: dict[int, tuple[int, int]] = {}
        """What was counted: the elements of the shortest and the longest lane of an epoch."""
        self._check(hosts)

    def _check(self, hosts: int) -> None:
        steps = self._options.steps
        if self.is_endless and steps == "count":
            raise ValueError(
                'steps="count" cannot count a pipeline without end. Leave `steps` out: its epoch'
                " never ends; or give a number of steps, or leave out the `repeat`."
            )
        if steps is None and hosts > 1 and self._known is None and not self.is_endless:
            raise ValueError(
                "The length of this pipeline is not known before it is read, and hosts that end at"
                ' different steps would wait for each other. Use steps="count" to count it once,'
                " a number of steps, or `repeat()` for a pipeline without end."
            )
        if isinstance(steps, int) and self._known and self._options.remainder == "drop":
            most = self._known[0] // self._options.rows
            if steps > most:
                raise ValueError(
                    f"The shortest lane has {self._known[0]} elements, which are {most} steps of"
                    f" {self._options.rows}, but got steps={steps}. Use fewer steps, or"
                    ' remainder="pad".'
                )

    @property
    def has_epochs(self) -> bool:
        """Whether epochs end."""
        return not self.is_endless or self._options.steps is not None

    def of(self, epoch: int) -> int | None:
        """Return the number of steps in an epoch; None if it is not known, or infinite."""
        steps = self._options.steps
        if isinstance(steps, int):
            return steps
        counts = self._known
        if counts is None and steps == "count":
            counts = self._count(epoch)
        if counts is None:
            return None
        fewest, most = counts
        if self._options.remainder == "drop":
            return fewest // self._options.rows
        return -(-most // self._options.rows)

    def before(self, epoch: int) -> int:
        """Return how many steps the lanes of a pipeline without end have made before an epoch."""
        return epoch * (self.of(epoch) or 0) if self.is_endless else 0

    def _count(self, epoch: int) -> tuple[int, int]:
        if epoch not in self.counted:
            file = self._file(epoch)
            counts = None if file is None else _read(file)
            if counts is None:
                logger().info("Counting the elements of epoch %d in %s.", epoch, self._ds)
                later = at_epoch(self._ds, epoch)
                counts = count_elements(later, self._options.lanes, self._workers)
                if file is not None:
                    _write(file, counts)
            self.counted[epoch] = counts
        return self.counted[epoch]

    def _file(self, epoch: int) -> Path | None:
        if self._options.count_cache is None:
            return None
        digest = self._digest()
        if digest is None:
            return None
        return Path(self._options.count_cache) / f"count_{digest}_epoch_{epoch}.json"

    def _hashed(self) -> str | None:
        """Return a hash of the pipeline and its code; None if it cannot be pickled.

        If it is another one although the pipeline is the same, the elements are counted again.
        """
        from wholegrain._workers.code_hash import code_hash  # Imports cloudpickle.

        about = json.dumps([fingerprint(self._ds), self._options.lanes], sort_keys=True)
        try:
            return code_hash((about, self._ds))
        except Exception as error:
            if is_interruption(error):
                raise
            logger().warning(
                "`count_cache` is not used, because the pipeline cannot be pickled: %r", error
            )
            return None


def _read(file: Path) -> tuple[int, int] | None:
    """Return the counts in a file; None if there is none."""
    try:
        found = json.loads(file.read_text())
        return int(found["fewest"]), int(found["most"])
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError):
        logger().warning("%s is damaged. The elements are counted again.", file)
        return None


def _write(file: Path, counts: tuple[int, int]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    partial = file.with_name(f".{file.name}.{os.getpid()}")
    partial.write_text(json.dumps({"fewest": counts[0], "most": counts[1]}))
    partial.replace(file)  # Hosts that share the folder write the same content.
