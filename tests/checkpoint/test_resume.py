"""check_resume: a pipeline restored in another process, at steps chosen by chance."""

import itertools
import os
import random
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import wholegrain as wg
from wholegrain import experimental
from wholegrain.testing import check_resume

R = wg.MapDataset.range


class Augment(wg.transforms.RandomMap):
    def random_map(self, element: int, rng: np.random.Generator) -> dict[str, Any]:
        return {"x": np.full(1 + element % 3, element), "noise": rng.random()}


def shuffled() -> Any:
    return R(40).seed(3).shuffle().random_map(Augment())


def packed() -> Any:
    ds = R(60).map(lambda x: {"x": np.full(1 + x % 3, x)}).to_iter_dataset()
    ds = experimental.WindowShuffleIterDataset(ds, window_size=7, seed=1)
    return experimental.FirstFitPackIterDataset(ds, length_struct={"x": 4}, num_packing_bins=3)


def in_workers() -> Any:
    ds = shuffled().to_iter_dataset().filter(lambda element: element["x"][0] % 5)
    return ds.batch(1).mp_prefetch(wg.MultiprocessingOptions(num_workers=2))


def loader(workers: int = 0) -> Any:
    return wg.DataLoader(
        data_source=list(range(50)),
        sampler=wg.samplers.IndexSampler(50, shuffle=True, num_epochs=2, seed=1),
        operations=[Augment(), wg.transforms.Batch(1)],
        worker_count=workers,
    )


PIPELINES: dict[str, Callable[[], Any]] = {
    "map": shuffled,
    "endless": lambda: shuffled().repeat(),
    "packed": packed,
    "workers": in_workers,
    "loader": loader,
    "loader with workers": lambda: loader(2),
    "empty": lambda: R(0),
}


@pytest.mark.parametrize("name", PIPELINES)
def test_pipelines_resume_in_another_process(name: str) -> None:
    check_resume(PIPELINES[name](), num_restores=1, max_elements=30)


def test_a_function_may_make_the_pipeline() -> None:
    check_resume(shuffled, num_restores=2)


def test_elements_may_be_of_classes_of_the_test() -> None:
    class Pair:
        def __init__(self, x: int) -> None:
            self.x = x

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Pair) and other.x == self.x

        __hash__ = None  # type: ignore[assignment]

    check_resume(R(5).map(Pair), num_restores=1)


def test_random_numbers_that_nobody_seeded_are_found() -> None:
    generator = random.Random()
    with pytest.raises(AssertionError, match=r"step \d+ was restored .* element \d+ is not what"):
        check_resume(R(20).map(lambda x: (x, generator.random())), num_restores=1)


def test_a_process_that_has_another_order_is_found() -> None:
    here = os.getpid()

    def order() -> Any:
        return R(20).shuffle(seed=1 if os.getpid() == here else 2)

    with pytest.raises(AssertionError, match="not what it should be"):
        check_resume(order, num_restores=1)


class Counting(wg.DatasetIterator[int]):
    """An iterator with mistakes to choose from."""

    def __init__(self, mistake: str) -> None:
        super().__init__()
        self._mistake = mistake
        self._at = 0

    def __next__(self) -> int:
        if self._at == 10:
            raise StopIteration
        self._at += 1
        return self._at

    def get_state(self) -> Any:
        if self._mistake == "not JSON":
            return {"at": {1, 2}}
        return {"at": self._at}

    def set_state(self, state: Any) -> None:
        match self._mistake:
            case "too short":
                self._at = 10
            case "too long":
                self._at = state["at"] - 1
            case "fails":
                raise RuntimeError("The file has gone.")
            case "dies":
                os._exit(7)
            case "forgets":
                pass
            case _:
                self._at = state["at"]


class Counted(wg.IterDataset[int]):
    def __init__(self, mistake: str) -> None:
        super().__init__()
        self._mistake = mistake

    def __iter__(self) -> Counting:
        return Counting(self._mistake)


@pytest.mark.parametrize(
    ("mistake", "message"),
    [
        ("too short", r"element \d+ is missing.*\nfound: the end"),
        ("too long", r"element \d+ is not what it should be"),
        ("forgets", r"expected: \d+\nfound: 1"),
        ("fails", r"the state could not be set.*The file has gone\."),
        ("dies", r"it ended with exit code 7"),
        ("not JSON", r"The state after 0 elements cannot be written as JSON"),
    ],
)
def test_mistakes_are_found_and_told(mistake: str, message: str) -> None:
    # The seed chooses a step in the middle.
    with pytest.raises(AssertionError) as caught:
        check_resume(Counted(mistake), num_restores=1, seed=1)
    assert re.search(message, str(caught.value), re.DOTALL)


def test_a_run_that_does_not_end_is_found() -> None:
    here = os.getpid()

    def longer() -> Any:
        return R(10 if os.getpid() == here else 11)

    with pytest.raises(
        AssertionError, match=r"it goes on after its end\.\nexpected: the end\nfound: 10"
    ):
        check_resume(longer, num_restores=1)


def test_what_cannot_be_pickled_is_told() -> None:
    lock_like = (number for number in itertools.count())
    with pytest.raises(AssertionError, match="cannot be pickled, to be sent to another process"):
        check_resume(R(5).map(lambda x: (x, lock_like)))
