"""Iterators saved and restored by Orbax itself, and by Grain's handler."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import wholegrain as wg
import wholegrain.python as flat_wg

# What Orbax and its dependencies warn about is their affair.
pytestmark = pytest.mark.filterwarnings("default")

ocp: Any = pytest.importorskip("orbax.checkpoint")
jax: Any = pytest.importorskip("jax")


def _dataset(package: Any = wg) -> Any:
    return package.MapDataset.range(20).shuffle(seed=1).to_iter_dataset().batch(2)


def _loader(package: Any = wg) -> Any:
    return package.DataLoader(
        data_source=package.sources.RangeDataSource(0, 20, 1),
        sampler=package.samplers.IndexSampler(20, shuffle=True, num_epochs=2, seed=3),
        operations=[package.transforms.Batch(2)],
    )


_PIPELINES = pytest.mark.parametrize("pipeline", [_dataset, _loader])


def _advanced(pipeline: Any, steps: int) -> Any:
    it = iter(pipeline)
    for _ in range(steps):
        next(it)
    return it


def _rest(it: Any) -> list[Any]:
    return [batch.tolist() for batch in it]


@pytest.fixture(params=[True, False], ids=["async", "sync"])
def manager(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    options = ocp.CheckpointManagerOptions(enable_async_checkpointing=request.param)
    with ocp.CheckpointManager(tmp_path / "checkpoints", options=options) as manager:
        yield manager


# Through a CheckpointManager.


@_PIPELINES
def test_a_manager_saves_an_iterator_as_it_is_now(
    pipeline: Any, manager: Any, tmp_path: Path
) -> None:
    it = _advanced(pipeline(), 3)
    state = it.get_state()
    assert manager.save(5, args=wg.checkpoint.CheckpointSave(it), force=True)
    rest = _rest(it)  # Saving may still go on, but not of this.
    manager.wait_until_finished()

    item = tmp_path / "checkpoints" / "5" / "default"
    text = (item / "process_0-of-1.json").read_text()
    assert text == (state.decode() if isinstance(state, bytes) else json.dumps(state, indent=4))

    assert manager.restore(5, args=wg.checkpoint.CheckpointRestore(it)) is it
    assert it.get_state() == state
    assert _rest(it) == rest
    fresh = iter(pipeline())
    assert manager.restore(5, args=wg.checkpoint.CheckpointRestore(fresh)) is fresh
    assert _rest(fresh) == rest


def test_the_handler_is_noted_in_the_checkpoint(manager: Any, tmp_path: Path) -> None:
    manager.save(1, args=wg.checkpoint.CheckpointSave(iter(_dataset())))
    manager.wait_until_finished()
    metadata = json.loads((tmp_path / "checkpoints" / "1" / "_CHECKPOINT_METADATA").read_text())
    assert metadata["item_handlers"] == {"default": wg.checkpoint.CheckpointHandler.typestr()}


@_PIPELINES
def test_an_iterator_is_saved_beside_a_model(pipeline: Any, manager: Any, tmp_path: Path) -> None:
    params = {"weights": np.arange(6, dtype=np.float32).reshape(2, 3)}
    it = _advanced(pipeline(), 4)
    manager.save(
        7,
        args=ocp.args.Composite(
            params=ocp.args.StandardSave(params), data=wg.checkpoint.CheckpointSave(it)
        ),
    )
    rest = _rest(it)
    manager.wait_until_finished()
    assert (tmp_path / "checkpoints" / "7" / "data" / "process_0-of-1.json").exists()

    fresh = iter(pipeline())
    only_data = manager.restore(
        7, args=ocp.args.Composite(data=wg.checkpoint.CheckpointRestore(fresh))
    )
    assert only_data["data"] is fresh
    assert _rest(fresh) == rest
    restored = manager.restore(
        7,
        args=ocp.args.Composite(
            params=ocp.args.StandardRestore(params), data=wg.checkpoint.CheckpointRestore(it)
        ),
    )
    np.testing.assert_array_equal(restored["params"]["weights"], params["weights"])
    assert _rest(it) == rest


def test_several_steps_are_kept_apart(manager: Any) -> None:
    it = iter(_dataset())
    states = []
    for step in range(3):
        states.append(it.get_state())
        manager.save(step, args=flat_wg.PyGrainCheckpointSave(it))
        next(it)
    manager.wait_until_finished()
    assert manager.all_steps() == [0, 1, 2]
    for step in (2, 0, 1):
        manager.restore(step, args=flat_wg.GrainCheckpointRestore(it))
        assert it.get_state() == states[step]


def test_a_step_without_the_item_says_so(manager: Any) -> None:
    manager.save(1, args=ocp.args.Composite(data=wg.checkpoint.CheckpointSave(iter(_dataset()))))
    manager.wait_until_finished()
    args = ocp.args.Composite(other=wg.checkpoint.CheckpointRestore(iter(_dataset())))
    with pytest.raises(Exception, match="other"):
        manager.restore(1, args=args)


def test_the_arguments_are_dataclasses_with_an_item() -> None:
    for name in ("CheckpointSave", "CheckpointRestore"):
        arguments = getattr(wg.checkpoint, name)
        assert issubclass(arguments, ocp.args.CheckpointArgs)
        assert [field.name for field in dataclasses.fields(arguments)] == ["item"]
        assert arguments(3) == arguments(item=3)
        assert getattr(flat_wg, f"PyGrain{name}") is arguments
        assert getattr(flat_wg, f"Grain{name}") is arguments


def test_a_handler_may_be_subclassed_and_registered_anew(tmp_path: Path) -> None:
    class Handler(wg.checkpoint.CheckpointHandler, ocp.CheckpointHandler):  # type: ignore[misc]
        def __init__(self) -> None:
            pass  # As it was written: without a call of the base class.

    @ocp.args.register_with_handler(Handler, for_save=True)
    class Save(wg.checkpoint.CheckpointSave):
        pass

    @ocp.args.register_with_handler(Handler, for_restore=True)
    class Restore(wg.checkpoint.CheckpointRestore):
        pass

    it = _advanced(_dataset(), 2)
    with ocp.CheckpointManager(tmp_path / "checkpoints") as manager:
        manager.save(1, args=Save(it))
        manager.wait_until_finished()
        rest = _rest(it)
        assert _rest(manager.restore(1, args=Restore(iter(_dataset())))) == rest


def test_states_with_workers_are_saved_too(manager: Any) -> None:
    options = wg.MultiprocessingOptions(num_workers=2)
    ds = wg.MapDataset.range(12).to_iter_dataset().mp_prefetch(options)
    with iter(ds) as it:
        for _ in range(5):
            next(it)
        manager.save(1, args=wg.checkpoint.CheckpointSave(it))
        manager.wait_until_finished()
        assert list(it) == list(range(5, 12))
        manager.restore(1, args=wg.checkpoint.CheckpointRestore(it))
        assert list(it) == list(range(5, 12))


# Grain's checkpoints.


def _packages() -> Any:
    grain = pytest.importorskip("grain")
    return grain, wg


def _interleaved(package: Any) -> Any:
    datasets = [package.MapDataset.range(10 * n, 10 * n + 7).to_iter_dataset() for n in range(3)]
    return package.experimental.InterleaveIterDataset(datasets, cycle_length=2).batch(2)


def _flat_mapped(package: Any) -> Any:
    class Repeat(package.experimental.FlatMapTransform):  # type: ignore[misc]
        max_fan_out = 3

        def flat_map(self, element: int) -> list[int]:
            return [element] * 3

    return package.DataLoader(
        data_source=package.sources.RangeDataSource(0, 9, 1),
        sampler=package.samplers.SequentialSampler(9),
        operations=[Repeat(), package.transforms.Batch(2)],
    )


@pytest.mark.parametrize("to_grain", [False, True], ids=["from grain", "to grain"])
@pytest.mark.parametrize("pipeline", [_dataset, _loader, _interleaved, _flat_mapped])
def test_grain_and_wholegrain_restore_each_others_checkpoints(
    pipeline: Any, to_grain: bool, tmp_path: Path
) -> None:
    grain, _ = _packages()
    writer, reader = (wg, grain) if to_grain else (grain, wg)
    it = _advanced(pipeline(writer), 3)
    with ocp.CheckpointManager(tmp_path / "checkpoints") as manager:
        manager.save(1, args=writer.checkpoint.CheckpointSave(it))
    rest = _rest(it)
    fresh = iter(pipeline(reader))
    with ocp.CheckpointManager(tmp_path / "checkpoints") as manager:  # Of another run.
        assert manager.restore(1, args=reader.checkpoint.CheckpointRestore(fresh)) is fresh
    assert _rest(fresh) == rest


@_PIPELINES
def test_grain_writes_the_same_file(pipeline: Any, tmp_path: Path) -> None:
    texts = []
    for package in _packages():
        directory = tmp_path / package.__name__
        with ocp.CheckpointManager(directory) as manager:
            it = _advanced(pipeline(package), 3)
            manager.save(1, args=package.checkpoint.CheckpointSave(it))
            manager.wait_until_finished()
        texts.append((directory / "1" / "default" / "process_0-of-1.json").read_text())
    assert texts[0] == texts[1]


# The newer interface.


@pytest.fixture
def v1() -> Any:
    return pytest.importorskip("orbax.checkpoint.experimental.v1")


@_PIPELINES
def test_iterators_are_checkpointables(pipeline: Any, v1: Any, tmp_path: Path) -> None:
    it = _advanced(pipeline(), 3)
    assert isinstance(it, v1.StatefulCheckpointable)
    state = it.get_state()
    v1.save_checkpointables(tmp_path / "step", {"data": it})
    rest = _rest(it)
    text = (tmp_path / "step" / "data" / "process_0-of-1.json").read_text()
    assert text == (state.decode() if isinstance(state, bytes) else json.dumps(state, indent=4))
    fresh = iter(pipeline())
    for one in (fresh, it):
        assert v1.load_checkpointables(tmp_path / "step", {"data": one})["data"] is one
        assert _rest(one) == rest


@_PIPELINES
def test_they_are_saved_in_the_background_as_they_are_now(
    pipeline: Any, v1: Any, tmp_path: Path
) -> None:
    it = _advanced(pipeline(), 3)
    params = {"weights": np.arange(4)}
    response = v1.save_checkpointables_async(tmp_path / "step", {"data": it, "model": params})
    rest = _rest(it)
    response.result()
    assert v1.load_checkpointables(tmp_path / "step", {"data": it})["data"] is it
    assert _rest(it) == rest


@pytest.mark.parametrize("to_grain", [False, True], ids=["from grain", "to grain"])
@_PIPELINES
def test_the_newer_interface_crosses_over_to_grain_as_well(
    pipeline: Any, to_grain: bool, v1: Any, tmp_path: Path
) -> None:
    grain, _ = _packages()
    writer, reader = (wg, grain) if to_grain else (grain, wg)
    it = _advanced(pipeline(writer), 3)
    v1.save_checkpointables(tmp_path / "step", {"data": it})
    rest = _rest(it)
    fresh = iter(pipeline(reader))
    v1.load_checkpointables(tmp_path / "step", {"data": fresh})
    assert _rest(fresh) == rest


@_PIPELINES
def test_both_interfaces_read_what_the_other_wrote(pipeline: Any, v1: Any, tmp_path: Path) -> None:
    it = _advanced(pipeline(), 3)
    v1.save_checkpointables(tmp_path / "new", {"data": it})
    with ocp.CheckpointManager(tmp_path / "old") as manager:
        manager.save(1, args=ocp.args.Composite(data=wg.checkpoint.CheckpointSave(it)))
    rest = _rest(it)
    fresh = iter(pipeline())
    wg.checkpoint.CheckpointHandler().restore(tmp_path / "new" / "data", fresh)
    assert _rest(fresh) == rest
    v1.load_checkpointables(tmp_path / "old" / "1", {"data": fresh})
    assert _rest(fresh) == rest


# In stores.


def test_directories_of_etils_are_written_and_read(tmp_path: Path) -> None:
    epath = pytest.importorskip("etils.epath")
    it = _advanced(_dataset(), 2)
    handler = wg.checkpoint.CheckpointHandler()
    handler.save(epath.Path(tmp_path), it)
    rest = _rest(it)
    assert _rest(handler.restore(epath.Path(tmp_path), iter(_dataset()))) == rest
