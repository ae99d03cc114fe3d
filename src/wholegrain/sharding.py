"""Which part of the data this process reads."""

import contextlib
import sys
from collections.abc import Iterator
from contextvars import ContextVar
from dataclasses import dataclass

from wholegrain._core.log import logger
from wholegrain._core.whole_number import whole_number


@dataclass(frozen=True)
class ShardOptions:
    """One of `shard_count` parts of the data.

    Args:
        shard_index: The number of the part, from 0.
        shard_count: The number of parts.
        drop_remainder: Whether to drop the last few records, so that all parts have the same
            number of records.
    """

    shard_index: int
    shard_count: int
    drop_remainder: bool = False

    def __post_init__(self) -> None:
        for name in ("shard_index", "shard_count"):
            object.__setattr__(self, name, whole_number(name, getattr(self, name)))
        if self.shard_count <= 0:
            raise ValueError(
                f"There has to be at least one shard, but got shard_count={self.shard_count}."
            )
        if not 0 <= self.shard_index < self.shard_count:
            raise ValueError(
                f"`shard_index` counts from 0 to shard_count - 1 = {self.shard_count - 1}, but got"
                f" shard_index={self.shard_index}."
            )


def check_shard_options(options: ShardOptions) -> ShardOptions:
    """Return `options`, or raise if it has another type."""
    if not hasattr(options, "shard_index") or not hasattr(options, "shard_count"):
        raise TypeError(
            "`shard_options` has to be something like `ShardOptions(shard_index=0,"
            f" shard_count=8)` or `NoSharding()`, but got {options!r}."
        )
    return options


@dataclass(frozen=True, init=False)
class NoSharding(ShardOptions):
    """All of the data."""

    def __init__(self) -> None:
        super().__init__(shard_index=0, shard_count=1, drop_remainder=False)


@dataclass(frozen=True, init=False)
class ShardByJaxProcess(ShardOptions):
    """The part of this JAX process, from `jax.process_index()` and `jax.process_count()`.

    If jax is not installed, it is all of the data.
    """

    def __init__(self, drop_remainder: bool = False) -> None:
        index, count = jax_process()
        super().__init__(shard_index=index, shard_count=count, drop_remainder=drop_remainder)


_process: ContextVar[tuple[int, int] | None] = ContextVar("process", default=None)


@contextlib.contextmanager
def as_process(index: int, count: int) -> Iterator[None]:
    """Treat this as process `index` of `count`, regardless of jax."""
    token = _process.set((index, count))
    try:
        yield
    finally:
        _process.reset(token)


def jax_process() -> tuple[int, int]:
    """Return the index of this JAX process and the number of processes; `(0, 1)` without jax."""
    given = _process.get()
    if given is not None:
        return given
    jax = sys.modules.get("jax")
    if jax is None:
        try:
            import jax  # type: ignore[import-not-found,no-redef,unused-ignore]
        except ImportError:
            return 0, 1
    return int(jax.process_index()), int(jax.process_count())  # type: ignore[union-attr,unused-ignore]


def even_split(num_examples: int, options: ShardOptions) -> tuple[int, int]:
    """Return the first example of a contiguous shard, and the one after its last.

    The sizes of shards differ by at most one example, and the first shards are the larger ones.
    With `drop_remainder` all have the same size.
    """
    quotient, remainder = divmod(num_examples, options.shard_count)
    index = options.shard_index
    if options.drop_remainder:
        if remainder:
            logger().warning(
                "%d of %d examples belong to no shard, because `drop_remainder` is set and there"
                " are %d shards.",
                remainder,
                num_examples,
                options.shard_count,
            )
        return quotient * index, quotient * (index + 1)
    return (
        quotient * index + min(index, remainder),
        quotient * (index + 1) + min(index + 1, remainder),
    )
