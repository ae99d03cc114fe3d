"""The backend that starts workers as actors of a Ray cluster."""

import atexit
import pickle
import threading
import time
import weakref
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from wholegrain._workers.backend import Backend, WorkerHandle, WorkerSpec
from wholegrain.ray import _cluster
from wholegrain.ray._handle import Link, RayHandle
from wholegrain.ray._programs import put_program

_PURPOSE = "`RayBackend`"


@dataclass(frozen=True, eq=False, kw_only=True)
class RayBackend(Backend):
    """Starts workers as actors of a Ray cluster.

    Elements, order and states are those of local workers with the same options, so a checkpoint
    can be restored with either. The arrays of the pipeline are stored once per node, and are
    read-only in the actors.

    Args:
        num_cpus: How many CPUs each actor reserves.
        resources: Other resources that each actor reserves, by name.
        label_selector: The labels that a node has to have.
        scheduling_strategy: Where Ray places actors: "SPREAD" distributes them over the nodes,
            "DEFAULT" fills one node after the other; or a strategy object of Ray.
        runtime_env: The environment of the actors, for example `{"pip": ["wholegrain"]}`.
        max_in_flight: How many results of each actor may be in the object store or wait for the
            consumer. Large elements travel one per result, small ones together.
        zero_copy: Whether arrays of large elements are read-only views of the object store,
            which they occupy until they are deleted. Otherwise they are copied, and writable.

    Example:
        >>> backend = RayBackend(num_cpus=1)
        >>> ds.mp_prefetch(MultiprocessingOptions(num_workers=32, backend=backend))
    """

    num_cpus: float = 1
    resources: Mapping[str, float] | None = None
    label_selector: Mapping[str, str] | None = None
    scheduling_strategy: Any = "SPREAD"
    runtime_env: Mapping[str, Any] | None = None
    max_in_flight: int = 4
    zero_copy: bool = False
    _arrived: threading.Condition = field(
        default_factory=threading.Condition, init=False, repr=False
    )

    def __post_init__(self) -> None:
        if self.num_cpus < 0:
            raise ValueError(f"`num_cpus` cannot be negative, but got {self.num_cpus}.")
        if self.max_in_flight < 1:
            raise ValueError(f"`max_in_flight` has to be at least 1, but got {self.max_in_flight}.")

    def __reduce__(self) -> Any:
        settings = {name: getattr(self, name) for name in _FIELDS}
        return _make, (settings,)

    @property
    def _asked(self) -> dict[str, float]:
        return {"CPU": self.num_cpus, **(self.resources or {})}

    def prepare(self, modules: Iterable[str]) -> None:
        _cluster.connected(_PURPOSE)

    def max_workers(self) -> int | None:
        """Return how many actors the cluster can grant now."""
        ray = _cluster.connected(_PURPOSE)
        count = _cluster.granted(self._asked, ray.available_resources())
        if count is None:
            count = int(ray.cluster_resources().get("CPU", 1))
        return max(1, count)

    def start(self, spec: WorkerSpec) -> WorkerHandle:
        ray = _cluster.connected(_PURPOSE)
        from wholegrain.ray._actor import WorkerActor

        copy, content = put_program(ray, spec.program)
        kind = ray.remote(WorkerActor).options(**self._options())
        actor = kind.remote(pickle.dumps(spec.job(), 5), copy, content)
        link = Link(actor, self._arrived, self.max_in_flight, self.zero_copy)
        handle = RayHandle(link, spec, self._asked)
        _join_at_exit(handle)
        return handle

    def _options(self) -> dict[str, Any]:
        options = {
            "num_cpus": self.num_cpus,
            "resources": None if self.resources is None else dict(self.resources),
            "label_selector": None if self.label_selector is None else dict(self.label_selector),
            "scheduling_strategy": self.scheduling_strategy,
            "runtime_env": None if self.runtime_env is None else dict(self.runtime_env),
            # Calls of `fetch` wait in the actor, and must not keep `tell` from running.
            "max_concurrency": self.max_in_flight + 2,
            "max_restarts": 0,  # Only this process knows where a replacement has to continue.
        }
        return {name: value for name, value in options.items() if value is not None}

    def wait(self, handles: Sequence[WorkerHandle], timeout_s: float) -> Iterable[WorkerHandle]:
        remote: Sequence[Any] = handles
        deadline = time.monotonic() + timeout_s
        with self._arrived:
            while True:
                found = [handle for handle in remote if handle.has_something]
                left = deadline - time.monotonic()
                if found or left <= 0:
                    return found
                self._arrived.wait(left)


_FIELDS = (
    "num_cpus",
    "resources",
    "label_selector",
    "scheduling_strategy",
    "runtime_env",
    "max_in_flight",
    "zero_copy",
)


def _make(settings: dict[str, Any]) -> RayBackend:
    return RayBackend(**settings)


_handles: "weakref.WeakSet[RayHandle]" = weakref.WeakSet()


def _join_at_exit(handle: RayHandle) -> None:
    if not _handles:
        # Registered after Ray's own exit handler, and therefore called before it.
        atexit.unregister(_close_all)
        atexit.register(_close_all)
    _handles.add(handle)


def _close_all() -> None:
    handles = list(_handles)
    for handle in handles:
        handle.close()
    for handle in handles:
        handle.join()
