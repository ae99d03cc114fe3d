"""States, texts and directories that are damaged, one change at a time."""

import copy
import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

NOT_A_PART: list[Any] = [
    *(None, "text", "", "3", b"bytes", 1.5, 3.0, float("nan"), float("inf"), True, False),
    *([], [[1]], [None], {}, {"next_index": "x"}, {"a": {}}, {"parent": {"next_index": 1}}),
]
"""What stands in place of a part of a state."""

NUMBERS = [-1, -(10**30), 10**6, 2**31, 2**32, 2**62, 2**63 - 1, 2**63, 2**64, 10**400, 10**5000]
"""What stands in place of a number."""


def mutations(state: Any, others: list[Any]) -> Iterator[Any]:
    """Yield a state with one change, for each of its parts and each kind of change.

    Args:
        state: As JSON gives it back.
        others: States of other pipelines, that stand in place of its parts as well.
    """
    for nonsense in [*NOT_A_PART, *NUMBERS, *others]:
        yield copy.deepcopy(nonsense)
    yield [state]
    yield {"parent": state}
    if isinstance(state, dict):
        for key, value in state.items():
            rest = {name: part for name, part in state.items() if name != key}
            yield rest
            yield {**rest, f"{key}_": value}
            yield {**rest, key.upper(): value}
            yield from ({**state, key: part} for part in mutations(value, others))
            yield from ({**state, key: part} for part in rest.values())  # Parts change places.
    elif isinstance(state, list):
        yield from (state[:-1], state[1:], state[::-1], [*state, None], state + state)
        for place, value in enumerate(state):
            for part in mutations(value, others):
                yield [*state[:place], part, *state[place + 1 :]]


def some_of(changes: Iterator[Any], count: int, seed: int) -> list[Any]:
    """Return so many of the changes, by chance, or all if there are fewer."""
    found = list(changes)
    return random.Random(seed).sample(found, min(count, len(found)))


def text_mutations(text: bytes, count: int, seed: int) -> Iterator[bytes]:
    """Yield a text with one change: bytes flipped, cut, put in or doubled, or something else."""
    yield from (b"", b"null", b"[]", b"3", b'"text"', b"NaN", b"{}", b'{"a": 1}', b"\xff\xfe{}")
    yield from (text.decode().encode("utf-16"), text + text, b"\0" * len(text), b"[" * 100_000)
    yield text.replace(b"{", b"[").replace(b"}", b"]")
    choose = random.Random(seed)
    for _ in range(count):
        at, kind = choose.randrange(len(text)), choose.randrange(5)
        if kind == 0:
            yield text[:at] + bytes([text[at] ^ 1 << choose.randrange(8)]) + text[at + 1 :]
        elif kind == 1:
            yield text[:at]
        elif kind == 2:
            yield text[:at] + bytes([choose.randrange(256)]) + text[at:]
        elif kind == 3:
            yield text[:at] + text[at + 1 + choose.randrange(9) :]
        else:
            yield text[:at] + text[at : at + 12] + text[at:]


def directory_mutations(name: str) -> dict[str, Callable[[Path], object]]:
    """Return what can happen to the file `name` of a checkpoint, by how that is called."""

    def renamed(to: str) -> Callable[[Path], object]:
        return lambda folder: folder.joinpath(name).replace(folder / to)

    def written(content: bytes) -> Callable[[Path], object]:
        return lambda folder: folder.joinpath(name).write_bytes(content)

    def half(folder: Path) -> None:
        file = folder / name
        file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])

    def is_a_folder(folder: Path) -> None:
        (folder / name).unlink()
        (folder / name).mkdir()

    return {
        "missing": lambda folder: (folder / name).unlink(),
        "renamed": renamed(f"{name}.old"),
        "of other processes": renamed("process_3-of-7.json"),
        "of too many processes": renamed("process_1-of-2.json"),
        "half": half,
        "a folder": is_a_folder,
        **{
            f"{content[:8]!r}": written(content)
            for content in (
                *(b"", b"\0" * 64, b"\xff\xfe\xfd", b"nothing", b"{", b"[" * 100_000),
                *(b"null", b"3", b"[]", b"{}", b"NaN", json.dumps({"other": 1}).encode()),
            )
        },
    }
