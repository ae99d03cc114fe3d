"""ElasticIterator: origins, going to a step, leaving steps out, and digests that hosts merge."""

import json
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import wholegrain as wg
from tests.checkpoint.lane_pipelines import fails_at_37, is_kept, random_pipeline
from tests.checkpoint.test_elastic_lanes import close, hosts, restored, steps_of
from wholegrain._cli import main
from wholegrain._state.validate import WrongStateError
from wholegrain.checkpoint import merge_digests, merge_states
from wholegrain.experimental import ElasticIterator, InterleaveIterDataset
from wholegrain.sharding import ShardOptions

R = wg.MapDataset.range


def digest_of(its: list[ElasticIterator]) -> str:
    return merge_digests(it.digest() for it in its)


@settings(max_examples=12)
@given(seed=st.integers(0, 10**6), remainder=st.sampled_from(["drop", "pad"]))
def test_digests_and_skipped_steps_depend_on_no_hosts_and_no_restarts(
    seed: int, remainder: Any
) -> None:
    choose, ds = random.Random(seed), random_pipeline(seed)
    expected = steps_of(hosts(ds, 1, remainder=remainder))
    skipped = {choose.randrange(len(expected) + 2) for _ in range(3)}
    left = [one for step, one in enumerate(expected) if step not in skipped]
    (whole,) = hosts(ds, 1, remainder=remainder)
    whole.digest()
    for step in skipped:
        whole.skip(range(step, step + 1))
    assert steps_of([whole]) == left
    its = hosts(ds, choose.choice([2, 4]), remainder=remainder)
    for it in its:
        it.digest()
        for step in skipped:
            it.skip(range(step, step + 1))
    found = steps_of(its, choose.randrange(len(left) + 1))
    its = restored(its, ds, choose.choice([1, 2, 8]), 0, remainder=remainder)
    found += steps_of(its)
    assert found == left
    assert digest_of(its) == whole.digest()
    close([whole, *its])


def test_workers_and_the_width_of_texts_do_not_change_a_digest() -> None:
    ds = R(160).shuffle(seed=1).map(lambda x: {"text": "x" * x, "n": x}).repeat(2)
    digests = []
    for count, workers in ((1, 0), (2, 0), (8, 0), (2, 2)):
        its = hosts(ds, count, workers)
        before = digest_of(its)
        steps_of(its, 5)
        digests.append(digest_of(its))
        assert digests[-1] != before
        close(its)
    assert len(set(digests)) == 1


def test_a_digest_goes_on_in_the_next_epoch_and_skipped_steps_do_not() -> None:
    ds = R(64).seed(3).shuffle()
    (it,), pair = hosts(ds, 1), hosts(ds, 2)
    for one in (it, *pair):
        one.digest()
        one.skip(range(1, 3))
    assert [len(steps_of([it])), len(steps_of(pair))] == [2, 2]
    half = merge_states([one.get_state() for one in pair])
    (other,) = hosts(ds, 1)
    other.set_state(json.loads(json.dumps(half)))
    for one in (it, *pair, other):
        iter(one)
    assert len(steps_of([it])) == len(steps_of(pair)) == len(steps_of([other])) == 4
    assert digest_of([it]) == digest_of(pair) == digest_of([other])
    with pytest.raises(ValueError, match="cannot go to another epoch"):
        it.set_epoch(0)
    with pytest.raises(ValueError, match="cannot go to another step"):
        it.seek(0)


def test_states_that_hosts_have_steered_differently_are_not_merged() -> None:
    one, other = hosts(R(64), 2)
    one.skip(range(2, 3))
    with pytest.raises(WrongStateError, match="left out other steps"):
        merge_states([one.get_state(), other.get_state()])
    other.skip(range(2, 3))
    merged = merge_states([one.get_state(), other.get_state()])
    one.digest()
    with pytest.raises(WrongStateError, match="only some of them have a digest"):
        merge_states([one.get_state(), other.get_state()])
    for damaged in (7, {"skipped": 3}, {"skipped": [], "digests": {"0": "abc"}}, {}):
        with pytest.raises(ValueError, match="state"):
            other.set_state({**merged, "steered": damaged})
    with pytest.raises(ValueError, match="takes what `digest"):
        merge_digests(["abc"])


@pytest.mark.parametrize("ds", [R(200).shuffle(seed=1), R(300).to_iter_dataset().filter(is_kept)])
@pytest.mark.parametrize("remainder", ["drop", "pad"])
def test_seek_goes_to_any_step_of_the_epoch(ds: Any, remainder: Any) -> None:
    its = hosts(ds, 2, remainder=remainder)
    expected = steps_of(its)
    for it in its:
        it.set_epoch(0)
    for step in (3, 7, 0, len(expected) - 1, 2):
        for it in its:
            it.seek(step)
        assert its[0].step_in_epoch == step
        count = min(2, len(expected) - step)
        assert steps_of(its, count) == expected[step : step + count]
    with pytest.raises(IndexError, match="There is no step"):
        its[0].seek(len(expected) + 1)
    its[0].seek(len(expected))
    assert next(its[0], None) is None
    assert its[0].epoch == 1


@pytest.mark.parametrize("kept", [False, True])
def test_epochs_of_a_pipeline_without_end_have_steps_of_their_own(kept: bool) -> None:
    ds = R(100).shuffle(seed=1).repeat().to_iter_dataset()
    ds = ds.filter(is_kept) if kept else ds
    (it,) = hosts(ds, 1, steps=5)
    for _ in range(2):
        list(it)
    iter(it)
    assert it.epoch == 2
    batches = [next(it) for _ in range(4)]
    for step in (1, 3):
        assert [one.index for one in it.provenance(step)] == batches[step].tolist()
    it.seek(2)
    assert next(it).tolist() == batches[2].tolist()
    (other,) = hosts(ds, 1, steps=5)
    state = it.get_state()
    other.set_state(state)
    assert next(other).tolist() == batches[3].tolist()
    assert [one.index for one in other.provenance()] == batches[3].tolist()
    if kept:  # Where the epoch has begun is not known any more.
        with pytest.raises(ValueError, match="restore an earlier state"):
            other.provenance(1)
    else:
        assert [one.index for one in other.provenance(1)] == batches[1].tolist()


def test_a_step_that_fails_is_a_step_and_can_be_left_out() -> None:
    ds = R(96).to_iter_dataset().map(fails_at_37).filter(is_kept)
    (it,), (skipping,) = hosts(ds, 1, steps=3), hosts(ds, 1, steps=3)
    found: dict[int, Any] = {}
    for step in range(3):
        assert it.step_in_epoch == step
        try:
            found[step] = next(it).tolist()
        except RuntimeError:
            found[step] = None
    (bad,) = [step for step, batch in found.items() if batch is None]
    skipping.skip(range(bad, bad + 1))
    assert [batch.tolist() for batch in skipping] == [one for one in found.values() if one]
    with pytest.raises(RuntimeError, match="no 37"):
        it.provenance(bad)
    last = max(found)
    assert [one.index for one in it.provenance(last)] == found[last]
    it.seek(last)
    assert next(it).tolist() == found[last]


# Without lanes.


@pytest.mark.parametrize("workers", [0, 2])
def test_without_lanes_steps_of_a_map_dataset_have_origins_too(workers: int) -> None:
    ds = R(64).shuffle(seed=4)
    options = wg.MultiprocessingOptions(num_workers=workers) if workers else None

    def host(index: int, count: int) -> ElasticIterator:
        shard = ShardOptions(index, count)
        return ElasticIterator(ds, 8, shard, multiprocessing_options=options)

    it = host(1, 2)
    with pytest.raises(ValueError, match="no last element"):
        it.provenance()
    batches = []
    for batch in it:
        batches.append(batch.tolist())
        assert [one.index for one in it.provenance()] == batches[-1]
    assert len(batches) == 8
    assert [one.index for one in it.provenance(3)] == batches[3]
    it.seek(5)
    assert next(it).tolist() == batches[5]
    with pytest.raises(IndexError, match="the pipeline has 8 steps"):
        it.seek(9)
    with pytest.raises(IndexError, match="the pipeline has 8 steps"):
        it.provenance(8)
    alone = host(0, 1)
    alone.set_state(it.get_state())
    assert sorted(one.index for one in alone.provenance(5)) == sorted(
        [*batches[5], *(one.index for one in host(0, 2).provenance(5))]
    )
    with pytest.raises(TypeError, match="needs `lanes`"):
        it.digest()
    it.close()
    alone.close()


def test_without_lanes_the_files_of_a_process_have_origins_until_they_are_redistributed() -> None:
    files = [R(100 * n, 100 * n + 10) for n in range(4)]
    ds: Any = InterleaveIterDataset(files, cycle_length=2)
    it = ElasticIterator(ds, 4, ShardOptions(0, 2))
    batches = [next(it).tolist() for _ in range(4)]
    origins = it.provenance()
    assert [100 * int(one.source[6] == "2") + one.index for one in origins]
    assert [one.row for one in origins] == [0, 1]
    assert it.provenance(2) != origins
    it.seek(1)
    assert next(it).tolist() == batches[1]
    it.set_shard_states(it.get_shard_states())
    next(it)
    assert len(it.provenance()) == 2
    with pytest.raises(ValueError, match="another number of processes"):
        it.provenance(0)


# The command.

_MODULE = """
import wholegrain as wg

def pipeline(host=0, count=1, bad=None):
    ds = wg.MapDataset.range(96).shuffle(seed=1).map_with_index(lambda i, x: -1 if i == bad else x)
    shard = wg.sharding.ShardOptions(host, count)
    return wg.experimental.ElasticIterator(ds, 8, shard, lanes=4)

def second():
    return pipeline(1, 2)

def broken():
    return pipeline(1, 2, bad=4 * 5 + 3)
"""


def test_the_command_compares_the_rows_of_a_host_with_those_of_another_number_of_hosts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "elastic_module.py").write_text(_MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    assert main(["check", "elastic_module:pipeline", "--digest", "run.json"]) == 0
    assert main(["check", "elastic_module:second", "--digest", "run.json"]) == 0
    assert main(["check", "elastic_module:broken", "--digest", "run.json"]) == 1
    # Lanes 2 and 3 of this host have two rows each.
    record = R(96).shuffle(seed=1)[4 * 5 + 3]
    assert f"step 2, row 3: record {record} of range(0, 96)" in capsys.readouterr().out
