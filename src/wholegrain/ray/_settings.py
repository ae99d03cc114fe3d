"""Checks the settings of a backend when it is created, not when the first actor starts."""

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from wholegrain.ray._backend import RayBackend

_STRATEGIES = ("SPREAD", "DEFAULT")
_REFUSED = {
    "CPU": "Use `num_cpus`.",
    "object_store_memory": "`max_in_flight` bounds what an actor has in the object store.",
}
# Ray has parameters of their own for these.
_PARAMETERS = {"GPU": "num_gpus", "memory": "memory"}


def check(backend: "RayBackend") -> None:
    """Raise if a setting cannot be meant."""
    _check_amount("num_cpus", backend.num_cpus)
    if type(backend.max_in_flight) is not int:
        raise _wrong_type("max_in_flight", "an int", backend.max_in_flight)
    if backend.max_in_flight < 1:
        raise ValueError(f"`max_in_flight` has to be at least 1, but got {backend.max_in_flight}.")
    if type(backend.zero_copy) is not bool:
        raise _wrong_type("zero_copy", "a bool", backend.zero_copy)
    _check_resources(backend.resources)
    for name in ("label_selector", "runtime_env"):
        value = getattr(backend, name)
        if value is not None and not isinstance(value, Mapping):
            raise _wrong_type(name, "a dict", value)
    labels: Mapping[Any, Any] = backend.label_selector or {}
    if not all(isinstance(part, str) for label in labels.items() for part in label):
        raise _wrong_type("label_selector", "a dict of strings", labels)
    _check_strategy(backend.scheduling_strategy)


def resource_options(resources: Mapping[str, float] | None) -> dict[str, Any]:
    """Return resources as options of an actor."""
    found = dict(resources or {})
    options = {_PARAMETERS[name]: found.pop(name) for name in _PARAMETERS if name in found}
    return {**options, "resources": found or None}


def _check_amount(name: str, amount: Any) -> None:
    if isinstance(amount, bool) or not isinstance(amount, (int, float)):
        raise _wrong_type(name, "a number", amount)
    if not 0 <= amount < math.inf:
        raise ValueError(f"`{name}` cannot be negative or infinite, but got {amount}.")


def _check_resources(resources: Any) -> None:
    if resources is None:
        return
    if not isinstance(resources, Mapping):
        raise _wrong_type("resources", "a dict", resources)
    for name, amount in resources.items():
        if not isinstance(name, str):
            raise _wrong_type("resources", "a dict with names", resources)
        if name in _REFUSED:
            raise ValueError(f"`resources` cannot have {name!r}. {_REFUSED[name]}")
        _check_amount(f"resources[{name!r}]", amount)


def _check_strategy(strategy: Any) -> None:
    if isinstance(strategy, str):
        if strategy not in _STRATEGIES:
            raise ValueError(
                f"`scheduling_strategy` has to be one of {', '.join(_STRATEGIES)}, or an object of"
                f" `ray.util.scheduling_strategies`, but got {strategy!r}."
            )
    elif not type(strategy).__name__.endswith("SchedulingStrategy"):
        raise _wrong_type("scheduling_strategy", "a string or a strategy object of Ray", strategy)


def _wrong_type(name: str, wanted: str, value: Any) -> TypeError:
    return TypeError(f"`{name}` has to be {wanted}, but got {value!r}.")
