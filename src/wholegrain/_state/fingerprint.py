"""Describes a pipeline in JSON, so that a checkpoint can detect what has changed since."""

from __future__ import annotations

import enum
import functools
import hashlib
import os
import re
import types
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from wholegrain._state.spec import CheckpointSpec

VERSION = 1

# A fingerprint stays small: longer values are replaced by a hash.
_MANY = 16
_LONG_TEXT = 400

_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
_SHARD_OPTIONS = re.compile(r"\b(NoSharding|ShardByJaxProcess)\(")
_CONTAINERS = (list, tuple, dict, set, frozenset, str, bytes, bytearray, np.ndarray)


def fingerprint(pipeline: Any) -> dict[str, Any]:
    """Describe a pipeline: its stages from source to output, and their settings.

    It contains what determines whether two pipelines have the same elements in the same order, as
    far as that is known without reading them: the kinds of stages, seeds, sizes, lengths, the
    `repr` of sources, and the names of functions. It contains no data.

    Args:
        pipeline: A dataset, a DataLoader, or an iterator of one.

    Returns:
        A dict for JSON. It has the stages under `"stages"`; a stage that reads from several
        datasets has them under `"inputs"`.

    Example:
        >>> fingerprint(MapDataset.range(10).shuffle(seed=1))["stages"][1]
        {'stage': 'ShuffleMapDataset', 'fixed': {'seed': 1, 'length': 10}}
    """
    dataset = getattr(pipeline, "opened_from", pipeline)
    dataset = getattr(dataset, "_dataset", dataset)  # The dataset of a DataLoader.
    return {"version": VERSION, "stages": _stages(dataset)}


def _stages(dataset: Any) -> list[dict[str, Any]]:
    stages: list[dict[str, Any]] = []
    while True:
        described, parents = _described(dataset)
        stages.append(described)
        if len(parents) != 1 or "inputs" in described:
            return stages[::-1]
        (dataset,) = parents


def _described(dataset: Any) -> tuple[dict[str, Any], Sequence[Any]]:
    """Return the description of one stage, and the datasets that it reads from."""
    declared = getattr(dataset, "checkpoint", None)
    # A user's dataset may use that name for something else.
    stage = declared if isinstance(declared, CheckpointSpec) else CheckpointSpec()
    parents = tuple(getattr(dataset, "parents", ()))
    described: dict[str, Any] = {"stage": stage.name or type(dataset).__name__}
    fixed = _settings(dataset, stage.fixed)
    if not parents:
        fixed |= _source_settings(dataset)
    free = _settings(dataset, stage.free)
    if fixed:
        described["fixed"] = fixed
    if free:
        described["free"] = free
    if stage.position != "own":
        described["position"] = stage.position
    if stage.rereads:
        described["rereads"] = True
    inputs = parents if stage.inputs is None else _attribute(dataset, stage.inputs)
    if hasattr(inputs, "parents"):  # A MapDataset whose elements are datasets.
        described["inputs"] = {"datasets": _stages(inputs)}
    elif stage.inputs is not None or len(parents) > 1:
        names = None if stage.names is None else _attribute(dataset, stage.names)
        described["inputs"] = _inputs(inputs, names)
    return described, parents


def _inputs(datasets: Sequence[Any], names: Sequence[str] | None) -> dict[str, Any]:
    if not isinstance(datasets, (list, tuple)):
        return {"count": len(datasets)}  # Describing all of them might open files.
    keys = [str(number) for number in range(len(datasets))] if names is None else list(names)
    pipelines: list[Any] = [_stages(dataset) for dataset in datasets]
    inputs: dict[str, Any] = dict(zip(keys[:_MANY], pipelines[:_MANY], strict=True))
    if len(keys) > _MANY:
        inputs["others"] = f"{len(keys) - _MANY} more, {_digest(repr(pipelines).encode())}"
    return inputs


def _source_settings(dataset: Any) -> dict[str, Any]:
    """Return what distinguishes a source from others, including sources of users."""
    settings: dict[str, Any] = {}
    if hasattr(type(dataset), "__len__"):
        settings["length"] = _length(dataset)
    if not type(dataset).__module__.startswith("wholegrain.") and _represents_itself(dataset):
        settings["repr"] = identity(dataset)
    return settings


def _length(dataset: Any) -> int | None:
    try:
        return len(dataset)
    except TypeError:  # An infinite source.
        return None


def _settings(dataset: Any, names: Sequence[str]) -> dict[str, Any]:
    return {name.rpartition(".")[2]: _setting(dataset, name) for name in names}


def _setting(dataset: Any, name: str) -> Any:
    if name == "length":
        return _length(dataset)
    value = _attribute(dataset, name)
    return identity(value) if name == "source" else _plain(value)


def _attribute(dataset: Any, name: str) -> Any:
    value = dataset
    for part in name.split("."):
        public = getattr(value, part, None)
        # Many settings share their name with a method, such as `seed` and `slice`.
        is_setting = public is not None and not isinstance(public, types.MethodType)
        value = public if is_setting else getattr(value, f"_{part}", None)
    return value


def _plain(value: Any) -> Any:
    """Return a setting as a JSON value."""
    if isinstance(value, np.generic):
        return value.item()
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, enum.Enum):
        return value.name
    if isinstance(value, np.ndarray):
        return f"{len(value)} of {value.dtype}, {_digest(np.ascontiguousarray(value).tobytes())}"
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        if len(value) > _MANY:
            return f"{len(value)} values, {_digest(repr(value).encode())}"
        return [_plain(item) for item in value]
    return identity(value)


def identity(value: Any) -> str:
    """Return the name of a source or function: the same in every run, and without data."""
    if isinstance(value, functools.partial):
        return f"partial({identity(value.func)})"
    name = getattr(value, "__qualname__", None)
    if isinstance(name, str):
        return name
    if isinstance(value, np.ndarray):
        return f"ndarray of {value.dtype}{list(value.shape[1:])}"
    kind: Any = type(value)
    plain_repr = getattr(kind, "_plain_repr", None)
    if plain_repr is not None:
        return _short(plain_repr(value))  # Without the names that users give to stages.
    return _short(repr(value)) if _represents_itself(value) else kind.__qualname__


def _represents_itself(value: Any) -> bool:
    """Whether a class defines a `repr` that shows neither its address nor its data."""
    kind: Any = type(value)
    if kind.__repr__ is object.__repr__:
        return False
    return not any(kind.__repr__ is base.__repr__ for base in _CONTAINERS)


def _short(text: str) -> str:
    # Subclasses of ShardOptions differ only in where index and count came from.
    text = _SHARD_OPTIONS.sub("ShardOptions(", _ADDRESS.sub("", text))
    if len(text) <= _LONG_TEXT:
        return text
    return f"{text[: _LONG_TEXT // 2]}... ({len(text)} characters, {_digest(text.encode())})"


def _digest(data: bytes) -> str:
    return f"sha256 {hashlib.sha256(data).hexdigest()[:16]}"
