"""Programs of several ranks, which the tests start as `python -m tests.torch.programs name`."""

import functools
import itertools
import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).parent.parent.parent


def in_processes(name: str, world: int, folder: Path, *arguments: str) -> list[Any]:
    """Run a program with some ranks over loopback; return what each of them wrote."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    processes = []
    for rank in range(world):
        environment = {
            **os.environ,
            "RANK": str(rank),
            "LOCAL_RANK": str(rank),
            "WORLD_SIZE": str(world),
            "LOCAL_WORLD_SIZE": str(world),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port),
            "GLOO_SOCKET_IFNAME": "lo",
            "OMP_NUM_THREADS": "1",
        }
        processes.append(
            subprocess.Popen(
                [sys.executable, "-m", "tests.torch.programs", name, str(folder), *arguments],
                cwd=_ROOT,
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
        )
    try:
        printed = [process.communicate(timeout=900)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    assert all(process.returncode == 0 for process in processes), "\n".join(printed)
    return [json.loads((folder / f"seen_{rank}.json").read_text()) for rank in range(world)]


def record(number: int) -> dict[str, Any]:
    return {"number": number, "x": float(number)}


def sharded(count: int = 40, *, filtered: bool = False) -> Any:
    """Return a loader of this rank's shard."""
    import wholegrain as wg
    import wholegrain.torch

    shard = wholegrain.torch.ShardByRank()
    ds = wg.MapDataset.range(count)[shard.shard_index :: shard.shard_count].seed(5).shuffle()
    stream = ds.to_iter_dataset()
    if filtered:
        stream = stream.filter(lambda number: number % 5 != 0)
    return wholegrain.torch.loader(stream.map(record).batch(4))


def in_lanes() -> Any:
    """Return a loader of this rank's lanes, with filtered data."""
    import wholegrain as wg
    import wholegrain.torch

    ds = wg.MapDataset.range(50).seed(5).shuffle().filter(lambda number: number % 5 != 0)
    return wholegrain.torch.loader(
        wg.experimental.ElasticIterator(
            ds.map(record), 8, wholegrain.torch.ShardByRank(), lanes=4, steps="count"
        )
    )


def write(folder: Path, seen: Any) -> None:
    (folder / f"seen_{os.environ['RANK']}.json").write_text(json.dumps(seen))


def lightning_ddp(folder: Path) -> None:
    """Train with DDP on two ranks, and resume. Only the first rank writes checkpoints."""
    import lightning
    import torch

    class Model(lightning.LightningModule):  # type: ignore[misc,name-defined,unused-ignore]
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(1, 1)
            self.seen: list[Any] = []

        def training_step(self, batch: Any, _: int) -> Any:
            self.seen.append((self.current_epoch, batch["number"].tolist()))
            return self.layer(batch["x"].float()[:, None]).square().mean()

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=1e-4)

    def fit(make: Any, resume: int | None = None) -> list[Any]:
        saver = lightning.pytorch.callbacks.ModelCheckpoint(
            dirpath=folder / make.__name__, filename="{step}", every_n_train_steps=1, save_top_k=-1
        )
        trainer = lightning.Trainer(
            max_epochs=2,
            accelerator="cpu",
            devices=2,
            strategy="ddp",
            logger=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            callbacks=[saver],
        )
        path = None if resume is None else str(folder / make.__name__ / f"step={resume}.ckpt")
        model = Model()
        trainer.fit(model, make(), ckpt_path=path)
        return model.seen

    steps = {"sharded": (5,), "in_lanes": (2, 4, 6)}
    makers = (functools.partial(sharded, filtered=True), in_lanes)
    found: dict[str, Any] = {}
    for name, make in zip(steps, makers, strict=True):
        make.__name__ = name  # type: ignore[attr-defined,unused-ignore]
        found[name] = [fit(make), {step: fit(make, step) for step in steps[name]}]
    write(folder, found)


def accelerated(folder: Path) -> None:
    """Train with Accelerate on two ranks, save at every step, and resume."""
    import torch
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)

    def train(
        name: str, resume: str = "", saves: str = "", most: int = -1, stop: int = -1
    ) -> list[Any]:
        """Train two epochs of at most `most` batches, or until some have been seen."""
        accelerator.free_memory()
        torch.manual_seed(0)
        model: Any = torch.nn.Linear(1, 1)
        optimizer: Any = torch.optim.SGD(model.parameters(), lr=1e-4)
        loader = in_lanes() if name == "lanes" else sharded(filtered=name == "filtered")
        model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
        seen: list[Any] = []
        if resume:
            accelerator.load_state(str(folder / resume))
        taken = loader.state_dict()["batch"]
        for epoch in range(loader.epoch, 2):
            loader.set_epoch(epoch)
            for batch in loader if taken != most else ():
                with accelerator.accumulate(model):
                    loss = model(batch["x"].float()[:, None]).square().mean()
                    accelerator.backward(loss)
                    optimizer.step()
                    optimizer.zero_grad()
                seen.append([epoch, batch["number"].tolist(), accelerator.sync_gradients])
                taken += 1
                if saves:
                    accelerator.save_state(str(folder / f"{saves}{len(seen)}"))
                    accelerator.wait_for_everyone()
                if len(seen) == stop:
                    return seen
                if taken == most:
                    break
            taken = 0
        return seen

    found: dict[str, Any] = {}
    for name in ("plain", "filtered", "lanes"):
        whole = train(name, saves=name)
        resumed = {n: train(name, f"{name}{n}") for n in range(1, len(whole), 2)}
        twice = train(name, saves="first", stop=3)
        twice += train(name, "first3", saves="second", stop=2) + train(name, "second2")
        early = train(name, saves="early", most=2)
        left = {n: train(name, f"early{n}", most=2) for n in (1, 2, 3)}
        found[name] = [whole, resumed, twice, early, left]
    write(folder, found)
    accelerator.end_training()


def distributed_checkpoint(folder: Path) -> None:
    """Save a loader with `torch.distributed.checkpoint` on two ranks, and restore it."""
    import torch.distributed as dist
    import torch.distributed.checkpoint as dcp

    dist.init_process_group("gloo")

    def run(resume: int | None) -> list[Any]:
        loader, seen = sharded(filtered=True), []
        if resume is not None:
            # Before the first batch, as torchtitan does it.
            dcp.load({"loader": loader}, checkpoint_id=str(folder / f"at{resume}"))
        for epoch in range(loader.epoch, 2):
            for batch in loader:
                seen.append([epoch, batch["number"].tolist()])
                if resume is None:
                    path = str(folder / f"at{len(seen)}")
                    dcp.save({"loader": loader}, checkpoint_id=path)
        return seen

    whole = run(None)
    write(folder, [whole, {n: run(n) for n in range(1, len(whole) + 1)}])
    dist.destroy_process_group()


def elastic(folder: Path) -> None:
    """Read an epoch of ElasticIterators; save after three steps, or restore what was saved."""
    import torch.distributed as dist
    import torch.distributed.checkpoint as dcp

    import wholegrain as wg
    import wholegrain.torch
    from tests.checkpoint.host import packed

    dist.init_process_group("gloo")
    shard = wholegrain.torch.ShardByRank()
    elastic = wg.experimental.ElasticIterator
    lanes: Any = {"lanes": 8, "steps": "count"}
    datasets = {
        "plain": elastic(wg.MapDataset.range(48).shuffle(seed=1), 8, shard),
        "drop": elastic(packed(), 16, shard, **lanes),
        "pad": elastic(packed(), 16, shard, **lanes, remainder="pad"),
    }
    loaders = {name: wholegrain.torch.loader(ds) for name, ds in datasets.items()}
    path = folder / "elastic"
    restores = path.exists()
    dist.barrier()
    if restores:
        dcp.load(loaders, checkpoint_id=str(path))
    loops = {name: iter(loader) for name, loader in loaders.items()}
    seen: dict[str, list[Any]] = {}
    if not restores:
        seen |= {f"{name} before": _numbers(loop, 3) for name, loop in loops.items()}
        dcp.save(loaders, checkpoint_id=str(path))
    seen |= {name: _numbers(loop, None) for name, loop in loops.items()}
    write(folder, seen)
    dist.destroy_process_group()


def _numbers(loop: Any, most: int | None) -> list[Any]:
    """Return the next batches as lists: rows, and for those that are packed a mask."""
    found = []
    for batch in itertools.islice(loop, most):
        if isinstance(batch, dict):
            rows = batch["x"]
            mask = batch["mask"].tolist() if "mask" in batch else [True] * len(rows)
            found.append([rows.tolist(), mask])
        else:
            found.append(batch.tolist())
    return found


if __name__ == "__main__":
    globals()[sys.argv[1]](Path(sys.argv[2]), *sys.argv[3:])
