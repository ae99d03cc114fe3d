"""How datasets show themselves: a small tree, in words, and in a notebook."""

from typing import Any

import wholegrain as wg
from wholegrain import experimental


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


def test_an_endless_dataset_has_no_length() -> None:
    assert repr(wg.MapDataset.range(3).repeat()).splitlines()[0] == "repeat"


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
