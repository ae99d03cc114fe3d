"""How datasets show themselves: a small tree, in words, and in a notebook."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import wholegrain as wg
from wholegrain import checkpoint, experimental


def decode(x: int) -> int:
    return x


def test_a_dataset_shows_its_pipeline_as_a_tree_with_lengths() -> None:
    ds: wg.MapDataset[Any] = wg.MapDataset.range(60).shuffle(seed=1).map(decode).batch(7)
    assert repr(ds).splitlines() == [
        "batch(7)  [9]",
        "map(decode)  [60]",
        "shuffle  [60]",
        "range(0, 60)  [60]",
    ]
    assert str(ds) == "BatchMapDataset(batch_size=7, drop_remainder=False)"


def test_several_parents_are_branches() -> None:
    parts = [wg.MapDataset.range(3).map(decode), wg.MapDataset.range(4)]
    ds = wg.MapDataset.concatenate(parts).to_iter_dataset()
    assert repr(ds).splitlines() == [
        "to_iter_dataset",
        "concatenate  [7]",
        "├─ map(decode)  [3]",
        "│  range(0, 3)  [3]",
        "└─ range(0, 4)  [4]",
    ]


def test_many_parents_are_cut_short() -> None:
    ds = wg.MapDataset.concatenate([wg.MapDataset.range(n + 1) for n in range(50)])
    assert len(repr(ds).splitlines()) == 4
    assert repr(ds).endswith("└─ and 48 more")


def test_infinite_datasets_say_so() -> None:
    endless = wg.MapDataset.range(3).repeat()
    assert repr(endless).splitlines()[0] == "repeat  [infinite]"
    batches: Any = wg.MapDataset.mix([endless, endless]).shuffle(seed=1)[3::7].batch(4096)
    text = repr(batches)
    assert text.splitlines()[0] == "batch(4096)  [infinite]"
    assert not re.search(r"\d{7}", text.replace(",", ""))
    assert repr(endless[:5]).splitlines()[0] == "slice[0:5:1]  [5]"
    assert repr(wg.MapDataset.range(10**15)) == f"range(0, {10**15})  [{10**15:,}]"
    assert "infinite" in endless.batch(64).to_iter_dataset().explain()


def test_stages_have_the_names_that_they_are_given() -> None:
    ds: Any = wg.MapDataset.range(60).named("numbers").map(decode).named("pictures").batch(7)
    assert repr(ds).splitlines()[1:] == [
        "pictures: map(decode)  [60]",
        "numbers: range(0, 60)  [60]",
    ]
    it = iter(ds.to_iter_dataset().map(decode).named("last"))
    assert len(list(it)) == 9
    report = it.report()
    assert report.stages[0].name == "last: map(decode)"
    assert report.stage("numbers").length == 60
    assert "numbers" in report.to_html()
    with pytest.raises(ValueError, match="name of a stage"):
        ds.named("")


def test_names_change_no_element_no_state_and_no_fingerprint() -> None:
    def pipeline(name: Any) -> Any:
        ds = name(wg.MapDataset.range(60).seed(3))
        ds = name(name(ds.shuffle()).random_map(lambda x, rng: x + rng.integers(100)))
        return name(name(name(ds).to_iter_dataset()).batch(4))

    plain, named = pipeline(lambda ds: ds), pipeline(lambda ds: ds.named("a name"))
    first, second = iter(plain), iter(named)
    for _ in range(8):
        assert np.array_equal(next(first), next(second))
        assert first.get_state() == second.get_state()
    assert str(plain) == str(named)
    assert checkpoint.fingerprint(plain) == checkpoint.fingerprint(named)
    assert repr(plain) != repr(named)

    class Squares(wg.MapDataset[int]):
        def __len__(self) -> int:
            return 5

        def __getitem__(self, index):  # type: ignore[no-untyped-def]
            return index**2

    assert checkpoint.fingerprint(Squares()) == checkpoint.fingerprint(Squares().named("a name"))
    with_name: Any = wg.MapDataset.source(Squares().named("a name"))
    without: Any = wg.MapDataset.source(Squares())
    assert checkpoint.fingerprint(with_name) == checkpoint.fingerprint(without)


def test_workers_know_the_names() -> None:
    ds = wg.MapDataset.range(40).named("numbers").to_iter_dataset().map(decode).named("pictures")
    it = iter(ds.mp_prefetch(wg.MultiprocessingOptions(num_workers=2)))
    assert list(it) == list(range(40))
    assert it.report().stage("pictures").elements
    it.close()


def test_sources_are_told_apart_by_their_files(tmp_path: Path) -> None:
    parts = []
    for folder in ("train", "test"):
        (tmp_path / folder).mkdir()
        np.save(tmp_path / folder / "data.npy", np.arange(5))
        source = wg.sources.NpyDataSource(tmp_path / folder / "data.npy")
        parts.append(wg.MapDataset.source(source))
    text = repr(wg.MapDataset.concatenate(parts))
    assert "source(NpyDataSource: train/data.npy)" in text
    assert "source(NpyDataSource: test/data.npy)" in text


def test_long_paths_keep_their_ends_and_lose_what_may_be_secret() -> None:
    def shown(*paths: str) -> str:
        source: Any = object.__new__(wg.sources.TFRecordDataSource)
        source._files, source._ends = list(paths), [1]
        return repr(wg.MapDataset.source(source)).partition("  [")[0]

    assert shown("/data/" + "x" * 300 + "-00001.tfrecord").endswith("x-00001.tfrecord)")
    assert len(shown("/data/" + "x" * 300 + "-00001.tfrecord")) < 80
    assert shown("/a/b.tfrecord", "/a/c.tfrecord") == (
        "source(TFRecordDataSource: a/b.tfrecord + 1 more)"
    )
    assert "secret" not in shown("https://store/a/b.tfrecord?signature=secret/secret")
    assert shown("/a/b\n.tfrecord") == "source(TFRecordDataSource: a/b\ufffd.tfrecord)"


def test_a_class_of_the_users_is_known_by_its_name() -> None:
    class Squares(wg.MapDataset[int]):
        def __len__(self) -> int:
            return 5

        def __getitem__(self, index):  # type: ignore[no-untyped-def]
            return index**2

    assert repr(Squares()) == "Squares  [5]"


def test_a_notebook_shows_the_tree() -> None:
    html = wg.MapDataset.range(3).map(lambda x: x)._repr_html_()
    assert "map(lambda)" in html
    assert html.startswith("<pre>")


def test_explain_says_what_runs_where() -> None:
    ds = wg.MapDataset.range(60).shuffle(seed=3).map(decode).to_iter_dataset().filter(bool)
    text = ds.explain()
    assert "seed 3" in text
    assert "60 indices in order" in text
    assert "filter(bool) runs in the thread that calls `next`" in text
    workers = ds.mp_prefetch(wg.MultiprocessingOptions(num_workers=2)).explain()
    assert "runs in 2 processes" in workers
    assert "filter(bool) runs in worker processes" in workers


def test_explain_knows_threads_and_random_access() -> None:
    ds = wg.MapDataset.range(60).map(decode).filter(bool)
    assert "`ds[i]` may be None" in ds.explain()
    ahead: Any = experimental.ThreadPrefetchIterDataset(
        ds.to_iter_dataset(), prefetch_buffer_size=4
    )
    assert "up to 4 elements ahead" in ahead.explain()
    assert repr(ahead.explain()) == str(ahead.explain())


def test_an_iterator_is_shown_on_a_line() -> None:
    ds = wg.MapDataset.range(10).shuffle(seed=1).batch(2)
    assert repr(iter(ds)).endswith(" of range(0, 10) > shuffle > batch(2) > to_iter_dataset>")
    for _ in range(20):
        ds = ds.map(abs)
    assert repr(iter(ds)).endswith(" of range(0, 10) > ... > to_iter_dataset>")
    mixture = wg.IterDataset.mix([ds, ds]).map(abs)
    assert repr(iter(mixture)).endswith(" of mix (2 datasets) > map(abs)>")


def test_a_data_loader_is_shown_on_a_line() -> None:
    loader = wg.load([1] * 1000, batch_size=2)
    shown = "DataLoader(list, IndexSampler, operations=[Batch], worker_count=0)"
    assert repr(loader) == shown
    assert repr(iter(loader)) == f"<DataLoaderIterator of {shown}>"
    many = wg.load([1], transformations=[wg.transforms.Batch(1)] * 9)
    assert "operations=[Batch, Batch, Batch, Batch, ...]" in repr(many)
