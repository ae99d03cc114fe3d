"""Adjusts the parameters of a pipeline while it runs."""

from __future__ import annotations

import dataclasses
import enum
import os
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from wholegrain._core.autotune_parameter import AutotuneParameter
from wholegrain._core.interruption import is_interruption
from wholegrain._core.log import logger
from wholegrain._core.names import kind_of
from wholegrain._core.stack import Empty
from wholegrain._core.types import T
from wholegrain._core.whole_number import whole_number
from wholegrain._graph import run
from wholegrain._graph.dataset import upstream
from wholegrain._graph.iter_dataset import IterDataset
from wholegrain._graph.iterator import DatasetIterator
from wholegrain._graph.kinds import OneParentIterNode
from wholegrain._graph.map_dataset import MapDataset
from wholegrain._graph.passing import PassingIterator
from wholegrain._observe import outline
from wholegrain._observe.tracking import has_telemetry
from wholegrain._read import machine
from wholegrain._read.tuner import Seen, Tuner
from wholegrain._state.counting import CountingRule
from wholegrain._state.spec import CheckpointSpec
from wholegrain.options import tuned_read_options

if TYPE_CHECKING:
    from wholegrain._graph.tracing import Tracer

_GB = 1 << 30


@dataclasses.dataclass
class AutotuneModelConfig:
    """What `autotune` may use, and how often it decides. Subclasses may override the methods.

    Args:
        cpu_budget: How many CPUs the program may keep busy; by default those that it may use.
        ram_budget_gb: How many GB of memory it may use; by default what is available.
        optimization_frequency: After how many elements to decide again.
        warmup_steps: How many elements to leave out at the beginning, which may be slower.
    """

    cpu_budget: float | None = None
    ram_budget_gb: float | None = None
    optimization_frequency: int = 100
    warmup_steps: int = 0

    def __post_init__(self) -> None:
        for name in ("cpu_budget", "ram_budget_gb"):
            value = getattr(self, name)
            if value is not None and not (isinstance(value, (int, float)) and value > 0):
                raise ValueError(
                    f"`{name}` has to be a number above 0, or None, but got {value!r}."
                )
        for name, least in (("optimization_frequency", 1), ("warmup_steps", 0)):
            value = getattr(self, name)
            if whole_number(name, value) < least:
                raise ValueError(f"`{name}` has to be at least {least}, but got {value}.")

    def get_cpu_budget(self) -> float:
        """Return how many CPUs the program may keep busy."""
        return machine.available_cpus() if self.cpu_budget is None else self.cpu_budget

    def get_ram_budget_gb(self) -> float:
        """Return how many GB of memory the program may use."""
        if self.ram_budget_gb is None:
            used = machine.private_memory(os.getpid()) or 0
            return (used + machine.available_memory()) / _GB
        return self.ram_budget_gb

    def get_optimization_frequency(self) -> int:
        """Return after how many elements to decide again."""
        return self.optimization_frequency

    def get_warmup_steps(self) -> int:
        """Return how many elements to leave out at the beginning."""
        return self.warmup_steps


@enum.unique
class ConcurrencyRegularizationMode(enum.Enum):
    """How the cost of threads grows with their number."""

    NONE = "none"
    LINEAR = "linear"
    QUADRATIC = "quadratic"


@enum.unique
class BufferRegularizationMode(enum.Enum):
    """Grain's name. Buffers are limited by `ram_budget_gb`, so no mode has an effect."""

    NONE = "none"
    L2 = "l2"
    BARRIER = "barrier"


_EXPONENTS = {
    ConcurrencyRegularizationMode.NONE: 0,
    ConcurrencyRegularizationMode.LINEAR: 1,
    ConcurrencyRegularizationMode.QUADRATIC: 2,
}


def autotune(
    ds: IterDataset[T],
    model_config: AutotuneModelConfig | None = None,
    allow_unknown_nodes: bool = False,
    concurrency_reg_mode: ConcurrencyRegularizationMode = ConcurrencyRegularizationMode.LINEAR,
    concurrency_reg_weight: float = 0.0,
) -> IterDataset[T]:
    """Adjust the `AutotuneParameter`s of a pipeline while it runs.

    Values are raised, one at a time, while the consumer waits for elements, and kept if the
    pipeline becomes faster. They are lowered if the program exceeds its budgets. Elements, order
    and states do not change. In worker processes, each worker adjusts its own parameters, with its
    share of the budgets; to adjust those upstream of `mp_prefetch`, call this before it.

    Args:
        ds: The pipeline.
        model_config: Budgets, and how often to decide.
        allow_unknown_nodes: Whether stages are allowed that are not part of this library.
        concurrency_reg_mode: How the cost of threads grows with their number.
        concurrency_reg_weight: The cost of as many threads as the CPU budget has CPUs, as a share
            of the speed: more threads are kept only if they gain more than they cost.
    """
    given: Any = ds
    if not isinstance(given, IterDataset):
        way_out = " Call `to_iter_dataset()` first." if isinstance(given, MapDataset) else ""
        raise TypeError(f"`autotune` takes an IterDataset, but got {kind_of(given)}.{way_out}")
    if not isinstance(concurrency_reg_mode, ConcurrencyRegularizationMode):
        raise TypeError(
            "`concurrency_reg_mode` has to be a `ConcurrencyRegularizationMode`, but got"
            f" {concurrency_reg_mode!r}."
        )
    if not allow_unknown_nodes:
        for node in upstream(ds):
            if type(node).__module__.partition(".")[0] != __name__.partition(".")[0]:
                raise ValueError(
                    f"`autotune` does not know {type(node).__name__}, a stage of this pipeline."
                    " Pass `allow_unknown_nodes=True` to leave it as it is and adjust the others."
                )
    config = AutotuneModelConfig() if model_config is None else model_config
    return AutotuneIterDataset(ds, config, concurrency_reg_mode, float(concurrency_reg_weight))


class AutotuneIterDataset(OneParentIterNode[T]):
    """The parent, whose parameters are adjusted while it runs."""

    keeps_size = True
    checkpoint = CheckpointSpec(
        free=("config", "mode", "weight"),
        position="parent",
    )
    counting = CountingRule()

    def __init__(
        self,
        parent: IterDataset[T],
        config: AutotuneModelConfig,
        mode: ConcurrencyRegularizationMode,
        weight: float,
    ) -> None:
        super().__init__(parent)
        self._config = config
        self._mode = mode
        self._weight = weight

    def open(self) -> DatasetIterator[T]:
        return AutotuneDatasetIterator(
            self._parent.__iter__(),
            self._new_tuner(run.current().worker_count),
            self._config.get_optimization_frequency(),
            self._config.get_warmup_steps(),
        )

    def _traced(self, tracer: Tracer) -> Any:
        return tracer(self._parent)

    def _new_tuner(self, worker_count: int) -> Tuner:
        cpu_budget = self._config.get_cpu_budget() / worker_count
        exponent, weight = _EXPONENTS[self._mode], self._weight

        def cost(threads: float) -> float:
            return weight * (threads / cpu_budget) ** exponent

        threads, buffers = parameters_of(self._parent)
        return Tuner(
            threads,
            buffers,
            cpu_budget=cpu_budget,
            ram_budget=self._config.get_ram_budget_gb() * _GB / worker_count,
            cost=cost,
        )

    def _label(self) -> str:
        return "autotune"

    def __str__(self) -> str:
        return f"AutotuneIterDataset(model_config={self._config})"


class AutotuneDatasetIterator(PassingIterator[T]):
    """Returns the parent's elements, and measures how long they take."""

    def __init__(
        self, parent: DatasetIterator[T], tuner: Tuner, frequency: int, warmup_steps: int
    ) -> None:
        super().__init__(parent)
        self._tuner = tuner
        self._frequency = frequency
        self._count = -warmup_steps  # Elements since the last decision.
        self._waited = 0.0
        self._since = (time.perf_counter(), time.process_time())

    def __next__(self) -> T:
        return self._timed(lambda: [next(self.parent)])[0]

    def next_into(self, empty: Empty) -> T:
        return self._timed(lambda: [super(AutotuneDatasetIterator, self).next_into(empty)])[0]

    def take(self, count: int) -> list[T]:
        return self._timed(lambda: self.parent.take(count))

    def _timed(self, get: Callable[[], list[T]]) -> list[T]:
        began = time.perf_counter()
        elements = get()
        if self._count < 0:  # Neither timed nor tuned.
            self._count = min(0, self._count + len(elements))
            self._start_over(self._count)
            return elements
        self._waited += time.perf_counter() - began
        self._count += len(elements)
        if self._count >= self._frequency:
            self._decide()
        return elements

    def _decide(self) -> None:
        wall, cpu = time.perf_counter() - self._since[0], time.process_time() - self._since[1]
        nbytes = machine.private_memory(os.getpid()) or 0
        seen = Seen(wall, self._waited, self._count, cpu / max(wall, 1e-9), nbytes)
        self._start_over(0)
        try:
            self._tuner.learn(seen)
            if has_telemetry():
                self._tell(seen)
        except Exception as error:
            if is_interruption(error):
                raise
            logger().warning("autotune: the parameters stay as they are: %s", error)

    def _tell(self, seen: Seen) -> None:
        from wholegrain._observe import prometheus  # Rarely used.

        for parameter in self._tuner.parameters:
            prometheus.AUTOTUNE_PARAMETERS.set(int(parameter), parameter.name)
        (dataset,) = self.opened_from.parents
        prometheus.AUTOTUNE_THROUGHPUT.set(round(seen.rate), outline.label(dataset))

    def _start_over(self, count: int) -> None:
        self._count, self._waited = count, 0.0
        self._since = (time.perf_counter(), time.process_time())


def parameters_of(ds: Any) -> tuple[list[AutotuneParameter], list[AutotuneParameter]]:
    """Return the parameters of a pipeline: those that count threads, and those that count elements.

    A `cycle_length` is not among them, because the order depends on it.
    """
    threads: dict[str, AutotuneParameter] = {}
    buffers: dict[str, AutotuneParameter] = {}
    for node in upstream(ds):
        if hasattr(node, "_read_options"):
            tuned = tuned_read_options(node._read_options)
            for name, kind in (("num_threads", threads), ("prefetch_buffer_size", buffers)):
                if name in tuned:
                    kind[tuned[name].id] = tuned[name]
        buffer = getattr(node, "_prefetch_buffer_size", None)
        if isinstance(buffer, AutotuneParameter):
            buffers[buffer.id] = buffer
    return list(threads.values()), list(buffers.values())
