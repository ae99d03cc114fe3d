"""How many workers are wanted, by what is seen of them. No clock and no processes here."""

import dataclasses
from collections.abc import Callable

from wholegrain._read.controller import Controller, Observation

_MANY_BYTES = 1 << 40


@dataclasses.dataclass
class _World:
    """A consumer and workers, as far as their speed goes.

    Args:
        rate: How many elements a second that many workers make.
        demand: How many the consumer takes, at most.
        worker_bytes: What a worker takes.
        room: How many times the first room is needed, so that workers do not stand still.
    """

    rate: Callable[[int], float]
    demand: float = float("inf")
    worker_bytes: int = 0
    element_bytes: int = 0
    room: int = 1

    def run(self, controller: Controller, windows: int = 60) -> list[int]:
        """Let some time pass; return how many workers there were."""
        counts = []
        for _ in range(windows):
            made = self.rate(controller.wanted)
            is_full = controller.room < self.room
            if is_full:
                made /= 2
            given = min(made, self.demand)
            waited = 0.0 if made > self.demand else 1 - min(1.0, made / self.demand)
            waited = 0.9 if self.demand == float("inf") else waited
            controller.learn(
                Observation(
                    seconds=1.0,
                    waited=waited,
                    given=int(given),
                    was_full=is_full,
                    buffered_bytes=self.element_bytes * controller.room,
                    worker_bytes=self.worker_bytes * controller.wanted,
                )
            )
            counts.append(controller.wanted)
        return counts


def _controller(most: int = 8, nbytes: int = _MANY_BYTES, grows: bool = False) -> Controller:
    return Controller(most, nbytes, grows_room=grows)


def test_there_is_one_worker_at_first() -> None:
    assert _controller().wanted == 1


def test_workers_are_added_up_to_the_cap_while_that_helps() -> None:
    counts = _World(rate=lambda workers: 100 * workers).run(_controller(most=6), windows=20)
    assert counts[-1] == 6
    assert max(counts) == 6


def test_workers_that_make_nothing_quicker_are_given_up() -> None:
    world = _World(rate=lambda workers: 100 * min(workers, 2))
    counts = world.run(_controller(), windows=400)
    assert counts.count(2) > 350


def test_tries_that_fail_become_rare() -> None:
    controller = _controller()
    world = _World(rate=lambda workers: 100.0)
    early = world.run(controller, windows=100)
    for _ in range(4):
        late = world.run(controller, windows=100)
    assert sum(count > 1 for count in late) < sum(count > 1 for count in early)


def test_there_are_no_more_workers_than_the_consumer_needs() -> None:
    world = _World(rate=lambda workers: 100 * workers, demand=250)
    counts = world.run(_controller(), windows=300)
    assert counts.count(3) + counts.count(4) > 200
    assert counts.count(3) > counts.count(4)


def test_workers_are_let_go_when_the_consumer_slows_down() -> None:
    controller = _controller()
    _World(rate=lambda workers: 100 * workers).run(controller)
    assert controller.wanted == 8
    _World(rate=lambda workers: 100 * workers, demand=50).run(controller, windows=200)
    assert controller.wanted == 1


def test_memory_is_a_cap_too() -> None:
    world = _World(rate=lambda workers: 100 * workers, worker_bytes=1 << 20)
    controller = _controller(nbytes=3 << 20)
    assert max(world.run(controller)) <= 3
    # Workers that have grown since are let go.
    _World(rate=lambda workers: 100 * workers, worker_bytes=2 << 20).run(controller)
    assert controller.wanted == 1


def test_room_grows_where_workers_have_none_and_memory_allows_it() -> None:
    world = _World(rate=lambda workers: 100.0, room=8, element_bytes=1 << 20)
    controller = _controller(grows=True)
    world.run(controller)
    assert controller.room == 8
    tight = _controller(nbytes=4 << 20, grows=True)
    world.run(tight)
    assert tight.room == 4
    fixed = _controller(grows=False)
    world.run(fixed)
    assert fixed.room == 1
