"""batch: elements stacked, by index within an epoch, in order over the whole run."""

import functools
import sys
from collections import OrderedDict, defaultdict
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pytest

import wholegrain as wg
from tests.graph.tools import READ_OPTIONS, R, X, as_lists, source
from wholegrain.testing import check_iter_dataset, check_map_dataset, difference


class Point(NamedTuple):
    x: Any
    y: Any


def test_consecutive_elements_are_stacked() -> None:
    ds = R(5).batch(2)
    assert len(ds) == 3
    assert as_lists(ds) == [[0, 1], [2, 3], [4]]
    assert as_lists(R(5).to_iter_dataset().batch(2)) == [[0, 1], [2, 3], [4]]


def test_a_short_batch_can_be_left_out() -> None:
    ds = R(5).batch(2, drop_remainder=True)
    assert len(ds) == 2
    assert as_lists(ds) == [[0, 1], [2, 3]]
    assert as_lists(R(5).to_iter_dataset().batch(2, drop_remainder=True)) == [[0, 1], [2, 3]]
    assert list(R(1).to_iter_dataset().batch(2, drop_remainder=True)) == []
    assert len(R(1).batch(2, drop_remainder=True)) == 0
    assert list(R(1).batch(2, drop_remainder=True)) == []


def test_each_epoch_is_batched_by_itself() -> None:
    ds = R(5).batch(3)
    assert as_lists(ds[i] for i in range(4)) == [[0, 1, 2], [3, 4], [0, 1, 2], [3, 4]]
    assert as_lists(ds[i] for i in (-1, -2)) == [[3, 4], [0, 1, 2]]
    ds = R(5).batch(3, drop_remainder=True)
    assert as_lists(ds[i] for i in range(3)) == [[0, 1, 2]] * 3
    assert as_lists(R(5).repeat(2).batch(4)) == [[0, 1, 2, 3], [4, 0, 1, 2], [3, 4]]


def test_shuffled_epochs_are_batched_from_their_own_order() -> None:
    shuffled = R(7).shuffle(seed=2)
    ds = shuffled.batch(3)
    for index in (0, 2, 3, 5, -3):
        epoch, position = divmod(index, 3)
        members = range(3 * position, min(7, 3 * position + 3))
        assert ds[index].tolist() == [shuffled[7 * epoch + m] for m in members]


def test_the_length_of_an_infinite_dataset_is_exact() -> None:
    assert len(R(4).repeat().batch(3)) == -(-sys.maxsize // 3)
    assert len(R(4).repeat().batch(3, drop_remainder=True)) == sys.maxsize // 3


@pytest.mark.parametrize("size", [0, -1])
def test_a_batch_has_at_least_one_element(size: int) -> None:
    for ds in (R(3), R(3).to_iter_dataset()):
        with pytest.raises(ValueError, match=f"batch_size={size}"):
            ds.batch(size)


@pytest.mark.parametrize("size", [2.0, "2", None])
def test_a_batch_size_is_a_whole_number(size: Any) -> None:
    for ds in (R(3), R(3).to_iter_dataset()):
        with pytest.raises(TypeError, match="whole number"):
            ds.batch(size)
    assert as_lists(R(3).batch(np.int64(2))) == [[0, 1], [2]]


def test_sizes_are_keywords() -> None:
    with pytest.raises(TypeError):
        R(3).batch(2, True)


class Parts(wg.transforms.FlatMap):
    max_fan_out = 2

    def flat_map(self, element: Any) -> Sequence[Any]:
        return [element]


@pytest.mark.parametrize(
    "ds",
    [
        R(4).filter(bool),
        R(4).filter(bool).map(abs).shuffle(seed=1),
        X.FlatMapMapDataset(R(4), Parts()),
        wg.MapDataset.mix([R(4), R(4).filter(bool)]),
        X.ZipMapDataset([R(4).filter(bool), R(4)]),
    ],
    ids=str,
)
def test_missing_elements_cannot_be_batched_by_index(ds: wg.MapDataset[Any]) -> None:
    with pytest.raises(ValueError, match="filter") as raised:
        ds.batch(2)
    assert "to_iter_dataset()" in str(raised.value)


def test_an_element_that_turns_out_to_be_missing_is_an_error() -> None:
    ds = R(4).map(lambda x: None if x == 2 else x).batch(2)
    assert ds[0].tolist() == [0, 1]
    with pytest.raises(ValueError, match="None among the elements") as raised:
        ds[1]
    assert "to_iter_dataset()" in str(raised.value)
    hidden = source(R(4).filter(lambda x: x != 2)).batch(2)
    with pytest.raises(ValueError, match="None among the elements"):
        hidden[1]


def test_trees_are_stacked_leaf_by_leaf() -> None:
    elements = [
        {"a": np.arange(2) + i, "b": (i, [float(i), f"s{i}"]), "c": Point(i, i % 2 == 0)}
        for i in range(3)
    ]
    expected = {
        "a": np.array([[0, 1], [1, 2], [2, 3]]),
        "b": (np.array([0, 1, 2]), [np.array([0.0, 1.0, 2.0]), np.array(["s0", "s1", "s2"])]),
        "c": Point(np.array([0, 1, 2]), np.array([True, False, True])),
    }
    ds = source(elements)
    for batch in (ds.batch(3)[0], next(iter(ds.to_iter_dataset().batch(3)))):
        assert difference(expected, batch) is None


def test_containers_keep_their_type() -> None:
    ordered = [OrderedDict(b=i, a=i) for i in range(2)]
    (batch,) = source(ordered).batch(2)
    assert type(batch) is OrderedDict
    assert list(batch) == ["b", "a"]
    default: Any = [defaultdict(list, {"k": i}) for i in range(2)]
    (batch,) = source(default).batch(2)
    assert type(batch) is defaultdict
    assert batch.default_factory is list


def test_the_keys_have_the_order_of_the_first_element() -> None:
    (batch,) = source([{"b": 1, "a": 2}, {"a": 3, "b": 4}]).batch(2)
    assert list(batch) == ["b", "a"]
    assert batch["a"].tolist() == [2, 3]


def test_one_element_becomes_a_batch_without_a_copy() -> None:
    array = np.arange(3)
    (batch,) = source([array]).batch(4)
    assert batch.shape == (1, 3)
    assert np.shares_memory(batch, array)


@pytest.mark.parametrize(
    ("elements", "found"),
    [
        pytest.param([np.zeros(2), np.zeros(3)], r"float64\[3\]", id="shapes"),
        pytest.param([{"a": 1}, {"b": 1}], r"\['a'\]", id="keys"),
        pytest.param([{"a": 1}, {"a": 1, "b": 2}], r"\['a', 'b'\]", id="more keys"),
        pytest.param([[1, 2], [1, 2, 3]], "length 3", id="lengths of lists"),
        pytest.param([(1, 2), (1,)], "length 1", id="lengths of tuples"),
        pytest.param([{"a": 1}, 3], "int", id="a leaf beside a dict"),
        pytest.param([(1, 2), 3], "int", id="a leaf beside a tuple"),
        pytest.param([3, np.zeros(2)], r"float64\[2\]", id="a number beside an array"),
    ],
)
def test_elements_that_do_not_fit_together_are_described(elements: Any, found: str) -> None:
    ds = source(elements)
    for batches in (ds.batch(2), ds.to_iter_dataset().batch(2)):
        it = iter(batches)
        with pytest.raises(ValueError, match=found) as raised:
            next(it)
        assert "Cannot batch 2 elements" in str(raised.value)
        assert "batch_fn" in str(raised.value)


def test_batch_fn_gets_a_list() -> None:
    def total(elements: Sequence[int]) -> int:
        assert type(elements) is list
        return sum(elements)

    assert list(R(5).batch(2, batch_fn=total)) == [1, 5, 4]
    assert list(R(5).to_iter_dataset().batch(2, batch_fn=total)) == [1, 5, 4]
    array = source(np.arange(5))
    assert list(array.batch(2, batch_fn=total)) == [1, 5, 4]


def test_an_error_in_batch_fn_says_where() -> None:
    def fail(elements: Sequence[Any]) -> Any:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no") as raised:
        R(5).batch(2, batch_fn=fail)[1]
    assert str(raised.value) == "no"
    assert any("batch_fn" in note for note in raised.value.__notes__)
    with pytest.raises(ValueError, match="no") as raised:
        next(iter(R(5).to_iter_dataset().batch(2, batch_fn=fail)))
    assert any("BatchDatasetIterator" in note for note in raised.value.__notes__)


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int16", "float32", "complex64"])
@pytest.mark.parametrize("shape", [(), (3,), (2, 0), (2, 3)])
def test_batches_of_an_array_are_rows_of_it(dtype: str, shape: tuple[int, ...]) -> None:
    rows = np.arange(10 * int(np.prod(shape))).reshape(10, *shape).astype(dtype)
    ds = source(rows).shuffle(seed=3)[1:9].repeat(2).batch(5)
    plain = source(list(rows)).shuffle(seed=3)[1:9].repeat(2).batch(5)
    for index in (0, 1, 3, 4, 7, -1):
        assert difference(plain[index], ds[index]) is None
    assert difference(list(plain), list(ds)) is None
    chunk = np.array([3, 0, 0, -2, 9])
    assert difference(list(plain.getitems(chunk)), list(ds.getitems(chunk))) is None


def test_batches_of_an_array_are_copies() -> None:
    rows = np.zeros((4, 2))
    for batch in source(rows).batch(2):
        batch += 1
    assert rows.sum() == 0


@pytest.mark.parametrize("options", READ_OPTIONS)
def test_elements_are_the_same_with_any_number_of_threads(options: wg.ReadOptions) -> None:
    expected = [list(range(i, min(i + 7, 100))) for i in range(0, 100, 7)]
    assert as_lists(R(100).batch(7).to_iter_dataset(options)) == expected
    assert as_lists(R(100).to_iter_dataset(options).batch(7)) == expected


def test_reads_chunks_as_elements_and_resumes() -> None:
    check_map_dataset(R(10).batch(3))
    check_map_dataset(R(10).shuffle(seed=1).batch(3, drop_remainder=True))
    check_map_dataset(R(3).batch(5000))
    check_map_dataset(R(10).batch(2).batch(2))
    check_map_dataset(source(np.arange(20).reshape(10, 2)).shuffle(seed=1).batch(3))
    for drop_remainder in (False, True):
        it = R(10).to_iter_dataset().batch(3, drop_remainder=drop_remainder)
        check_iter_dataset(it)
        check_iter_dataset(it.filter(lambda b: b[0] != 3).batch(1))


# batch_and_pad.


def test_a_short_batch_can_be_filled_up() -> None:
    pad = functools.partial(X.batch_and_pad, batch_size=3, pad_value=-1)
    assert as_lists(R(1, 6).batch(3, batch_fn=pad)) == [[1, 2, 3], [4, 5, -1]]
    assert as_lists(R(1, 6).to_iter_dataset().batch(3, batch_fn=pad)) == [[1, 2, 3], [4, 5, -1]]


def test_padding_has_the_type_of_the_values() -> None:
    values = [{"x": np.ones(2, np.float32), "s": "ab", "i": 3}]
    batch = X.batch_and_pad(values, batch_size=2, pad_value=0)
    assert batch["x"].dtype == np.float32
    assert batch["x"].tolist() == [[1, 1], [0, 0]]
    assert batch["s"].tolist() == ["ab", "0"]
    assert batch["i"].tolist() == [3, 0]
    assert X.batch_and_pad(["a"], batch_size=2, pad_value="xyz").tolist() == ["a", "x"]


def test_padding_needs_between_one_value_and_a_batch() -> None:
    with pytest.raises(ValueError, match="at least one value"):
        X.batch_and_pad([], batch_size=2)
    with pytest.raises(ValueError, match="3 values, more than batch_size=2"):
        X.batch_and_pad([1, 2, 3], batch_size=2)


def _image(number: int) -> dict[str, Any]:
    return {"image": np.full((64, 64, 4), number, np.float32), "label": number, "name": f"{number}"}


@pytest.mark.parametrize("drop_remainder", [False, True])
@pytest.mark.parametrize("maps_first", [False, True])
def test_workers_stack_large_elements_as_they_come(drop_remainder: bool, maps_first: bool) -> None:
    ds: Any = wg.MapDataset.range(22)
    ds = ds.map(_image).to_iter_dataset() if maps_first else ds.to_iter_dataset().map(_image)
    plain = ds.batch(4, drop_remainder=drop_remainder)
    two = plain.mp_prefetch(wg.MultiprocessingOptions(num_workers=2))
    check_iter_dataset(two)
    made = {int(batch["label"][0]): batch for batch in two}
    # Each worker has every other element.
    shards = [[_image(n) for n in range(worker, 22, 2)] for worker in range(2)]
    expected: list[Any] = [
        shard[start : start + 4] for shard in shards for start in range(0, len(shard), 4)
    ]
    expected = [group for group in expected if len(group) == 4 or not drop_remainder]
    assert len(made) == len(expected)
    for group in expected:
        batch = made[group[0]["label"]]
        np.testing.assert_array_equal(batch["image"], np.stack([one["image"] for one in group]))
        assert batch["label"].tolist() == [one["label"] for one in group]
        assert batch["name"].tolist() == [one["name"] for one in group]


def test_large_elements_that_do_not_fit_are_refused_in_workers_as_here() -> None:
    def uneven(number: int) -> Any:
        return np.zeros((64, 64, 4 if number < 6 else 3))

    plain: Any = wg.MapDataset.range(8).map(uneven).to_iter_dataset().batch(4)
    messages = []
    for ds in (plain, plain.mp_prefetch(wg.MultiprocessingOptions(num_workers=1))):
        it = iter(ds)
        assert next(it).shape == (4, 64, 64, 4)
        with pytest.raises(ValueError, match="Cannot batch 4 elements") as caught:
            next(it)
        messages.append(str(caught.value))
        assert list(it) == []
    assert messages[0] == messages[1]


def test_objects_in_arrays_are_not_looked_into() -> None:
    pair = np.empty((), object)
    pair[()] = (1, 2)
    (batch,) = wg.MapDataset.source([pair, pair]).batch(2)
    assert batch.shape == (2,)
    assert batch[0] == (1, 2)
