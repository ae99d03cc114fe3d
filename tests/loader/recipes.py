"""Loaders described by plain data, built with Grain or with wholegrain.

The description is that of `golden_dataloader.json`: see the key `notation` there.
"""

import json
from collections.abc import Callable
from typing import Any

import numpy as np

Description = dict[str, Any]


def sampler(package: Any, description: Description) -> Any:
    """Make the described sampler with `package`: `grain.python` or `wholegrain.python`."""
    arguments: dict[str, Any] = {"num_records": description["n"]}
    if "shard" in description:
        arguments["shard_options"] = shard_options(package, description["shard"])
    if "seed" in description:
        arguments["seed"] = description["seed"]
    if description["type"] == "seq":
        return package.SequentialSampler(**arguments)
    return package.IndexSampler(
        **arguments,
        shuffle=description.get("shuffle", False),
        num_epochs=description["epochs"],
    )


def shard_options(package: Any, description: list[Any]) -> Any:
    """Make the described shard options."""
    return package.ShardOptions(*description)


def loader(package: Any, description: Description) -> Any:
    """Make the described DataLoader."""
    records = description["sampler"]
    arguments: dict[str, Any] = {
        "data_source": package.RangeDataSource(*description.get("source", [0, records["n"], 1])),
        "sampler": sampler(package, records),
        "operations": [operation(package, one) for one in description["ops"]],
        "worker_count": description["workers"],
    }
    if "buffer" in description:
        arguments["worker_buffer_size"] = description["buffer"]
    if "loader_shard" in description:
        arguments["shard_options"] = shard_options(package, description["loader_shard"])
    if "read_options" in description:
        arguments["read_options"] = package.ReadOptions(*description["read_options"])
    return package.DataLoader(**arguments)


def operation(package: Any, description: Description) -> Any:
    """Make the described operation."""
    match description:
        case {"op": "add", "k": k}:
            return _map(package, lambda x: x + k)
        case {"op": "mul", "k": k}:
            return _map(package, lambda x: x * k)
        case {"op": "to_dict"}:
            return _map(package, _to_dict)
        case {"op": "keep_mod", "m": m, "r": r}:
            return _filter(package, lambda x: x % m == r)
        case {"op": "rand_add", "hi": hi}:
            return _random_map(package, lambda x, rng: x + int(rng.integers(hi)))
        case {"op": "rand_pair", "hi": hi}:
            return _random_map(package, lambda x, rng: (x, int(rng.integers(hi))))
        case {"op": "rand_append", "hi": hi}:
            return _random_map(package, lambda x, rng: (*x, int(rng.integers(hi))))
        case {"op": "rand_tag", "hi": hi}:
            return _random_map(package, lambda x, rng: {"batch": x, "draw": int(rng.integers(hi))})
        case {"op": "flat", "fan": fan}:
            return _flat_map(package, fan)
        case {"op": "batch", "size": size}:
            return package.Batch(size, description.get("drop", False))
        case {"op": "batch_sum", "size": size}:
            return package.Batch(size, batch_fn=lambda xs: int(sum(xs)))
        case {"op": "legacy_batch", "size": size}:
            return package.BatchOperation(size, description.get("drop", False))
        case {"op": "legacy_add", "k": k}:
            return package.MapOperation(lambda x: x + k)
        case {"op": "legacy_keep_mod", "m": m, "r": r}:
            return package.FilterOperation(lambda x: x % m == r)
        case {"op": "legacy_rand_add", "hi": hi}:
            return package.RandomMapOperation(lambda x, rng: x + int(rng.integers(hi)))
    raise AssertionError(f"There is no operation {description}.")


def _to_dict(x: int) -> dict[str, Any]:
    return {
        "id": x,
        "vec": np.array([x, x + 1, x + 2], dtype=np.int32),
        "pair": (float(x), [x % 2 == 0]),
    }


def _map(package: Any, function: Callable[[Any], Any]) -> Any:
    class Mapped(package.MapTransform):  # type: ignore[misc]
        def map(self, element: Any) -> Any:
            return function(element)

    return Mapped()


def _random_map(package: Any, function: Callable[[Any, Any], Any]) -> Any:
    class RandomMapped(package.RandomMapTransform):  # type: ignore[misc]
        def random_map(self, element: Any, rng: np.random.Generator) -> Any:
            return function(element, rng)

    return RandomMapped()


def _filter(package: Any, function: Callable[[Any], bool]) -> Any:
    class Filtered(package.FilterTransform):  # type: ignore[misc]
        def filter(self, element: Any) -> bool:
            return function(element)

    return Filtered()


def _flat_map(package: Any, fan_out: int) -> Any:
    class FlatMapped(package.experimental.FlatMapTransform):  # type: ignore[misc]
        max_fan_out = fan_out

        def flat_map(self, element: int) -> list[int]:
            return [element * 10 + part for part in range(element % (fan_out + 1))]

    return FlatMapped()


def state_bytes(state: dict[str, Any]) -> bytes:
    """Return a state as `get_state` does."""
    return json.dumps(state, indent=4).encode()
