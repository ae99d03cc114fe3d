"""What to call instead of an attribute that a dataset or an iterator does not have."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

K = TypeVar("K")

_BEFORE = "before `to_iter_dataset()`: `MapDataset.source(...){}.to_iter_dataset()`"
_OF_ITERATORS = "It belongs to iterators: `it = iter(ds)`, then `it.{name}(...)`."
_OF_CLASSES = "It belongs to the class: `MapDataset.{name}(...)`."
_OF_DATASETS = "It belongs to datasets: `ds = ds.{name}(...)`, then `iter(ds)`."
_STREAM = "Call `to_iter_dataset()` first: `ds.to_iter_dataset().mp_prefetch(options)`."
_LIMIT = "`experimental.LimitIterDataset(ds, n)` has the first n elements."

_ITERATORS = dict.fromkeys(
    ("get_state", "set_state", "close", "report", "start_prefetch", "save", "load"), _OF_ITERATORS
)
_HINTS: dict[str, dict[str, str]] = {
    "MapDataset": {
        **_ITERATORS,
        **dict.fromkeys(("range", "mix", "concatenate", "select_from_datasets"), _OF_CLASSES),
        "mp_prefetch": _STREAM,
        "prefetch": _STREAM,
        "take": "`ds[:n]` has the first n elements.",
        "limit": "`ds[:n]` has the first n elements.",
        "skip": "`ds[n:]` skips the first n elements.",
        "shard": "`ds[shard_index::shard_count]` is one of several shards.",
        "flat_map": "`experimental.FlatMapMapDataset(ds, transform)` does it.",
        "zip": "`experimental.ZipMapDataset([ds, other])` does it.",
        "window_shuffle": (
            "`experimental.WindowShuffleMapDataset(ds, window_size=..., seed=...)` does it."
        ),
        "interleave": "`experimental.InterleaveIterDataset(ds, cycle_length=...)` does it.",
    },
    "IterDataset": {
        **_ITERATORS,
        "mix": "It belongs to the class: `IterDataset.mix([ds, other])`.",
        "shuffle": (
            "Shuffle the whole " + _BEFORE.format(".shuffle(seed=...)") + ", or a window:"
            " `experimental.WindowShuffleIterDataset(ds, window_size=..., seed=...)`."
        ),
        "repeat": (
            "Repeat " + _BEFORE.format(".repeat()") + ", which shuffles every epoch"
            " differently, or repeat the same elements: `experimental.RepeatIterDataset(ds)`."
        ),
        "slice": "Slice " + _BEFORE.format("[start:stop]") + ".",
        "to_iter_dataset": "It is an IterDataset already.",
        "take": _LIMIT,
        "limit": _LIMIT,
        "shard": "Shard " + _BEFORE.format("[shard_index::shard_count]") + ".",
        "flat_map": "`experimental.FlatMapIterDataset(ds, transform)` does it.",
        "zip": "`experimental.ZipIterDataset([ds, other])` does it.",
        "cache": "`experimental.CacheIterDataset(ds)` does it.",
        "rebatch": "`experimental.RebatchIterDataset(ds, batch_size)` does it.",
        "window_shuffle": (
            "`experimental.WindowShuffleIterDataset(ds, window_size=..., seed=...)` does it."
        ),
        "concatenate": "Concatenate random-access datasets: `MapDataset.concatenate([...])`.",
    },
    "class IterDataset": dict.fromkeys(
        ("source", "range", "concatenate", "select_from_datasets"),
        "`MapDataset.{name}(...).to_iter_dataset()` returns an IterDataset.",
    ),
    "DatasetIterator": dict.fromkeys(
        (
            *("map", "map_with_index", "random_map", "filter", "batch", "seed", "apply", "pipe"),
            *("shuffle", "repeat", "slice", "to_iter_dataset", "mp_prefetch"),
        ),
        _OF_DATASETS,
    ),
}

NO_INDEX = (
    "An IterDataset has no elements by index: it returns them in order, `next(iter(ds))`."
    " Use `ds[index]` and `ds[start:stop]` before `to_iter_dataset()`."
)


class _NoAttribute:
    """An attribute that a class does not have; the error says what to call instead.

    `__getattr__` would be simpler, but it slows down all other attributes, because Python does not
    specialise attribute access for classes that define it.
    """

    def __init__(self, name: str, hint: str) -> None:
        self._name = name
        self._hint = hint.format(name=name)

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        if instance is not None:
            who = f"'{type(instance).__name__}' object"
        elif hasattr(type(owner), self._name):  # Constructors are attributes of the classes only.
            return getattr(type(owner), self._name).__get__(owner)
        else:
            who = f"type object '{owner.__name__}'"
        raise AttributeError(f"{who} has no attribute '{self._name}'. {self._hint}")


def with_hints(cls: type[K]) -> type[K]:
    """Add the hints for its missing attributes to a class."""
    for name, hint in _HINTS[cls.__name__].items():
        if name not in dir(cls):
            setattr(cls, name, _NoAttribute(name, hint))
    return cls


def names_of(asked: Any) -> list[str]:
    """Return the names of an object's attributes, without those that only raise a hint."""
    return [name for name in object.__dir__(asked) if hasattr(asked, name)]


def no_attribute(asked: type, kind: str, name: str) -> Any:
    """Raise an AttributeError as Python would, with a hint what to call instead if there is one.

    Args:
        asked: The class that has no such attribute.
        kind: The kind of the class: a key of the table above.
        name: The attribute.
    """
    hint = _HINTS[kind].get(name)
    if hint is None:
        return type.__getattribute__(asked, name)
    said = f"type object '{asked.__name__}'"
    raise AttributeError(f"{said} has no attribute '{name}'. {hint.format(name=name)}")


class WrongKindError(TypeError, AttributeError):
    """A dataset does not support this operator; `hasattr` returns False."""


class NotThere:
    """A special method that a class does not have; the error says what to call instead."""

    def __init__(self, hint: str) -> None:
        self._hint = hint

    if not TYPE_CHECKING:

        def __get__(self, instance: Any, owner: Any = None) -> NoReturn:
            raise WrongKindError(self._hint)
