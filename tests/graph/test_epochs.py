"""A loop over epochs that reads the first one every time is noticed."""

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pytest

import wholegrain as wg
from wholegrain import experimental


def _draw(element: int, rng: np.random.Generator) -> int:
    return element + int(rng.integers(9))


class Drawn(wg.transforms.RandomMap):
    def random_map(self, element: int, rng: np.random.Generator) -> int:
        return _draw(element, rng)


def _loader(**changed: Any) -> Any:
    given: dict[str, Any] = {"shuffle": True, "seed": 1, "num_epochs": 1}
    return wg.load(range(9), **(given | changed))


def _said(caplog: pytest.LogCaptureFixture, make: Callable[[], Iterable[Any]]) -> list[str]:
    dataset = make()
    for _ in range(4):
        for _ in dataset:
            pass
    return [record.getMessage() for record in caplog.records]


R = wg.MapDataset.range


@pytest.mark.parametrize(
    ("make", "stages"),
    [
        (lambda: R(9).shuffle(seed=1), "shuffle"),
        (lambda: R(9).shuffle(seed=1).batch(2).to_iter_dataset(), "shuffle"),
        (lambda: R(9).random_map(_draw, seed=1), "random_map(_draw)"),
        (lambda: R(9).to_iter_dataset().random_map(_draw, seed=1), "random_map(_draw)"),
        (
            lambda: R(9).shuffle(seed=1).random_map(_draw, seed=2),
            "shuffle and random_map(_draw)",
        ),
        (
            lambda: experimental.WindowShuffleIterDataset(
                R(9).to_iter_dataset(), window_size=3, seed=1
            ),
            "window_shuffle",
        ),
        (_loader, "num_epochs"),
        (lambda: _loader(shuffle=False, transformations=[Drawn()]), "num_epochs"),
    ],
    ids=range(8),
)
def test_the_second_time_is_noticed_once(
    caplog: pytest.LogCaptureFixture, make: Callable[[], Iterable[Any]], stages: str
) -> None:
    (message,) = _said(caplog, make)
    assert stages in message
    assert ".repeat(num_epochs)" in message


@pytest.mark.parametrize(
    "make",
    [
        lambda: R(9),
        lambda: R(9).map(str).batch(2).to_iter_dataset(),
        lambda: R(9).shuffle(seed=1).repeat(2),
        lambda: experimental.RepeatIterDataset(R(9).shuffle(seed=1).to_iter_dataset(), 2),
        lambda: _loader(shuffle=False),
        lambda: _loader(num_epochs=2),
    ],
    ids=range(6),
)
def test_what_is_the_same_by_intention_is_not(
    caplog: pytest.LogCaptureFixture, make: Callable[[], Iterable[Any]]
) -> None:
    assert _said(caplog, make) == []


def test_another_dataset_for_each_epoch_is_not_noticed(caplog: pytest.LogCaptureFixture) -> None:
    for epoch in range(3):
        list(R(9).shuffle(seed=epoch))
    assert not caplog.records


def test_a_look_at_the_first_element_and_a_restore_are_not(
    caplog: pytest.LogCaptureFixture,
) -> None:
    ds = R(9).shuffle(seed=1).to_iter_dataset()
    for _ in range(3):
        next(iter(ds))
    it = iter(ds)
    elements = [next(it), next(it)]
    state = it.get_state()
    elements += it
    for _ in range(3):
        it = iter(ds)
        it.set_state(state)
        assert [*elements[:2], *it] == elements
    assert not caplog.records
