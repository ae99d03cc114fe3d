"""One of several hosts of a job: a jax process that saves and restores its share of the data.

Run as `python -m tests.checkpoint.host <task> <folder> <port> <process> <processes>`; it prints
what it found as JSON.
"""

import asyncio
import importlib
import itertools
import json
import sys
import warnings
from pathlib import Path
from typing import Any

import wholegrain as wg
from tests.checkpoint.lane_pipelines import is_kept
from tests.checkpoint.random_pipelines import as_tokens
from wholegrain.checkpoint import CheckpointHandler
from wholegrain.experimental import ElasticIterator, FirstFitPackIterDataset

STEPS = 5
GLOBAL_BATCH = 12


def dataset() -> Any:
    return wg.MapDataset.range(96).shuffle(seed=1)


def orbax() -> tuple[Any, Any]:
    """Return both interfaces. Not for those who import this module from a test."""
    checkpoint = importlib.import_module("orbax.checkpoint")
    return checkpoint, importlib.import_module("orbax.checkpoint.experimental.v1")


def iterators() -> dict[str, Any]:
    """Return iterators over this process's share."""
    shard = wg.sharding.ShardByJaxProcess()
    sharded = dataset()[shard.shard_index :: shard.shard_count]
    sampler = wg.samplers.IndexSampler(96, shard_options=shard, shuffle=True, num_epochs=1, seed=1)
    return {
        "dataset": iter(sharded.to_iter_dataset().batch(2)),
        "workers": iter(sharded.to_iter_dataset().mp_prefetch(wg.MultiprocessingOptions(2))),
        "loader": iter(wg.DataLoader(data_source=range(96), sampler=sampler)),
        "elastic": ElasticIterator(dataset(), GLOBAL_BATCH, shard),
    }


def taken(its: dict[str, Any], steps: int | None) -> dict[str, list[Any]]:
    """Return the next elements of each; all that are left without a number."""
    found: dict[str, list[Any]] = {}
    for name, it in its.items():
        elements = it if steps is None else (next(it) for _ in range(steps))
        found[name] = [getattr(element, "tolist", lambda e=element: e)() for element in elements]
    return found


class Late:
    """An iterator whose directory is there late, in all processes but the first."""

    def __init__(self, it: Any) -> None:
        self._it = it

    async def save(self, directory: Any) -> Any:
        return await self._it.save(LateDirectory(directory))

    async def load(self, directory: Any) -> Any:
        return await self._it.load(directory)


class LateDirectory:
    def __init__(self, directory: Any) -> None:
        self._directory = directory

    async def await_creation(self) -> Any:
        path = await self._directory.await_creation()
        if wg.sharding.ShardByJaxProcess().shard_index:
            await asyncio.sleep(1)
        return path


def save(folder: Path) -> Any:
    """Save by both interfaces, and go on."""
    from wholegrain.checkpoint import CheckpointSave

    ocp, v1 = orbax()
    its = iterators()
    before = taken(its, STEPS)
    manager = ocp.CheckpointManager(folder / "legacy")
    items = {name: CheckpointSave(it) for name, it in its.items()}
    manager.save(STEPS, args=ocp.args.Composite(**items))
    v1.save_checkpointables(folder / "v1", {**its, "dataset": Late(its["dataset"])})
    manager.wait_until_finished()
    manager.close()
    return {"before": before, "after": taken(its, None)}


def restore(folder: Path) -> Any:
    """Restore by both interfaces, in processes that have read nothing."""
    from wholegrain.checkpoint import CheckpointRestore

    ocp, v1 = orbax()
    its = iterators()
    manager = ocp.CheckpointManager(folder / "legacy")
    items = {name: CheckpointRestore(it) for name, it in its.items()}
    manager.restore(manager.latest_step(), args=ocp.args.Composite(**items))
    legacy = taken(its, None)
    its = iterators()
    v1.load_checkpointables(folder / "v1", its)
    return {"legacy": legacy, "v1": taken(its, None)}


def restore_without_a_file(folder: Path) -> Any:
    it = iterators()["dataset"]
    try:
        CheckpointHandler().restore(folder / "incomplete", it)
    except ValueError as error:
        return {"error": str(error), "next": next(it).tolist()}
    return {"next": next(it).tolist()}


def restore_elastic(folder: Path) -> Any:
    """Restore what any number of processes have saved."""
    it = iterators()["elastic"]
    path = folder / "legacy" / str(STEPS) / "elastic"
    return {"elastic": [batch.tolist() for batch in CheckpointHandler().restore(path, it)]}


def packed() -> Any:
    """Return filtered and packed data, whose length nobody knows without reading them."""
    ds = wg.MapDataset.range(400).shuffle(seed=1).filter(is_kept).map(as_tokens)
    return FirstFitPackIterDataset(ds.to_iter_dataset(), length_struct={"x": 8}, num_packing_bins=2)


def lane_iterators() -> dict[str, Any]:
    shard = wg.sharding.ShardByJaxProcess()
    return {
        remainder: ElasticIterator(packed(), 16, shard, lanes=8, steps="count", remainder=remainder)
        for remainder in ("drop", "pad")
    }


def lane_steps(its: dict[str, Any], most: int | None = None) -> dict[str, list[Any]]:
    """Return the tokens of the next steps, and the mask if there is one."""
    found: dict[str, list[Any]] = {}
    for name, it in its.items():
        batches = itertools.islice(it, most)
        found[name] = [
            [batch["x"].tolist(), batch.get("mask", batch["x"][:, 0] == batch["x"][:, 0]).tolist()]
            for batch in batches
        ]
    return found


def save_lanes(folder: Path) -> Any:
    """Save in the middle of an epoch by both interfaces, and go on to its end."""
    from wholegrain.checkpoint import CheckpointSave

    ocp, v1 = orbax()
    its = lane_iterators()
    before = lane_steps(its, 3)
    manager = ocp.CheckpointManager(folder / "lanes")
    items = {name: CheckpointSave(it) for name, it in its.items()}
    manager.save(3, args=ocp.args.Composite(**items))
    v1.save_checkpointables(folder / "lanes_v1", its)
    manager.wait_until_finished()
    manager.close()
    return {"before": before, "after": lane_steps(its)}


def restore_lanes(folder: Path) -> Any:
    """Go on to the end of the epoch in any number of processes."""
    from wholegrain.checkpoint import CheckpointRestore

    ocp, v1 = orbax()
    its = lane_iterators()
    manager = ocp.CheckpointManager(folder / "lanes")
    items = {name: CheckpointRestore(it) for name, it in its.items()}
    manager.restore(3, args=ocp.args.Composite(**items))
    legacy = lane_steps(its)
    its = lane_iterators()
    v1.load_checkpointables(folder / "lanes_v1", its)
    return {"legacy": legacy, "v1": lane_steps(its)}


_TASKS = (save, restore, restore_without_a_file, restore_elastic, save_lanes, restore_lanes)
TASKS = {task.__name__: task for task in _TASKS}


def main() -> None:
    tasks, folder, port, process, processes = sys.argv[1:]
    warnings.simplefilter("ignore")
    jax = importlib.import_module("jax")
    jax.distributed.initialize(f"127.0.0.1:{port}", int(processes), int(process))
    assert jax.process_count() == int(processes)
    print(json.dumps({name: TASKS[name](Path(folder)) for name in tasks.split(",")}))


if __name__ == "__main__":
    main()
