"""Draws a pipeline from a seed: a list of steps in plain data, which either library can build."""

import random
from dataclasses import dataclass, field
from typing import Any

Step = tuple[Any, ...]
"""The name of an operation and its arguments: parts of a mixture are lists of steps."""

BATCH_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
KINDS = ("int", "int", "int", "str", "dict", "dict", "flat", "nested", "array", "rows", "big")
STACKED = ("int", "str", "dict", "flat", "nested", "array", "rows", "big")
READ_OPTIONS = ((0, 0), (0, 0), None, None, (1, 16), (4, 64), (16, 4))


@dataclass
class Draft:
    """Steps so far, and what is known of the elements."""

    random: random.Random
    kind: str = "int"
    length: int = 0
    sparse: bool = False
    infinite: bool = False
    steps: list[Step] = field(default_factory=list)

    def add(self, *step: Any) -> None:
        self.steps.append(step)

    def chance(self, probability: float) -> bool:
        return self.random.random() < probability

    def one_of(self, choices: Any) -> Any:
        return self.random.choice(choices)


def draw(seed: int, number: int) -> list[Step]:
    """Return the steps of one pipeline: the same for the same seed and number."""
    draft = Draft(random.Random(f"{seed}/{number}"))
    shape = draft.random.random()
    if shape < 0.15:
        _loader(draft, workers=number % 40 == 7)
        return draft.steps
    _map_stages(draft)
    if number % 40 == 23:
        _with_workers(draft)
        return draft.steps
    if draft.chance(0.35) and not draft.sparse:
        _batch(draft)
        draft.add("iter", draft.one_of(((0, 0), (0, 0), (1, 16), (4, 16), (16, 4))))
    else:
        draft.add("iter", draft.one_of(READ_OPTIONS))
        _iter_stages(draft)
    return draft.steps


def text_of(steps: list[Step]) -> str:
    """Return the steps on one line."""
    return " | ".join(_step_text(step) for step in steps)


def _step_text(step: Step) -> str:
    name, *arguments = step
    if name in ("mix", "concatenate"):
        parts = arguments[0]
        arguments[0] = f"{len(parts)} like {text_of(parts[0])}"
    shown = [str(one) for one in arguments]
    return f"{name}({', '.join(shown)})" if shown else str(name)


def lump_of(steps: list[Step]) -> int:
    """Return how many items are made together: samples are whole multiples of that."""
    lump = 1.0
    for name, *arguments in steps:
        if name == "windows":
            lump = max(lump, arguments[0])
        elif name == "flat_map":
            lump *= 2
        elif name == "batch":
            lump /= arguments[1]
        elif name == "pack":
            lump = max(lump / 14, 16)
    return max(1, round(lump))


# Random access.


def _source(draft: Draft, kinds: tuple[str, ...] = (*KINDS, "point", "sample", "tokens")) -> None:
    draft.kind = draft.one_of(kinds)
    if draft.kind == "int" and draft.chance(0.3):
        draft.length = draft.one_of((1_000, 100_000, 10**9))
        draft.add("range", draft.length)
        return
    draft.length = draft.one_of((1_000, 5_000, 20_000, 100_000))
    reads = "as it is" if draft.kind == "rows" else draft.one_of(("as it is", "one", "many"))
    draft.add("source", draft.kind, draft.length, reads)


def _map_stages(draft: Draft) -> None:
    shape = draft.random.random()
    if shape < 0.12:
        _mix(draft)
    elif shape < 0.18:
        _source(draft)
        other = Draft(draft.random)
        _source(other, (draft.kind,))
        draft.add("concatenate", [other.steps])
        draft.length += other.length
    else:
        _source(draft)
    if draft.chance(0.6):
        draft.add("shuffle", draft.random.randrange(1000))
    for _ in range(draft.one_of((0, 1, 1, 2, 2, 3, 4))):
        stage = draft.one_of(_MAP_STAGES)
        stage(draft)
    if draft.infinite:
        return
    if draft.chance(0.5):
        draft.add("repeat", None)
        draft.infinite = True
    elif draft.chance(0.2):
        draft.add("repeat", 2)


def _mix(draft: Draft) -> None:
    count = draft.one_of((2, 3, 5, 5, 20))
    kind = draft.one_of(("int", "dict", "array"))
    parts = []
    repeats = draft.chance(0.5)
    shuffles = draft.chance(0.5)
    for _ in range(count):
        part = Draft(draft.random)
        _source(part, (kind,))
        if shuffles:
            part.add("shuffle", draft.random.randrange(1000))
        if repeats:
            part.add("repeat", None)
        parts.append(part.steps)
    draft.kind, draft.infinite, draft.length = kind, repeats, 1_000
    weights = None if draft.chance(0.4) else [draft.random.randint(1, 9) for _ in parts]
    draft.add("mix", parts, weights)


def _map(draft: Draft) -> None:
    draft.add("map", draft.kind)


def _random_map(draft: Draft) -> None:
    if draft.kind in ("int", "dict", "flat", "nested", "array", "rows", "big"):
        draft.add("random_map", draft.kind, draft.random.randrange(1000))
    else:
        draft.add("map", draft.kind)


def _map_with_index(draft: Draft) -> None:
    draft.add("map_with_index")


def _filter(draft: Draft) -> None:
    draft.add("filter", draft.kind)
    draft.sparse = True


def _slice(draft: Draft) -> None:
    if not draft.infinite and draft.length > 1_000:
        draft.add("slice", 1, 3)
        draft.length //= 3


def _windows(draft: Draft) -> None:
    size = draft.one_of((50, 1000))
    # Where windows do not divide the length, Grain has another order, which is a known difference.
    if not draft.infinite and draft.length % size == 0:
        draft.add("map_windows", size, draft.random.randrange(100))


_MAP_STAGES = (_map, _map, _map, _random_map, _map_with_index, _filter, _slice, _windows)


def _batch(draft: Draft) -> None:
    if draft.kind in ("point", "sample"):
        draft.add("to_dict")
        draft.kind = "dict"
    if draft.kind in STACKED:
        most = 32 if draft.kind == "big" else 512
        if not draft.infinite:
            most = min(most, max(1, draft.length // 8))  # Filters leave less.
        draft.add("batch", draft.kind, min(most, draft.one_of(BATCH_SIZES)))
        draft.kind = "batch"


# Iteration.


def _iter_stages(draft: Draft) -> None:
    for _ in range(draft.one_of((0, 1, 1, 2, 3))):
        stage = draft.one_of(_ITER_STAGES)
        stage(draft)
    if draft.kind == "tokens" and draft.chance(0.8):
        draft.add("pack", draft.one_of(("first", "best", "concat")))
        draft.kind = "batch"
    if draft.chance(0.75):
        _batch(draft)
    if draft.chance(0.12):
        draft.add("thread_prefetch", draft.one_of((1, 2, 16)))
    elif draft.chance(0.08) and not {"zip", "interleave"} & {step[0] for step in draft.steps}:
        # There one dataset stands twice, of which Grain takes a part of a part.
        draft.add("multithread_prefetch", draft.one_of((1, 2)), 4)


def _iter_windows(draft: Draft) -> None:
    draft.add("windows", draft.one_of((16, 100, 1000)), draft.random.randrange(100))


def _flat_map(draft: Draft) -> None:
    draft.add("flat_map")


def _interleave(draft: Draft) -> None:
    draft.add("interleave", draft.one_of((2, 4)))


def _zip(draft: Draft) -> None:
    draft.add("zip")
    draft.kind = "tuple"


def _thread_prefetch(draft: Draft) -> None:
    draft.add("thread_prefetch", draft.one_of((1, 8, 64)))


def _iter_random_map(draft: Draft) -> None:
    _random_map(draft) if draft.kind != "tuple" else _map(draft)


def _iter_filter(draft: Draft) -> None:
    _filter(draft) if draft.kind != "tuple" else _map(draft)


_ITER_STAGES = (
    *(_map, _map, _map, _iter_random_map, _iter_filter, _map_with_index),
    *(_iter_windows, _flat_map, _interleave, _zip, _thread_prefetch),
)


def _with_workers(draft: Draft) -> None:
    if not draft.infinite:
        draft.add("repeat", None)  # So that workers are started once.
    if draft.kind in STACKED and not draft.sparse:
        draft.add("batch", draft.kind, draft.one_of((16, 64, 256)))
    draft.add("iter", (0, 0))
    draft.add("workers", 2)


# The DataLoader.


def _loader(draft: Draft, workers: bool) -> None:
    _source(draft, KINDS)
    while draft.steps[0][0] == "range":
        draft.steps.clear()
        _source(draft, KINDS)
    shuffles = draft.chance(0.7)
    draft.add("loader", shuffles, draft.one_of((None, 1)), draft.random.randrange(1000))
    if workers:
        draft.steps[-1] = ("loader", shuffles, None, 1)
    for _ in range(draft.one_of((0, 1, 2, 3))):
        stage = draft.one_of((_map, _map, _random_map, _filter))
        stage(draft)
    if draft.chance(0.8):
        _batch(draft)
    draft.add("load", draft.one_of(READ_OPTIONS), 2 if workers else 0)
