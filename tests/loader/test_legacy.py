"""Older operations: from one iterator of records to another."""

import itertools
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import wholegrain as wg
import wholegrain.python as flat_wg
from wholegrain._loader import legacy
from wholegrain.python import (
    BatchOperation,
    FilterOperation,
    MapOperation,
    RandomMapOperation,
    Record,
    RecordMetadata,
)
from wholegrain.samplers import SequentialSampler

pytestmark = pytest.mark.filterwarnings("ignore:.*deprecated. Use `transforms:DeprecationWarning")


def _records(*data: Any) -> Iterator[Record[Any]]:
    for index, one in enumerate(data):
        yield Record(RecordMetadata(index, index, np.random.default_rng(index)), one)


def _loader(source: Any, *operations: Any, **arguments: Any) -> wg.DataLoader:
    return wg.DataLoader(
        **{
            "data_source": source,
            "sampler": SequentialSampler(len(source), seed=1),
            "operations": operations,
            **arguments,
        }
    )


# By themselves.


def test_map_filter_and_random_map_change_the_data_and_remove_the_key() -> None:
    for operation, expected in [
        (MapOperation(lambda x: x + 1), [2, 3, 4]),
        (FilterOperation(lambda x: x != 2), [1, 3]),
        (
            RandomMapOperation(lambda x, rng: int(rng.integers(x, x + 1000))),
            [int(np.random.default_rng(i).integers(i + 1, i + 1001)) for i in range(3)],
        ),
    ]:
        records = list(operation(_records(1, 2, 3)))  # type: ignore[operator]
        assert [record.data for record in records] == expected
        assert all(record.metadata.record_key is None for record in records)
        assert all(record.metadata.rng is not None for record in records)


@pytest.mark.parametrize(
    ("operation", "what"),
    [
        (MapOperation(lambda x: x / 0), "map function"),
        (RandomMapOperation(lambda x, rng: x / 0), "random map function"),
        (FilterOperation(lambda x: x / 0), "filter function"),
    ],
)
def test_what_a_function_raises_is_the_cause_of_a_value_error(operation: Any, what: str) -> None:
    with pytest.raises(ValueError, match=f"error when calling {what}: division") as caught:
        list(operation(_records(1)))
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


def test_batches_have_the_metadata_of_their_last_record() -> None:
    batches = list(BatchOperation(2)(_records(1, 2, 3)))
    assert [batch.data.tolist() for batch in batches] == [[1, 2], [3]]
    assert [batch.metadata.index for batch in batches] == [1, 2]
    assert all(batch.metadata.record_key is None for batch in batches)
    dropped = BatchOperation(2, drop_remainder=True)(_records(1, 2, 3))
    assert [batch.data.tolist() for batch in dropped] == [[1, 2]]
    summed = BatchOperation(2, batch_fn=sum)(_records(1, 2, 3))
    assert [batch.data for batch in summed] == [3, 3]


def test_a_batch_needs_one_element_at_least() -> None:
    with pytest.raises(ValueError, match="batch_size=0"):
        BatchOperation(0)


@pytest.mark.parametrize(
    "data",
    [
        ({"a": 1}, {"a": 1}, {"b": 1}),
        ((1, 2), (1, 2), (1,)),
        ({"a": 1}, {"a": 1}, 1),
        (1, 1, {"a": 1}),
    ],
)
def test_elements_of_another_structure_are_named_by_their_place(data: Any) -> None:
    with pytest.raises(TypeError, match=r"same structure.*\[2\] differ"):
        next(BatchOperation(3)(_records(*data)))


def test_operations_compare_by_value() -> None:
    assert BatchOperation(2) == BatchOperation(2)
    assert BatchOperation(2) != BatchOperation(3)
    assert MapOperation(abs) == MapOperation(abs)
    assert repr(BatchOperation(2)) == (
        "BatchOperation(batch_size=2, drop_remainder=False, batch_fn=None)"
    )


@pytest.mark.filterwarnings("default::DeprecationWarning")
def test_each_class_says_once_that_there_is_a_newer_form(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(legacy, "_warned", set())
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(3):
            list(MapOperation(abs)(_records(1)))
            list(FilterOperation(abs)(_records(1)))
            quiet = BatchOperation(1)
            quiet.disable_deprecation_message()
            list(quiet(_records(1)))
    messages = [str(warning.message) for warning in caught]
    assert len(messages) == 2
    assert "transforms.Map" in messages[0]
    assert "transforms.Filter" in messages[1]
    assert {warning.category for warning in caught} == {DeprecationWarning}


def test_anything_that_can_be_called_is_an_operation() -> None:
    assert isinstance(MapOperation(abs), flat_wg.Operation)
    assert isinstance(lambda records: records, flat_wg.Operation)
    assert not isinstance(3, flat_wg.Operation)


# In a loader.


class _Pairs:
    """Holds a record back: an operation with memory."""

    def __call__(self, records: Iterator[Record[Any]]) -> Iterator[Record[Any]]:
        before = None
        for record in records:
            if before is not None:
                yield Record(record.metadata, (before, record.data))
            before = record.data


def test_operations_of_both_forms_work_together() -> None:
    class Add(wg.transforms.Map):
        def map(self, element: int) -> int:
            return element + 1

    loader = _loader(
        range(8),
        MapOperation(lambda x: x * 10),
        Add(),
        FilterOperation(lambda x: x != 21),
        wg.transforms.Batch(3),
    )
    assert [batch.tolist() for batch in loader] == [[1, 11, 31], [41, 51, 61], [71]]


def test_a_batch_operation_is_a_batch_without_a_word() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loader = _loader(range(4), BatchOperation(3))
        assert [batch.tolist() for batch in loader] == [[0, 1, 2], [3]]


def test_a_subclass_of_batch_operation_is_called() -> None:
    class Twice(BatchOperation):
        def __call__(self, input_iterator: Iterator[Record[Any]]) -> Iterator[Record[Any]]:
            for record in super().__call__(input_iterator):
                yield record
                yield record

    loader = _loader(range(4), Twice(2))
    assert [batch.tolist() for batch in loader] == [[0, 1], [0, 1], [2, 3], [2, 3]]


def test_the_state_is_how_far_the_input_was_read() -> None:
    loader = _loader(range(5), _Pairs())
    it = iter(loader)
    assert [next(it), next(it)] == [(0, 1), (1, 2)]
    state = it.get_state()
    assert b'"0": 2' in state
    # What the operation held back is not part of a state.
    other = iter(loader)
    other.set_state(state)
    assert list(other) == [(3, 4)]


def test_a_restored_iterator_starts_its_operations_anew() -> None:
    loader = _loader(range(5), MapOperation(lambda x: x), _Pairs())
    it = iter(loader)
    start = it.get_state()
    for _ in range(2):
        assert list(it) == [(0, 1), (1, 2), (2, 3), (3, 4)]
        assert next(it, "the end") == "the end"
        it.set_state(start)
    next(it)
    it.set_state(start)
    assert next(it) == (0, 1)


def test_after_an_error_the_next_elements_come() -> None:
    def fail(element: int) -> int:
        if element == 2:
            raise KeyError(element)
        return element

    it = iter(_loader(range(5), MapOperation(fail), FilterOperation(lambda x: x != 3)))
    found: list[Any] = []
    for _ in range(4):
        try:
            found.append(next(it))
        except ValueError as error:
            found.append(type(error))
    assert found == [0, 1, ValueError, 4]
    assert next(it, "the end") == "the end"


def test_a_closed_iterator_is_closed_for_operations_too() -> None:
    it = iter(_loader(range(5), MapOperation(lambda x: x)))
    assert next(it) == 0
    it.close()
    with pytest.raises(ValueError, match="closed iterator"):
        next(it)


# Packing.


@pytest.fixture
def _quiet_packing() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*PackAndBatchOperation", DeprecationWarning)
        yield


@pytest.mark.usefixtures("_quiet_packing")
def test_packing_lays_records_into_the_first_row_with_room() -> None:
    pack = wg.experimental.PackAndBatchOperation({"x": 5}, batch_size=2)
    lengths = [3, 4, 2, 1, 5]
    source = [{"x": np.full(n, i + 1)} for i, n in enumerate(lengths)]
    batches = list(_loader(source, pack))
    values, segments, positions = batches[0]
    assert values["x"].tolist() == [[1, 1, 1, 3, 3], [2, 2, 2, 2, 4]]
    assert segments["x"].tolist() == [[1, 1, 1, 2, 2], [1, 1, 1, 1, 2]]
    assert positions["x"].tolist() == [[0, 1, 2, 0, 1], [0, 1, 2, 3, 0]]
    assert segments["x"].dtype == positions["x"].dtype == np.int32
    # All rows of the last batch are there, used or not.
    assert batches[1][0]["x"].tolist() == [[5] * 5, [0] * 5]
    assert len(batches) == 2


@pytest.mark.usefixtures("_quiet_packing")
def test_packing_starts_anew_with_each_call_and_yields_nothing_for_nothing() -> None:
    pack = wg.experimental.PackAndBatchOperation({"x": 4}, batch_size=1)
    assert list(pack(iter(()))) == []
    for _ in range(2):
        (batch,) = pack(_records({"x": [1, 2]}, {"x": [3]}))
        assert batch.data[0]["x"].tolist() == [[1, 2, 3, 0]]
        assert batch.metadata.index == 1
        assert batch.metadata.record_key is None


@pytest.mark.usefixtures("_quiet_packing")
def test_packing_refuses_what_is_longer_than_a_row() -> None:
    pack = wg.experimental.PackAndBatchOperation({"x": 2}, batch_size=1)
    with pytest.raises(ValueError, match="longer than a packed row"):
        list(pack(_records({"x": [1, 2, 3]})))


@pytest.mark.usefixtures("_quiet_packing")
def test_packing_reads_on_where_a_state_says() -> None:
    pack = wg.experimental.PackAndBatchOperation({"x": 2}, batch_size=1)
    loader = _loader([{"x": [i]} for i in range(8)], pack)
    it = iter(loader)
    assert next(it)[0]["x"].tolist() == [[0, 1]]
    # The third record was read to find that it has no room: it is not part of the state.
    assert b'"0": 2' in it.get_state()
    assert len(list(itertools.islice(it, 10))) == 3
