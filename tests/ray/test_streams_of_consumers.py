"""The actor of `serve`, called directly: consumers go back at random."""

import pickle
import random
from typing import Any

import pytest

import wholegrain as wg
from wholegrain._workers.program import Program
from wholegrain.ray import _server
from wholegrain.ray._server import PipelineServer


class _Consumer:
    """What `connect` does, without a cluster."""

    def __init__(self, server: PipelineServer, number: int, consumers: int) -> None:
        self._server, self._number, self._consumers = server, number, consumers
        self._session, _ = server.join(number)
        self._calls = 0
        self.saved: list[tuple[int, Any]] = [(0, None)]
        self.go_to(0)

    def go_to(self, count: int) -> None:
        self.count = count
        self._at, self._state = self.saved[count]

    def take(self) -> list[int] | int:
        """Return the elements of one answer, none at the end; or the consumer it waits for."""
        self._calls += 1
        index = self._number + self.count * self._consumers
        ticket = (self._session, self._calls)
        kind, items = self._server.fetch(self._number, ticket, index, self._at, self._state)
        if kind == "end":
            return []
        if kind == "wait":
            return self._number if items is None else int(items)
        assert kind == "elements", (kind, items)
        seen = []
        for number, pickled, _, _, after in items:
            assert number == self._number + self.count * self._consumers
            seen.append(pickle.loads(pickled))
            self.count += 1
            self._at, self._state = number + 1, pickle.loads(after)
            if self.count == len(self.saved):
                self.saved.append((self._at, self._state))
        return seen


@pytest.mark.parametrize("seed", range(8))
def test_consumers_that_go_back_at_random_get_their_elements(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_server, "_ANSWER_AFTER_S", 0.02)
    rng = random.Random(seed)
    length, consumers = rng.randrange(0, 120), rng.randrange(1, 5)
    pipeline: Any = wg.MapDataset.range(length).shuffle(seed=seed).to_iter_dataset()
    expected = list(pipeline)
    program = Program.pack(pipeline)
    copy = program.copy_inline()
    server = PipelineServer(copy, bytearray(copy.inline or b""), consumers, rng.randrange(1, 5))
    all_of_them = [_Consumer(server, number, consumers) for number in range(consumers)]
    ended: set[int] = set()
    next_one, waits = None, 0
    for _ in range(400):
        if (
            rng.random() < 0.1 and next_one is None
        ):  # Some go back, or all of them, as after a restart.
            share = rng.random()
            for number, one in enumerate(all_of_them):
                if rng.random() < share:
                    one.go_to(rng.randrange(len(one.saved)))
                    ended.discard(number)
        waiting = [number for number in range(consumers) if number not in ended]
        if not waiting:
            continue
        number = min(waiting, key=lambda each: all_of_them[each].count)
        if next_one is not None:  # Each would run in a process of its own.
            number = next_one
        before = all_of_them[number].count
        seen = all_of_them[number].take()
        if isinstance(seen, int):
            next_one, waits = seen, waits + 1
            assert waits < 50, "they wait for each other"
            continue
        next_one, waits = None, 0
        assert seen == expected[number::consumers][before : before + len(seen)]
        if not seen:
            assert before == len(expected[number::consumers])
            ended.add(number)
