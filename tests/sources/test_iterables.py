"""Iterables as datasets: generators, objects with states, and Hugging Face's streaming datasets."""

import copy
import json
from collections.abc import Iterator
from typing import Any

import pytest

import wholegrain as wg
from wholegrain.experimental import (
    HFIterableDatasetProtocol,
    HFIterDataset,
    IterableIterDataset,
    get_next_index,
    set_next_index,
)
from wholegrain.testing import check_iter_dataset


def squares() -> Iterator[int]:
    for number in range(20):
        yield number * number


def test_a_generator_function_is_called_for_each_iteration() -> None:
    ds = IterableIterDataset(squares)
    assert list(ds) == list(ds) == [number * number for number in range(20)]
    check_iter_dataset(ds)
    check_iter_dataset(ds.batch(3).filter(lambda batch: batch.sum() % 2))
    it = iter(ds)
    next(it), next(it)
    assert it.get_state() == {"count_elements_read": 2}


def test_iterables_that_can_be_iterated_over_again() -> None:
    for iterable in ([1, 2, 3], range(5), {"a": 1}, "text"):
        ds: Any = IterableIterDataset(iterable)
        assert list(ds) == list(iterable)
        check_iter_dataset(ds)
    assert list(IterableIterDataset(lambda: [1, 2])) == [1, 2]


def test_what_cannot_be_iterated_over_is_refused() -> None:
    with pytest.raises(TypeError, match="got a generator, which can be iterated over only once"):
        IterableIterDataset(squares())
    with pytest.raises(TypeError, match="but got a int"):
        IterableIterDataset(5)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="has to return an iterable, but returned a NoneType"):
        list(IterableIterDataset(lambda: None))  # type: ignore[arg-type, return-value]
    with pytest.raises(ValueError, match="after 30 elements, but there are 20"):
        iter(IterableIterDataset(squares)).set_state({"count_elements_read": 30})
    with pytest.raises(ValueError, match="lacks 'count_elements_read'"):
        iter(IterableIterDataset(squares)).set_state({})


class Numbers:
    """An iterator with a state, which counts how many numbers it made."""

    made = 0

    def __init__(self) -> None:
        self.at = 0

    def __iter__(self) -> "Numbers":
        return self

    def __next__(self) -> int:
        if self.at == 30:
            raise StopIteration
        type(self).made += 1
        self.at += 1
        return self.at

    def state_dict(self) -> dict[str, int]:
        return {"at": self.at}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.at = state["at"]


def test_a_state_of_the_iterator_itself_is_used() -> None:
    ds = IterableIterDataset(Numbers)
    check_iter_dataset(ds)
    it = iter(ds)
    assert [next(it) for _ in range(10)] == list(range(1, 11))
    state = json.loads(json.dumps(it.get_state()))
    assert state == {"count_elements_read": 10, "iterable_state_dict": {"at": 10}}
    Numbers.made = 0
    it.set_state(state)
    assert next(it) == 11
    assert Numbers.made <= 2
    with pytest.raises(ValueError, match="is not a dict"):
        it.set_state({"count_elements_read": 1, "iterable_state_dict": 5})


def test_an_exception_of_the_iterable_is_raised() -> None:
    def fails() -> Iterator[int]:
        yield 1
        raise RuntimeError("no more")

    it = iter(IterableIterDataset(fails))
    assert next(it) == 1
    with pytest.raises(RuntimeError, match="no more"):
        next(it)


class Sharded:
    """An iterable that can be shared by workers."""

    def __init__(self, start: int = 0, step: int = 1) -> None:
        self.start, self.step = start, step

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.start, 20, self.step))

    def shard(self, num_shards: int, index: int) -> "Sharded":
        return Sharded(index, num_shards)


def test_workers_share_an_iterable_that_has_shards() -> None:
    options = wg.MultiprocessingOptions(num_workers=2)
    assert list(IterableIterDataset(Sharded()).mp_prefetch(options)) == list(range(20))
    with pytest.raises(ValueError, match="function has no method `shard"):
        iter(IterableIterDataset(squares).mp_prefetch(options))
    with pytest.raises(ValueError, match="list has no method `shard"):
        iter(HFIterDataset([1, 2]).mp_prefetch(options))
    one = wg.MultiprocessingOptions(num_workers=1)
    assert list(IterableIterDataset(squares).mp_prefetch(one)) == list(squares())


# Hugging Face.


def test_any_iterable_is_accepted_and_nothing_else() -> None:
    ds = HFIterDataset([5, 6, 7])
    assert list(ds) == [5, 6, 7]
    assert str(ds) == "HFIterDataset"
    check_iter_dataset(ds)
    with pytest.raises(TypeError, match=r"Expected an iterable object, got <class 'int'>"):
        HFIterDataset(5)
    it = iter(ds)
    set_next_index(it, 2)
    assert next(it) == 7
    assert get_next_index(it) == 3
    assert it.get_state() == {"count_elements_read": 3}


class FrozenState(Sharded):
    """Behaves as version 5.0 of datasets: after the first resume the state does not change."""

    def __init__(self) -> None:
        super().__init__()
        self.loaded: dict[str, int] | None = None
        self.at = 0

    def __iter__(self) -> Iterator[int]:
        self.at = 0 if self.loaded is None else self.loaded["at"]
        for number in range(self.at, 20):
            self.at = number + 1
            yield number

    def state_dict(self) -> dict[str, int]:
        return {"at": self.at} if self.loaded is None else dict(self.loaded)

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.loaded = state


def test_a_state_that_is_frozen_after_a_resume_is_noticed() -> None:
    ds = HFIterDataset(FrozenState())
    it = iter(ds)
    taken = [next(it) for _ in range(5)]
    for _ in range(5):
        state = json.loads(json.dumps(it.get_state()))
        it = iter(ds)
        it.set_state(state)
        taken += [next(it), next(it)]
    assert taken + list(it) == list(range(20))


def _datasets() -> Any:
    return pytest.importorskip("datasets")


def _numbers(count: int, **kwargs: Any) -> Any:
    return _datasets().Dataset.from_dict({"n": list(range(count))}).to_iterable_dataset(**kwargs)


def _makers() -> dict[str, Any]:
    return {
        "one shard": lambda: _numbers(60),
        "shards": lambda: _numbers(60, num_shards=4),
        "map": lambda: _numbers(60, num_shards=4).map(lambda row: {"n": row["n"] + 1}),
        "batched map": lambda: _numbers(60).map(lambda rows: rows, batched=True, batch_size=8),
        "filter": lambda: _numbers(60).filter(lambda row: row["n"] % 3 == 0),
        "shuffle": lambda: _numbers(60, num_shards=4).shuffle(seed=1, buffer_size=10),
        "shuffle and map": lambda: _numbers(60).shuffle(seed=1).map(lambda row: row),
        "skip and take": lambda: _numbers(60).skip(7).take(40),
        "generator": lambda: _datasets().IterableDataset.from_generator(
            lambda: ({"n": number} for number in range(60))
        ),
    }


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", _makers())
def test_hugging_face_datasets_resume_exactly(name: str) -> None:
    hf_ds = _makers()[name]()
    assert isinstance(hf_ds, HFIterableDatasetProtocol)
    ds = HFIterDataset(hf_ds)
    everything = [row["n"] for row in hf_ds]
    assert [row["n"] for row in ds] == everything
    it = iter(ds)
    state = it.get_state()
    for steps in (0, 1, 6, 17):
        state = json.loads(json.dumps(state))
        it = iter(ds)
        it.set_state(state)
        assert it.get_state()["count_elements_read"] == state["count_elements_read"]
        if len(everything) < 25 and steps == 17:
            break
        taken = [next(it)["n"] for _ in range(steps)]
        begin = state["count_elements_read"]
        assert taken == everything[begin : begin + steps]
        state = it.get_state()
    assert "hf_state_dict" in state
    rest = [row["n"] for row in it]
    assert rest == everything[len(everything) - len(rest) :]
    it.set_state(copy.deepcopy(state))
    assert [row["n"] for row in it] == everything[state["count_elements_read"] :]


@pytest.mark.filterwarnings("ignore")
def test_iterators_over_one_hugging_face_dataset_do_not_disturb_each_other() -> None:
    ds = HFIterDataset(_numbers(30))
    first, second = iter(ds), iter(ds)
    for _ in range(9):
        next(first)
    state = first.get_state()
    next(second)
    assert first.get_state() == state
    second.set_state(state)
    assert next(first) == next(second) == {"n": 9}


@pytest.mark.filterwarnings("ignore")
def test_workers_share_the_shards_of_a_hugging_face_dataset() -> None:
    options = wg.MultiprocessingOptions(num_workers=2)
    for hf_ds in (_numbers(40, num_shards=4), _numbers(40, num_shards=4).shuffle(seed=1)):
        found = [row["n"] for row in HFIterDataset(hf_ds).mp_prefetch(options)]
        assert sorted(found) == list(range(40))
    with pytest.raises(ValueError, match="2 workers, because it has 1 shards"):
        iter(HFIterDataset(_numbers(40)).mp_prefetch(options))
    assert len(list(HFIterDataset(_numbers(40)))) == 40
