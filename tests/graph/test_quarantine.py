"""`quarantine`: records of a log are never read again."""

from __future__ import annotations

from pathlib import Path

import pytest

import wholegrain as wg
from tests.graph.failing import Broken, FailsFor, plain, with_workers

N = 100
BROKEN = frozenset({3, 50, 51, 99})


def source() -> wg.MapDataset[int]:
    return wg.MapDataset.source(Broken(N, BROKEN))


def test_records_by_index_are_missing_and_the_others_keep_their_places() -> None:
    ds = wg.quarantine(source().seed(3).shuffle().repeat(2), [3, 50, 51, 99])
    whole = wg.MapDataset.range(N).seed(3).shuffle().repeat(2)
    expected = [None if x in BROKEN else x for x in whole]
    assert [ds[index] for index in range(2 * N)] == expected
    it = iter(ds)
    assert list(it) == [x for x in expected if x is not None]
    assert it.errors() == []


@pytest.mark.parametrize("workers", [0, 2, "auto"])
@pytest.mark.parametrize("policy", ["skip", "replace"])
def test_a_run_with_the_log_in_quarantine_repeats_the_run_that_wrote_it(
    policy: str, workers: object, tmp_path: Path
) -> None:
    log = tmp_path / "bad.jsonl"
    ds = source().map(FailsFor(7)).on_error(policy, log=log).to_iter_dataset()  # type: ignore[arg-type]
    ds = with_workers(ds, workers)
    first = list(ds)
    it = iter(wg.quarantine(ds, log))
    assert list(it) == first
    assert it.errors() == []


def test_batches_need_a_replacement() -> None:
    with pytest.raises(ValueError, match='on_error\\("replace"\\)'):
        wg.quarantine(source().batch(10), [3])
    ds = source().on_error("replace").batch(10)
    assert plain(wg.quarantine(ds, BROKEN)) == plain(ds)


def test_with_several_sources_records_have_the_name_of_theirs(tmp_path: Path) -> None:
    log = tmp_path / "bad.jsonl"
    numbers = wg.MapDataset.range(N)
    mixed = wg.MapDataset.mix([source(), numbers]).on_error("skip", log=log)
    first = list(mixed)
    assert list(wg.quarantine(mixed, log)) == first
    assert list(wg.quarantine(mixed, {"Broken": BROKEN})) == first
    with pytest.raises(ValueError, match="has 2 sources"):
        wg.quarantine(mixed, [3])
    with pytest.raises(ValueError, match="no source 'other'"):
        wg.quarantine(mixed, {"other": [3]})
    with pytest.raises(ValueError, match="not known which"):
        wg.quarantine(wg.MapDataset.mix([source(), source()]), {"Broken": [3]})


def test_what_cannot_be_a_log_is_refused(tmp_path: Path) -> None:
    log = tmp_path / "other.jsonl"
    log.write_text('{"index": 3}\n{"index": 4}\n')
    with pytest.raises(ValueError, match="Line 1 of"):
        wg.quarantine(source(), log)
    with pytest.raises(FileNotFoundError):
        wg.quarantine(source(), tmp_path / "none.jsonl")
    with pytest.raises(ValueError, match="has 100 records"):
        wg.quarantine(source(), [100])


def test_a_line_that_was_not_finished_is_left_out(tmp_path: Path) -> None:
    log = tmp_path / "bad.jsonl"
    list(source().on_error("skip", log=log))
    with log.open("a") as file:
        file.write('{"error": "OSErr')
    assert wg.quarantine(source(), log)[3] is None
