"""Ranks: which shard is whose, and checkpoints with a key for each of them."""

from pathlib import Path
from typing import Any

import pytest

import wholegrain as wg
from tests.checkpoint.host import packed
from tests.torch.programs import in_processes

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

import wholegrain.torch  # noqa: E402

ShardByRank = wholegrain.torch.ShardByRank


def _be(monkeypatch: pytest.MonkeyPatch, rank: Any, world: Any) -> None:
    for name, value in (("RANK", rank), ("WORLD_SIZE", world)):
        if value is None:
            monkeypatch.delenv(name, raising=False)
        else:
            monkeypatch.setenv(name, str(value))


def test_one_process_has_all_of_the_data(monkeypatch: pytest.MonkeyPatch) -> None:
    _be(monkeypatch, None, None)
    assert ShardByRank(drop_remainder=True) == ShardByRank(True)
    shard = ShardByRank()
    assert (shard.shard_index, shard.shard_count, shard.drop_remainder) == (0, 1, False)


def test_torchrun_says_which_rank_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    _be(monkeypatch, 2, 3)
    shard = ShardByRank()
    assert isinstance(shard, wg.sharding.ShardOptions)
    assert list(wg.MapDataset.range(8)[shard.shard_index :: shard.shard_count]) == [2, 5]


@pytest.mark.parametrize(("rank", "world"), [(1, None), (None, 2), ("x", 2), (2, 2), (-1, 2)])
def test_a_wrong_environment_is_named(
    monkeypatch: pytest.MonkeyPatch, rank: Any, world: Any
) -> None:
    _be(monkeypatch, rank, world)
    with pytest.raises(ValueError, match="RANK"):
        ShardByRank()


def test_a_group_needs_a_process_group(monkeypatch: pytest.MonkeyPatch) -> None:
    _be(monkeypatch, None, None)
    with pytest.raises(ValueError, match="init_process_group"):
        ShardByRank(group=object())


def test_the_process_group_counts_and_not_the_environment(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    _be(monkeypatch, 3, 5)
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1
    )
    try:
        group = torch.distributed.new_group([0])
        for shard in (ShardByRank(), ShardByRank(group=group)):
            assert (shard.shard_index, shard.shard_count) == (0, 1)
    finally:
        torch.distributed.destroy_process_group()


def _loader(rank: int, world: int) -> Any:
    ds = wg.MapDataset.range(24)[rank::world].to_iter_dataset().filter(lambda x: x % 5 != 0)
    return wholegrain.torch.loader(ds.batch(2))


def test_the_state_of_one_rank_serves_all(monkeypatch: pytest.MonkeyPatch) -> None:
    _be(monkeypatch, 0, 2)
    first = _loader(0, 2)
    next(iter(first))
    state = first.state_dict()
    assert set(state) == {"epoch", "batch", "world_size", "rank_0"}
    _be(monkeypatch, 1, 2)
    second = _loader(1, 2)
    expected = [batch.tolist() for batch in second][1:]
    second.load_state_dict(state)
    assert [batch.tolist() for batch in second] == expected


def test_another_number_of_ranks_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    _be(monkeypatch, 0, 2)
    state = _loader(0, 2).state_dict()
    _be(monkeypatch, 0, 4)
    with pytest.raises(ValueError, match="ElasticIterator"):
        _loader(0, 4).load_state_dict(state)


def test_an_elastic_iterator_restores_on_another_number_of_ranks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def loaders(world: int, state: Any = None) -> list[Any]:
        made = []
        for rank in range(world):
            _be(monkeypatch, rank, world)
            elastic = wg.experimental.ElasticIterator(
                wg.MapDataset.range(32).shuffle(seed=1), 8, ShardByRank()
            )
            made.append(wholegrain.torch.loader(elastic))
            if state is not None:
                made[-1].load_state_dict(state)
        return made

    def step(iterators: list[Any]) -> list[int]:
        return [number for it in iterators for number in next(it).tolist()]

    one = [iter(loader) for loader in loaders(1)]
    expected = [step(one) for _ in range(4)]
    two = loaders(2)
    iterators = [iter(loader) for loader in two]
    assert [sorted(step(iterators)) for _ in range(2)] == [sorted(e) for e in expected[:2]]
    state: dict[str, Any] = {}
    for rank, loader in enumerate(two):
        _be(monkeypatch, rank, 2)
        state |= loader.state_dict()
    for world in (1, 2, 4):
        iterators = [iter(loader) for loader in loaders(world, state)]
        assert [sorted(step(iterators)) for _ in range(2)] == [sorted(e) for e in expected[2:]]


@pytest.mark.parametrize("endless", [False, True])
def test_ranks_whose_lanes_were_not_saved_read_up_to_the_same_step(
    endless: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def made(rank: int, world: int) -> Any:
        _be(monkeypatch, rank, world)
        ds = wg.MapDataset.range(64).shuffle(seed=1).filter(lambda x: x % 3 != 0)
        ds = ds.repeat() if endless else ds
        steps: Any = None if endless else "count"
        return wholegrain.torch.loader(
            wg.experimental.ElasticIterator(ds, 8, ShardByRank(), lanes=4, steps=steps)
        )

    def steps(loader: Any) -> list[Any]:
        return [batch.tolist() for _, batch in zip(range(4), loader, strict=False)]

    first = made(0, 2)
    batches = iter(first)
    next(batches)
    next(batches)
    state = first.state_dict()
    whole = [steps(made(rank, 2)) for rank in (0, 1)]
    assert len(whole[0]) == 4
    for rank, missing in ((0, False), (1, True)):
        caplog.clear()
        other = made(rank, 2)
        other.load_state_dict(state)
        assert steps(other)[:2] == whole[rank][2:4]
        assert ("reads 2 batches again" in caplog.text) == missing
    alone = made(0, 1)  # The step is the same for any number of ranks.
    alone.load_state_dict(state)
    assert steps(alone)[:2] == [a + b for a, b in zip(whole[0][2:], whole[1][2:], strict=True)]


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Any]]:
    """What two ranks read before and after they saved, and the folder with the checkpoint."""
    folder = tmp_path_factory.mktemp("elastic")
    return folder, in_processes("elastic", 2, folder)


def _global_steps(ranks: list[Any], name: str) -> list[Any]:
    """Return the rows and the mask of each step, of all ranks one after the other."""
    by_rank = [seen[name] for seen in ranks]
    assert len({len(steps) for steps in by_rank}) == 1  # All end after the same step.
    return [
        [[row for part in parts for row in part[place]] for place in (0, 1)]
        for parts in zip(*by_rank, strict=True)
    ]


def test_an_epoch_of_filtered_packed_data_ends_at_the_same_step_on_both_ranks(
    saved: tuple[Path, list[Any]],
) -> None:
    steps = {
        name: _global_steps(saved[1], f"{name} before") + _global_steps(saved[1], name)
        for name in ("drop", "pad")
    }
    rows = {
        name: [row for rows, mask in found for row, ok in zip(rows, mask, strict=True) if ok]
        for name, found in steps.items()
    }
    lanes = packed().mp_prefetch(wg.MultiprocessingOptions(num_workers=0, lanes=8))
    everything = sorted(element["x"].tolist() for element in lanes)
    assert sorted(rows["pad"]) == everything
    assert len(rows["drop"]) == 16 * len(steps["drop"]) < len(everything)
    assert len(steps["drop"]) < len(steps["pad"])
    assert not all(steps["pad"][-1][1])


@pytest.mark.parametrize("world", [1, 4])
def test_two_ranks_save_and_another_number_of_ranks_goes_on(
    world: int, saved: tuple[Path, list[Any]]
) -> None:
    folder, ranks = saved
    rest = in_processes("elastic", world, folder)
    for name in ("drop", "pad"):
        expected = _global_steps(ranks, name)
        assert expected
        assert _global_steps(rest, name) == expected
    # Without lanes, the ranks have the elements of a step in turn.
    before = [seen["plain before"] for seen in ranks]
    read = [
        n for batches in (*before, *(seen["plain"] for seen in rest)) for b in batches for n in b
    ]
    assert sorted(read) == list(range(48))


def test_two_ranks_save_and_restore_with_a_distributed_checkpoint(tmp_path: Path) -> None:
    ranks = in_processes("distributed_checkpoint", 2, tmp_path)
    shards = [{n for _, numbers in whole for n in numbers} for whole, _ in ranks]
    assert shards[0] | shards[1] == {n for n in range(40) if n % 5}
    assert shards[0].isdisjoint(shards[1])
    for whole, resumed in ranks:
        assert len(whole) == len(resumed) == 8
        for step, found in resumed.items():
            assert found == whole[int(step) :], step


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
def test_a_distributed_checkpoint_holds_lanes_as_texts(tmp_path: Path) -> None:
    import torch.distributed.checkpoint as dcp

    def made() -> Any:
        ds = wg.MapDataset.range(64)
        return wholegrain.torch.loader(
            wg.experimental.ElasticIterator(ds, 16, ShardByRank(), lanes=8)
        )

    first, second = made(), made()
    batches = iter(first)
    next(batches)
    texts = [value for key, value in first.state_dict().items() if key.startswith("lane_")]
    assert len(texts) == 8
    assert all(isinstance(text, str) and text for text in texts)
    dcp.save({"loader": first}, checkpoint_id=str(tmp_path), no_dist=True)
    dcp.load({"loader": second}, checkpoint_id=str(tmp_path), no_dist=True)
    rest = [batch.tolist() for batch in batches]
    assert [batch.tolist() for batch in second] == rest
    assert len(rest) == 3
