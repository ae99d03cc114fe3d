"""Programs of several ranks, which the tests start as `python -m tests.torch.programs name`."""

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
        printed = [process.communicate(timeout=240)[0] for process in processes]
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

    def fit(resume: int | None) -> list[Any]:
        saver = lightning.pytorch.callbacks.ModelCheckpoint(
            dirpath=folder, filename="{step}", every_n_train_steps=1, save_top_k=-1
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
        path = None if resume is None else str(folder / f"step={resume}.ckpt")
        model = Model()
        trainer.fit(model, sharded(filtered=True), ckpt_path=path)
        return model.seen

    write(folder, {"whole": fit(None), "resumed": fit(5)})


def accelerated(folder: Path) -> None:
    """Train with Accelerate on two ranks, save at every step, and resume."""
    import torch
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)

    def train(filtered: bool, resume: int | None = None) -> list[Any]:
        accelerator.free_memory()
        torch.manual_seed(0)
        model: Any = torch.nn.Linear(1, 1)
        optimizer: Any = torch.optim.SGD(model.parameters(), lr=1e-4)
        loader = sharded(filtered=filtered)
        model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
        name = "filtered" if filtered else "plain"
        seen: list[Any] = []
        if resume is not None:
            accelerator.load_state(str(folder / f"{name}{resume}"))
        for epoch in range(loader.epoch, 2):
            loader.set_epoch(epoch)
            for batch in loader:
                with accelerator.accumulate(model):
                    loss = model(batch["x"].float()[:, None]).square().mean()
                    accelerator.backward(loss)
                    optimizer.step()
                    optimizer.zero_grad()
                seen.append([epoch, batch["number"].tolist(), accelerator.sync_gradients])
                if resume is None:
                    accelerator.save_state(str(folder / f"{name}{len(seen)}"))
                    accelerator.wait_for_everyone()
        return seen

    found: dict[str, Any] = {}
    for filtered in (False, True):
        whole = train(filtered)
        count = len(whole)
        found[str(filtered)] = [whole, {n: train(filtered, n) for n in range(1, count, 2)}]
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


def elastic(folder: Path, count: str) -> None:
    """Read some steps of an ElasticIterator, after those in a distributed checkpoint."""
    import torch.distributed as dist
    import torch.distributed.checkpoint as dcp

    import wholegrain as wg
    import wholegrain.torch

    dist.init_process_group("gloo")
    shard = wholegrain.torch.ShardByRank()
    ds = wg.experimental.ElasticIterator(wg.MapDataset.range(48).shuffle(seed=1), 8, shard)
    loader = wholegrain.torch.loader(ds)
    restores = (folder / "elastic").exists()
    dist.barrier()
    if restores:
        dcp.load({"loader": loader}, checkpoint_id=str(folder / "elastic"))
    seen = [batch.tolist() for _, batch in zip(range(int(count)), loader, strict=False)]
    if not restores:
        dcp.save({"loader": loader}, checkpoint_id=str(folder / "elastic"))
    write(folder, seen)
    dist.destroy_process_group()


if __name__ == "__main__":
    globals()[sys.argv[1]](Path(sys.argv[2]), *sys.argv[3:])
