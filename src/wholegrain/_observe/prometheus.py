"""Metrics for Prometheus, under Grain's names.

Each process counts in memory-mapped files of its own. The process that serves the metrics adds up
the files of all processes, including those that have ended. Nothing is counted unless the
environment variable `ENABLE_PYGRAIN_PROMETHEUS_TELEMETRY` is `true`.
"""

from __future__ import annotations

import atexit
import bisect
import contextlib
import dataclasses
import errno
import functools
import glob
import itertools
import mmap
import operator
import os
import shutil
import tempfile
import threading
import urllib.parse
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from wholegrain._core import tree
from wholegrain._core.install import install_command
from wholegrain._core.interruption import is_interruption
from wholegrain._core.log import logger
from wholegrain.record import Record

DEFAULT_PORT = 9431
_PORT_VARIABLE = "PYGRAIN_PROMETHEUS_PORT"
_ADDRESS_VARIABLE = "WHOLEGRAIN_PROMETHEUS_ADDRESS"
_FOLDER_VARIABLE = "PROMETHEUS_MULTIPROC_DIR"
_SERVER_VARIABLE = "WHOLEGRAIN_PROMETHEUS_SERVER"
"""Set to the id of the process that serves, so that its children do not serve too."""

_LONGEST_NS = 3.6e12


@dataclasses.dataclass(frozen=True)
class Metric:
    """A histogram, or a counter if there are no buckets, or a gauge.

    Args:
        name: The name in Prometheus.
        text: The help text.
        bounds: The upper bounds of the buckets.
        label: The name of its label, if it has one.
        is_gauge: Whether it is a present value. Of several processes, the largest one counts.
    """

    name: str
    text: str
    bounds: tuple[int, ...] = ()
    label: str = ""
    is_gauge: bool = False

    def observe(self, value: int, times: int = 1, label: str = "") -> None:
        """Count `value`, `times` times."""
        _cells(self, label, os.getpid()).observe(value, times)

    def set(self, value: int, label: str = "") -> None:
        """Change the value of a gauge."""
        _cells(self, label, os.getpid()).set(value)


def _powers(base: int) -> tuple[int, ...]:
    return tuple(base**k for k in range(64) if base**k < _LONGEST_NS)


NEXT_DURATION = Metric(
    "grain_python_dataset_next_duration_ns", "Time of `next` on an output iterator.", _powers(2)
)
READY_COUNT = Metric(
    "grain_python_dataset_prefetch_buffer_ready_count",
    "Elements ready at the front of the read-ahead buffer at each `next`.",
    (0, *(2**k for k in range(11))),
)
BYTES_READ = Metric(
    "grain_python_data_sources_bytes_read",
    "Bytes of strings and arrays read from a source.",
    label="source",
)
SOURCE_READ_TIME = Metric(
    "grain_python_dataset_source_read_time_ns",
    "Time to read an element from a source.",
    _powers(4),
    label="source",
)
LOADER_GET_NEXT = Metric(
    "grain_python_data_loader_iterator_get_next",
    "Time of `next` on a DataLoader's iterator, in nanoseconds.",
    _powers(2),
)
AUTOTUNE_PARAMETERS = Metric(
    "grain_autotune_parameters",
    "The values of the parameters that `autotune` adjusts.",
    label="name",
    is_gauge=True,
)
AUTOTUNE_THROUGHPUT = Metric(
    "grain_autotune_node_throughput",
    "Elements per second of a pipeline that `autotune` adjusts.",
    label="node",
    is_gauge=True,
)
_METRICS = (
    NEXT_DURATION,
    READY_COUNT,
    BYTES_READ,
    SOURCE_READ_TIME,
    LOADER_GET_NEXT,
    AUTOTUNE_PARAMETERS,
    AUTOTUNE_THROUGHPUT,
)


class _Cells:
    """The numbers of one metric and label in this process: the sum, then the count per bucket."""

    def __init__(self, path: str, bounds: Sequence[int]) -> None:
        self._bounds = bounds
        self._lock = threading.Lock()
        size = 8 * (2 + len(bounds))
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            os.ftruncate(descriptor, size)
            self._cells = memoryview(mmap.mmap(descriptor, size)).cast("q")
        finally:
            os.close(descriptor)

    def observe(self, value: int, times: int) -> None:
        bucket = 1 + bisect.bisect_left(self._bounds, value)
        with self._lock:
            self._cells[0] += value * times
            self._cells[bucket] += times

    def set(self, value: int) -> None:
        self._cells[0] = value


@functools.cache
def _cells(metric: Metric, label: str, pid: int) -> _Cells:
    name = f"{metric.name}~{urllib.parse.quote(label, safe='')}~{pid}.wholegrain"
    return _Cells(os.path.join(_folder(), name), metric.bounds)


def _folder() -> str:
    """Return the folder in which all processes of this program count."""
    folder = os.environ.get(_FOLDER_VARIABLE)
    if not folder:
        folder = os.environ[_FOLDER_VARIABLE] = tempfile.mkdtemp(prefix="wholegrain-metrics-")
        atexit.register(_remove, folder, os.getpid())
    return folder


def _remove(folder: str, owner: int) -> None:
    if os.getpid() == owner:
        shutil.rmtree(folder, ignore_errors=True)


# Listeners of stages.


def ready_listener(iterator: Any) -> Any:
    """Return a listener for the calls of an iterator that reads ahead."""

    def listener(elapsed_ns: int, elements: Sequence[Any]) -> None:
        if elements:
            # The count from before these elements were taken.
            READY_COUNT.observe(iterator.ready_count + len(elements))

    return listener


def source_listener(dataset: Any) -> Any:
    """Return a listener for the reads of a source."""
    source = type(dataset._source).__name__

    def listener(elapsed_ns: int, elements: Sequence[Any]) -> None:
        if len(elements):
            SOURCE_READ_TIME.observe(elapsed_ns // len(elements), len(elements), label=source)
            BYTES_READ.observe(_bytes_of(elements), label=source)

    return listener


def data_of(element: Any) -> Any:
    """Return the data of an element: of a `Record` its data, else the element itself."""
    return element.data if isinstance(element, Record) else element


def _bytes_of(elements: Sequence[Any]) -> int:
    total = 0
    for leaf in tree.leaves([data_of(element) for element in elements]):
        if isinstance(leaf, np.ndarray | np.generic):
            total += leaf.nbytes
        elif isinstance(leaf, (str, bytes)):
            total += len(leaf)
    return total


# The collector.


class Collector:
    """Adds up the counts of all processes when the metrics are scraped."""

    def collect(self) -> Iterator[Any]:
        """Yield the metrics as metric families of `prometheus_client`."""
        for metric in _METRICS:
            labels = [metric.label] if metric.label else []
            family: Any = _family(metric)(metric.name, metric.text, labels=labels)
            for label, numbers in sorted(_added_up(metric).items()):
                values = [label] if metric.label else []
                if metric.bounds:
                    family.add_metric(values, _cumulative(metric, numbers), numbers[0])
                else:
                    family.add_metric(values, numbers[0])
            yield family


def _family(metric: Metric) -> Any:
    from prometheus_client import core

    if metric.is_gauge:
        return core.GaugeMetricFamily
    return core.HistogramMetricFamily if metric.bounds else core.CounterMetricFamily


def _added_up(metric: Metric) -> dict[str, list[int]]:
    totals: dict[str, list[int]] = {}
    folder = glob.escape(_folder())
    for path in glob.glob(os.path.join(folder, f"{glob.escape(metric.name)}~*.wholegrain")):
        _, label, _ = os.path.basename(path).split("~")
        with contextlib.suppress(OSError, ValueError), open(path, "rb") as file:
            numbers = memoryview(file.read()).cast("q").tolist()
            label = urllib.parse.unquote(label)
            before = totals.get(label, [0] * len(numbers))
            join = max if metric.is_gauge else operator.add
            totals[label] = [join(a, b) for a, b in zip(before, numbers, strict=True)]
    return totals


def _cumulative(metric: Metric, numbers: list[int]) -> list[tuple[str, int]]:
    bounds = [*(str(float(bound)) for bound in metric.bounds), "+Inf"]
    return list(zip(bounds, itertools.accumulate(numbers[1:]), strict=True))


def start() -> None:
    """Serve the metrics, unless a parent process already does."""
    if os.environ.get(_SERVER_VARIABLE):
        return
    os.environ[_SERVER_VARIABLE] = str(os.getpid())
    _folder()  # The library reads the variable when it is imported.
    port, address = _port(), os.environ.get(_ADDRESS_VARIABLE) or "127.0.0.1"
    if port <= 0:
        return
    try:
        import prometheus_client
        from prometheus_client import multiprocess

        registry = prometheus_client.CollectorRegistry()
        multiprocess.MultiProcessCollector(registry)  # type: ignore[no-untyped-call,unused-ignore]
        registry.register(Collector())  # type: ignore[arg-type,unused-ignore]
        prometheus_client.start_http_server(port, addr=address, registry=registry)
    except ImportError:
        logger().warning(
            "Metrics were asked for, but the package `prometheus_client` is missing. Install it"
            " with `%s`.",
            install_command("prometheus"),
        )
    except OSError as error:
        if error.errno != errno.EADDRINUSE:  # If it is in use, another process serves already.
            logger().warning("Metrics cannot be served on %s:%d: %s", address, port, error)
    except Exception as error:
        if is_interruption(error):
            raise
        logger().warning("Metrics cannot be served: %s", error)


def _port() -> int:
    text = os.environ.get(_PORT_VARIABLE)
    if text is None:
        return DEFAULT_PORT
    try:
        return int(text)
    except ValueError:
        logger().warning(
            "%s has to be a number, but is %r. Metrics are served on port %d.",
            _PORT_VARIABLE,
            text,
            DEFAULT_PORT,
        )
        return DEFAULT_PORT
