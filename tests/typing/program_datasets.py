"""A user's program over datasets: what each step gives is known to a type checker."""

from collections.abc import Sequence
from typing import Any, TypedDict, assert_type

import numpy as np
import numpy.typing as npt

import wholegrain as wg


class Example(TypedDict):
    text: str
    label: int


class Texts:
    """A source with types."""

    def __len__(self) -> int:
        return 10

    def __getitem__(self, index: int) -> Example:
        return {"text": str(index), "label": index}


class Length(wg.transforms.Map):
    def map(self, element: Example) -> int:
        return len(element["text"])


class Untyped(wg.transforms.Map):
    def map(self, element: Any) -> Any:
        return element


class IsShort(wg.transforms.Filter):
    def filter(self, element: Example) -> bool:
        return len(element["text"]) < 3


class Noise(wg.transforms.RandomMap):
    def random_map(self, element: int, rng: np.random.Generator) -> float:
        return element + rng.random()


class Numbered(wg.transforms.MapWithIndex):
    def map_with_index(self, index: int, element: Example) -> tuple[int, str]:
        return index, element["text"]


def text_of(element: Example) -> str:
    return element["text"]


def add_noise(element: int, rng: np.random.Generator) -> float:
    return element + rng.random()


def is_long(element: str) -> np.bool_:
    return np.bool_(len(element) > 1)


def join(elements: Sequence[str]) -> str:
    return "".join(elements)


def positive_or_none(element: int) -> int | None:
    return element if element > 0 else None


def augmented(ds: wg.MapDataset[Example], times: int, *, suffix: str) -> wg.MapDataset[str]:
    return ds.map(lambda element: element["text"] * times + suffix)


def from_sources(words: tuple[str, ...]) -> None:
    assert_type(wg.MapDataset.range(10), wg.MapDataset[int])
    assert_type(wg.MapDataset.source([1, 2, 3]), wg.MapDataset[int])
    assert_type(wg.MapDataset.source(words), wg.MapDataset[str])
    assert_type(wg.MapDataset.source(range(3)), wg.MapDataset[int])
    assert_type(wg.MapDataset.source(Texts()), wg.MapDataset[Example])
    assert_type(wg.MapDataset.source(wg.sources.RangeDataSource(0, 9, 1)), wg.MapDataset[int])
    assert_type(wg.MapDataset.source(wg.sources.FolderDataSource("x")), wg.MapDataset[bytes])
    rows = wg.MapDataset.source(wg.sources.ParquetDataSource("x.parquet"))
    assert_type(rows, wg.MapDataset[dict[str, Any]])
    arrays = wg.MapDataset.source(np.zeros((3, 4)))
    for array in arrays:
        print(array + 1)


def random_access() -> None:
    ds = wg.MapDataset.source(Texts())
    assert_type(ds.shuffle(seed=1), wg.MapDataset[Example])
    assert_type(ds.seed(1).repeat(2), wg.MapDataset[Example])
    assert_type(ds[1:], wg.MapDataset[Example])
    assert_type(ds.slice([1, 2]), wg.MapDataset[Example])
    assert_type(ds.map(text_of), wg.MapDataset[str])
    assert_type(ds.map(lambda element: element["label"]), wg.MapDataset[int])
    assert_type(ds.map(Length()), wg.MapDataset[int])
    assert_type(ds.map(Untyped()), wg.MapDataset[Any])
    assert_type(ds.map(Length()).map(positive_or_none), wg.MapDataset[int])
    assert_type(ds.map_with_index(Numbered()), wg.MapDataset[tuple[int, str]])
    assert_type(ds.map_with_index(lambda i, element: i), wg.MapDataset[int])
    assert_type(ds.filter(IsShort()), wg.MapDataset[Example])
    assert_type(ds.map(text_of).filter(is_long), wg.MapDataset[str])
    assert_type(ds.filter(lambda element: element["label"] > 3), wg.MapDataset[Example])
    assert_type(ds.map(Length()).random_map(Noise(), seed=1), wg.MapDataset[float])
    assert_type(ds.map(Length()).random_map(add_noise, seed=1), wg.MapDataset[float])
    noisy = ds.map(Length()).random_map(lambda x, rng: rng.normal() + x, seed=2)
    assert_type(noisy, wg.MapDataset[float])
    assert_type(ds.pipe(augmented, 2, suffix="!"), wg.MapDataset[str])
    assert_type(wg.MapDataset.mix([ds, ds], [1, 2]), wg.MapDataset[Example])
    assert_type(wg.MapDataset.concatenate([ds, ds]), wg.MapDataset[Example])
    ds[0]["text"].upper()  # Without a filter there is an element.
    missing = ds.filter(IsShort())[0]
    if missing is None:
        print("dropped")
    assert_type(len(ds), int)
    for element in ds:
        assert_type(element, Example)


def batches() -> None:
    ds = wg.MapDataset.range(10).batch(2)
    assert_type(ds, wg.MapDataset[npt.NDArray[Any]])
    for batch in ds:
        batch.sum()
    assert_type(wg.MapDataset.source(["a"]).batch(2, batch_fn=join), wg.MapDataset[str])
    lists = wg.MapDataset.range(10).batch(2, batch_fn=list)
    assert_type(lists, wg.MapDataset[list[int]])
    dicts = wg.MapDataset.range(10).map(lambda x: {"x": np.zeros(3), "y": np.ones(x)}).batch(3)
    for columns in dicts:
        columns["x"].mean()
    other = wg.MapDataset.source(Texts()).batch(2, drop_remainder=True)
    for anything in other:
        print(anything["text"].shape)
    trees = wg.MapDataset.source(Texts()).to_iter_dataset().batch(2)
    for tree in trees:
        print(tree["text"].shape)


def in_order() -> None:
    options = wg.MultiprocessingOptions(num_workers=2)
    ds = wg.MapDataset.source(Texts()).shuffle(seed=1).to_iter_dataset(wg.ReadOptions(2, 4))
    assert_type(ds, wg.IterDataset[Example])
    assert_type(ds.map(text_of), wg.IterDataset[str])
    assert_type(ds.map(lambda element: element["label"]), wg.IterDataset[int])
    assert_type(ds.map(Length()), wg.IterDataset[int])
    assert_type(ds.map_with_index(Numbered()), wg.IterDataset[tuple[int, str]])
    assert_type(ds.filter(IsShort()).filter(lambda e: bool(e)), wg.IterDataset[Example])
    assert_type(ds.map(Length()).seed(1).random_map(Noise()), wg.IterDataset[float])
    assert_type(ds.map(Length()).random_map(add_noise, seed=1), wg.IterDataset[float])
    assert_type(ds.map(Length()).batch(2), wg.IterDataset[npt.NDArray[Any]])
    assert_type(ds.map(text_of).batch(2, batch_fn=join), wg.IterDataset[str])
    assert_type(ds.mp_prefetch(options), wg.IterDataset[Example])
    assert_type(wg.IterDataset.mix([ds, ds], [0.5, 0.5]), wg.IterDataset[Example])
    assert_type(wg.IterDataset.mix({"a": ds, "b": ds}, {"a": 1, "b": 2}), wg.IterDataset[Example])
    it = iter(ds.map(Length()).mp_prefetch(options))
    assert_type(it, wg.DatasetIterator[int])
    assert_type(next(it), int)
    with it as opened:
        assert_type(next(opened), int)
    state = it.get_state()
    it.set_state(state)
    it.report().save_html("report.html")
    print(it.report().verdict)
    assert_type(next(iter(wg.MapDataset.range(3))), int)


def accepts_a_wider_element(ds: wg.MapDataset[float]) -> float:
    return sum(ds)


def covariant() -> None:
    accepts_a_wider_element(wg.MapDataset.range(3))
