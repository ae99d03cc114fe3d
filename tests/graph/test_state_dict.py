"""`state_dict` and `load_state_dict`: the names by which PyTorch's programs save positions."""

import json
import pickle
from typing import Any

import pytest

import wholegrain as wg
from wholegrain._state.validate import WrongStateError


def _pipelines() -> list[wg.IterDataset[Any]]:
    numbers = wg.MapDataset.range(40).shuffle(seed=1)
    return [
        numbers.to_iter_dataset(),
        numbers.to_iter_dataset().filter(lambda x: x % 3 != 0).batch(4),
        wg.experimental.WindowShuffleIterDataset(numbers, window_size=7, seed=2),
        numbers.to_iter_dataset().mp_prefetch(wg.MultiprocessingOptions(num_workers=2)),
    ]


@pytest.mark.parametrize("number", range(4))
def test_an_iterator_continues_after_its_state_dict(number: int) -> None:
    ds = _pipelines()[number].map(str)
    it = iter(ds)
    for _ in range(3):
        next(it)
    saved = it.state_dict()
    assert {type(value) for value in saved.values()} == {str}
    other = iter(ds)
    other.load_state_dict(json.loads(json.dumps(saved)))
    assert list(other) == list(it)
    it.close()


def test_the_keys_are_the_same_at_every_position() -> None:
    it = iter(_pipelines()[2])
    first = set(it.state_dict())
    for _ in it:
        assert set(it.state_dict()) == first


@pytest.mark.parametrize("wrong", [{}, None, {"data": "1"}, {"state": "{"}, "text"])
def test_what_is_no_state_dict_is_refused(wrong: Any) -> None:
    it = iter(wg.MapDataset.range(3))
    with pytest.raises(WrongStateError, match="state"):
        it.load_state_dict(wrong)
    assert list(it) == [0, 1, 2]


def test_a_state_that_is_no_json_is_kept_as_it_is() -> None:
    class Counting(wg.DatasetIterator[int]):
        at = (0, 0)

        def __next__(self) -> int:
            self.at = (self.at[0] + 1, 0)
            return self.at[0]

        def get_state(self) -> Any:
            return {"at": self.at}

        def set_state(self, state: Any) -> None:
            self.at = state["at"]

    it = Counting()
    next(it)
    saved = it.state_dict()
    other = Counting()
    other.load_state_dict(saved)
    assert other.at == (1, 0)


def _loader(**options: Any) -> wg.DataLoader:
    return wg.DataLoader(
        data_source=range(20),
        sampler=wg.samplers.IndexSampler(20, shuffle=True, num_epochs=1, seed=3),
        operations=[wg.transforms.Batch(3)],
        **options,
    )


def test_a_data_loader_continues_at_the_position_of_its_latest_iterator() -> None:
    loader = _loader()
    start = loader.state_dict()
    expected = [batch.tolist() for batch in loader]
    for number, _ in enumerate(loader):
        if number == 2:
            saved = loader.state_dict()
            break
    other = pickle.loads(pickle.dumps(_loader()))
    other.load_state_dict(saved)
    assert other.state_dict() == saved
    assert [batch.tolist() for batch in other] == expected[3:]
    assert [batch.tolist() for batch in other] == expected  # Only the next one continues.
    other.load_state_dict(start)
    assert [batch.tolist() for batch in other] == expected


def test_a_data_loader_refuses_the_state_of_another_one() -> None:
    other = wg.DataLoader(data_source=range(9), sampler=wg.samplers.SequentialSampler(9))
    with pytest.raises(ValueError, match="sampler"):
        other.load_state_dict(_loader().state_dict())
    assert list(other) == list(range(9))


def test_a_data_loader_without_its_iterator_says_so() -> None:
    loader = _loader()
    assert next(iter(loader)).shape == (3,)
    with pytest.raises(RuntimeError, match="keep the iterator"):
        loader.state_dict()
