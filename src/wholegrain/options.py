"""How a pipeline runs: threads, processes, thresholds. None of these change the elements."""

import dataclasses
import enum
import functools
from typing import Any, Literal

from wholegrain._core.autotune_parameter import AutotuneParameter, plain_int
from wholegrain._core.log import logger
from wholegrain._core.whole_number import whole_count, whole_number

_UNSET: Any = object()


def _count(name: str, value: Any) -> int:
    """Return `value` as an int; raise an error that names the option if it is not one."""
    if isinstance(value, AutotuneParameter):
        return value  # type: ignore[return-value]  # See `plain_read_options`.
    try:
        count = whole_count(name, value)
    except TypeError as error:
        if isinstance(value, (str, bytes, float)):  # As in Grain, which calls `int`.
            raise ValueError(*error.args) from None
        raise
    if count < 0:
        raise ValueError(f"`{name}` cannot be negative, but got {name}={value}. 0 switches it off.")
    return count


def _check_number(name: str, value: Any, least: int, wanted: str) -> None:
    if whole_number(name, value, f"`{name}` has to be {wanted}") < least:
        raise ValueError(f"`{name}` has to be at least {least}, but got {name}={value}.")


_AUTO_THREADS = 64
_AUTO_BUFFER_SIZE = 4096


@dataclasses.dataclass(slots=True, init=False)
class ReadOptions:
    """How far a random-access dataset is read ahead, and with how many threads.

    Both numbers are upper bounds: reading uses only as many threads as help, and a limited amount
    of memory. The order of the elements and the states never depend on them.

    Args:
        num_threads: The maximum number of threads that read. 0 reads in the caller's thread; "auto"
            chooses a number up to 64.
        prefetch_buffer_size: The maximum number of elements that are ready or being read. 0 reads
            in the caller's thread; "auto" chooses a number up to 4096.

    Both may be an `experimental.AutotuneParameter`, which `experimental.autotune` adjusts.
    """

    num_threads: int = 16
    prefetch_buffer_size: int = 500

    def __init__(
        self,
        num_threads: int | Literal["auto"] | AutotuneParameter = 16,
        prefetch_buffer_size: int | Literal["auto"] | AutotuneParameter = 500,
    ) -> None:
        is_open = num_threads == "auto"
        if num_threads == "auto":
            num_threads = _AUTO_THREADS
        if prefetch_buffer_size == "auto":
            prefetch_buffer_size = _AUTO_BUFFER_SIZE
        self.num_threads = _count("num_threads", num_threads)
        self.prefetch_buffer_size = _count("prefetch_buffer_size", prefetch_buffer_size)
        threads, buffer_size = int(self.num_threads), int(self.prefetch_buffer_size)
        if 0 < buffer_size < threads and not is_open:
            _warn_of_idle_threads(threads, buffer_size)


def plain_read_options(options: Any) -> Any:
    """Return read options with the present values of parameters that are being tuned."""
    if not tuned_read_options(options):
        return options
    plain = ReadOptions.__new__(ReadOptions)
    plain.num_threads = plain_int(options.num_threads)
    plain.prefetch_buffer_size = plain_int(options.prefetch_buffer_size)
    return plain


def tuned_read_options(options: Any) -> dict[str, AutotuneParameter]:
    """Return those of the read options that are parameters to be tuned, by their names."""
    both = {name: getattr(options, name) for name in ("num_threads", "prefetch_buffer_size")}
    return {name: one for name, one in both.items() if isinstance(one, AutotuneParameter)}


@functools.cache  # Warn once for the same numbers.
def _warn_of_idle_threads(num_threads: int, buffer_size: int) -> None:
    logger().warning(
        "ReadOptions: with prefetch_buffer_size=%d at most %d of num_threads=%d can read at once.",
        buffer_size,
        buffer_size,
        num_threads,
    )


@dataclasses.dataclass(slots=True)
class MultiprocessingOptions:
    """How many worker processes run a pipeline.

    Args:
        num_workers: The number of processes. 0 runs in the caller's process. "auto" adjusts the
            number while they run, and keeps the elements, the order and the states of 0.
        per_worker_buffer_size: How many finished elements each worker may hold. "auto" adjusts it,
            and needs `num_workers="auto"`.
        enable_profiling: Accepted for programs that set it; has no effect.
        max_workers: The maximum number of workers with "auto"; by default the number of processors
            that this process may use.
        max_memory_bytes: How much memory workers and finished elements may take with "auto"; by
            default half of what is available.
        backend: What starts the workers: "fork" forks them from a clean process, "spawn" starts an
            interpreter for each, "threads" starts threads of this process (for Pythons without the
            GIL), and a `wholegrain.multiprocessing.Backend` starts them anywhere.
            The default is the value of the environment variable WHOLEGRAIN_WORKER_START, or else
            "fork" on Linux and "spawn" elsewhere. The elements, their order and the states do not
            depend on it.
        lanes: If given, the elements, their order and the states are those of `num_workers=lanes`,
            and any number of workers from 0 to `lanes` runs them. That number may then be another
            one after a restore, or change while they run with "auto", for every pipeline.
    """

    num_workers: int | Literal["auto"] = 0
    per_worker_buffer_size: int | Literal["auto"] = 1
    enable_profiling: bool = False
    max_workers: int | None = dataclasses.field(default=None, repr=False)
    max_memory_bytes: int | None = dataclasses.field(default=None, repr=False)
    backend: Any = dataclasses.field(default=None, repr=False)
    lanes: int | None = dataclasses.field(default=None, repr=False)

    def __post_init__(self) -> None:
        for name in ("num_workers", "per_worker_buffer_size"):
            value = getattr(self, name)
            if value != "auto":
                _check_number(name, value, 0, 'a whole number or "auto"')
        for name in ("max_workers", "max_memory_bytes", "lanes"):
            if getattr(self, name) is not None:
                _check_number(name, getattr(self, name), 1, "a whole number")
        workers, lanes = self.num_workers, self.lanes
        if lanes is not None and workers != "auto" and workers > lanes:
            raise ValueError(
                f"Each worker runs at least one lane, but got num_workers={workers} and"
                f" lanes={lanes}. Use fewer workers or more lanes."
            )


@enum.unique
class ExecutionTrackingMode(enum.Enum):
    """Whether the time spent in each stage of a pipeline is recorded."""

    DISABLED = 1
    STAGE_TIMING = 2


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class DatasetOptions:
    """Options for all stages of a pipeline, attached with `WithOptionsIterDataset`.

    It records which of the fields were given, so that several of these in one pipeline can be
    merged.

    Args:
        filter_warn_threshold_ratio: Warn when this share of 1000 elements was filtered out.
            None never warns.
        filter_raise_threshold_ratio: Raise when this share of 1000 elements was filtered out.
            None never raises.
        execution_tracking_mode: Whether stages are timed.
        min_shm_size: Smaller arrays, in bytes, are not passed through shared memory.
    """

    filter_warn_threshold_ratio: float | None = _UNSET
    filter_raise_threshold_ratio: float | None = _UNSET
    execution_tracking_mode: ExecutionTrackingMode = _UNSET
    min_shm_size: int = _UNSET

    __hash__ = None  # type: ignore[assignment]

    def __post_init__(self) -> None:
        given = frozenset(name for name in _DEFAULTS if getattr(self, name) is not _UNSET)
        object.__setattr__(self, "_given", given)
        for name, default in _DEFAULTS.items():
            if name not in given:
                object.__setattr__(self, name, default)
        for name in ("filter_warn_threshold_ratio", "filter_raise_threshold_ratio"):
            ratio = getattr(self, name)
            if ratio is not None and (isinstance(ratio, str) or not hasattr(ratio, "__float__")):
                raise TypeError(
                    f"`{name}` has to be a share, from 0 to 1, or None, but got {ratio!r}."
                )

    def merge(self, other: "DatasetOptions | None") -> "DatasetOptions":
        """Return options with the fields given here, and those given only in `other`."""
        if other is None:
            return self
        fields = {**other._given_fields(), **self._given_fields()}  # noqa: SLF001
        return DatasetOptions(**fields)

    def _given_fields(self) -> dict[str, Any]:
        given: frozenset[str] = self._given  # type: ignore[attr-defined]
        return {name: getattr(self, name) for name in given}

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, DatasetOptions):
            return NotImplemented
        return self._given_fields() == other._given_fields()

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={getattr(self, name)!r}" for name in _DEFAULTS)
        return f"DatasetOptions({fields})"


_DEFAULTS: dict[str, Any] = {
    "filter_warn_threshold_ratio": 0.9,
    "filter_raise_threshold_ratio": None,
    "execution_tracking_mode": ExecutionTrackingMode.DISABLED,
    "min_shm_size": 0,
}
