"""What is no source is told, with what to do instead."""

import pathlib
from typing import Any

import pytest

import wholegrain as wg
from wholegrain.sources import ArrowDataSource, ParquetDataSource


@pytest.mark.parametrize(
    ("given", "advice"),
    [
        ("x.parquet", r"wholegrain\.sources\.ParquetDataSource\('x\.parquet'\)"),
        ("data/train-*.array_record", "ArrayRecordDataSource"),
        ("train.tfrecord-00000-of-00004", "TFRecordDataSource"),
        ("data/images", "FolderDataSource"),
        (pathlib.Path("x.npz"), "NpyDataSource"),
        (pathlib.Path("x"), "the path 'x'"),
        ({"image": [1], "label": [2]}, r"keys 'image', 'label'.*zip\(\*d\.values"),
        ({3, 1, 2}, "sorted"),
        (frozenset({3}), "sorted"),
        ((n for n in range(3)), "generator.*list.*IterDataset"),
        (iter([1, 2]), "list_iterator.*list"),
        (3, "no `__getitem__`"),
        (None, "no `__getitem__`"),
    ],
)
def test_what_is_no_source_is_told_with_what_to_do(given: Any, advice: str) -> None:
    with pytest.raises(TypeError, match=advice):
        wg.MapDataset.source(given)


@pytest.mark.parametrize("given", ["abc", "", "a.b", {0: "a", 1: "b"}, {}, b"ab", (1, 2), range(3)])
def test_what_has_records_by_number_is_a_source(given: Any) -> None:
    assert list(wg.MapDataset.source(given)) == [given[n] for n in range(len(given))]


def test_tables_are_told() -> None:
    pd: Any = pytest.importorskip("pandas")
    pa: Any = pytest.importorskip("pyarrow")
    with pytest.raises(TypeError, match=r'pandas DataFrame.*to_dict\("records"\)'):
        wg.MapDataset.source(pd.DataFrame({"a": [1]}))
    with pytest.raises(TypeError, match=r"pyarrow Table.*to_pylist"):
        wg.MapDataset.source(pa.table({"a": [1]}))


def test_datasets_of_hugging_face_that_have_no_rows_by_number_are_told(
    tmp_path: pathlib.Path,
) -> None:
    datasets: Any = pytest.importorskip("datasets")
    datasets.disable_progress_bars()
    dataset = datasets.Dataset.from_dict({"a": [1, 2]})
    streaming = dataset.to_iterable_dataset()
    splits = datasets.DatasetDict({"train": dataset})
    with pytest.raises(TypeError, match=r"streaming Hugging Face dataset.*streaming=True"):
        wg.MapDataset.source(streaming)
    with pytest.raises(TypeError, match=r"splits 'train'.*dataset\['train'\]"):
        wg.MapDataset.source(splits)
    for given in (streaming, splits):
        with pytest.raises(TypeError, match=r"streaming=True.*one of its splits"):
            ArrowDataSource(given)
    for saved in (dataset, splits):
        saved.save_to_disk(tmp_path / "saved")
        with pytest.raises(IsADirectoryError, match=r"load_from_disk.*saved"):
            ArrowDataSource(tmp_path / "saved")


def test_a_folder_of_files_is_told() -> None:
    pytest.importorskip("pyarrow")
    for source in (ArrowDataSource, ParquetDataSource):
        with pytest.raises(IsADirectoryError, match="with a pattern such as"):
            source("/tmp")
    for given in ({"a.parquet"}, (name for name in ["a.parquet"]), 3):
        with pytest.raises(TypeError, match="needs a path or a sequence of paths"):
            ParquetDataSource(given)  # type: ignore[arg-type]
