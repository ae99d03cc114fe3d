import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from wholegrain.experimental import PackAndBatchOperation
from wholegrain.record import Record, RecordMetadata

pytestmark = pytest.mark.filterwarnings("ignore:.*FirstFitPackIterDataset:DeprecationWarning")


def records(*datas: Any) -> Iterator[Record[Any]]:
    return (Record(RecordMetadata(i, record_key=10 + i), data) for i, data in enumerate(datas))


def sequences(*lengths: int) -> Iterator[Record[Any]]:
    return records(*[{"x": np.full(n, i + 1)} for i, n in enumerate(lengths)])


def test_packs_rows_of_a_batch_and_keeps_empty_ones() -> None:
    operation = PackAndBatchOperation({"x": 5}, batch_size=2)
    first, last = operation(sequences(3, 4, 2, 3))
    values, segment_ids, positions = first.data
    assert values["x"].tolist() == [[1, 1, 1, 3, 3], [2, 2, 2, 2, 0]]
    assert segment_ids["x"].tolist() == [[1, 1, 1, 2, 2], [1, 1, 1, 1, 0]]
    assert positions["x"].tolist() == [[0, 1, 2, 0, 1], [0, 1, 2, 3, 0]]
    assert first.metadata == RecordMetadata(2)
    assert last.data[0]["x"].tolist() == [[4, 4, 4, 0, 0], [0] * 5]


def test_starts_anew_with_each_call() -> None:
    operation = PackAndBatchOperation({"x": 5}, batch_size=1)
    assert list(operation(iter([]))) == []
    for _ in range(2):
        (batch,) = operation(sequences(2))
        assert batch.data[0]["x"].tolist() == [[1, 1, 0, 0, 0]]


def test_the_structure_is_any() -> None:
    operation = PackAndBatchOperation((3, {"a": [2]}), batch_size=1)
    (batch,) = operation(records((np.arange(2), {"a": [np.ones((1, 2))]})))
    values, (ids, nested), _ = batch.data
    assert values[0].tolist() == [[0, 1, 0]]
    assert values[1]["a"][0].shape == (1, 2, 2)
    assert ids.tolist() == [[1, 1, 0]]
    assert nested["a"][0].tolist() == [[1, 0]]


@pytest.mark.parametrize("data", [{"x": np.arange(9)}, {"y": np.arange(2)}, {"x": 3}])
def test_refuses_what_it_cannot_pack(data: Any) -> None:
    operation = PackAndBatchOperation({"x": 5}, batch_size=1)
    with pytest.raises(ValueError, match=r"\w"):
        list(operation(records(data)))


@pytest.mark.parametrize("kwargs", [{"batch_size": 0}, {"max_sequences_per_bin": 0}])
def test_arguments_are_checked_at_once(kwargs: Any) -> None:
    with pytest.raises(ValueError, match=r"at least 1, but got 0"):
        PackAndBatchOperation(**({"length_struct": {"x": 5}, "batch_size": 1} | kwargs))


def test_says_once_that_it_is_deprecated() -> None:
    script = (
        "import warnings; warnings.simplefilter('always');"
        "from wholegrain.experimental import PackAndBatchOperation as P;"
        "P({'x': 5}, 1); P({'x': 5}, 1)"
    )
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert run.stderr.count("DeprecationWarning") == 1
    assert "<string>:1: " in run.stderr
