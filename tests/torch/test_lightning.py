"""Lightning's Trainer and Fabric: a run that was resumed sees what an uninterrupted one sees."""

from pathlib import Path
from typing import Any

import pytest

import wholegrain as wg
from tests.torch.programs import in_processes

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
lightning = pytest.importorskip("lightning", reason="Lightning is not installed")

import wholegrain.torch  # noqa: E402

# Lightning warns of its own dependencies, and of a loader without torch's workers.
pytestmark = pytest.mark.filterwarnings("ignore")

Seen = list[tuple[int, list[int]]]


def _record(number: int) -> dict[str, Any]:
    return {"number": number, "x": float(number)}


def _finite() -> Any:
    ds = wg.MapDataset.range(19).seed(5).shuffle().map(_record).batch(4)
    return wholegrain.torch.loader(ds)


def _without_length() -> Any:
    ds = wg.MapDataset.range(25).seed(5).shuffle().to_iter_dataset().filter(lambda x: x % 4 != 0)
    return wholegrain.torch.loader(ds.map(_record).batch(4))


def _stream() -> Any:
    ds = wg.MapDataset.range(19).seed(5).shuffle().repeat().map(_record).batch(4)
    return wholegrain.torch.loader(ds, steps_per_epoch=5)


class Model(lightning.LightningModule):  # type: ignore[misc,name-defined,unused-ignore]
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)
        self.seen: Seen = []

    def training_step(self, batch: Any, _: int) -> Any:
        self.seen.append((self.current_epoch, batch["number"].tolist()))
        return self.layer(batch["x"].float()[:, None]).square().mean()

    def validation_step(self, batch: Any, _: int) -> None:
        self.seen.append((-1, batch["number"].tolist()))

    def predict_step(self, batch: Any, _: int) -> Any:
        return batch["number"].tolist()

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), lr=1e-4)


def _saver(folder: Path, **options: Any) -> Any:
    options = options or {"every_n_train_steps": 1}
    return lightning.pytorch.callbacks.ModelCheckpoint(
        dirpath=folder, filename="{step}", save_top_k=-1, **options
    )


def _trainer(*callbacks: Any, **options: Any) -> Any:
    defaults = {
        "max_epochs": 3,
        "accelerator": "cpu",
        "logger": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
        "enable_checkpointing": bool(callbacks),
        "callbacks": list(callbacks),
    }
    return lightning.Trainer(**(defaults | options))


def _fit(
    folder: Path, loader: Any, resume: Path | None = None, saves: Any = None, **options: Any
) -> Seen:
    model = Model()
    trainer = _trainer(_saver(folder, **(saves or {})), **options)
    trainer.fit(model, loader, ckpt_path=None if resume is None else str(resume))
    return model.seen


@pytest.mark.parametrize("make", [_finite, _without_length, _stream])
def test_a_run_resumes_exactly_at_every_step(make: Any, tmp_path: Path) -> None:
    expected = _fit(tmp_path, make())
    assert len({tuple(numbers) for _, numbers in expected}) == len(expected)  # Epochs differ.
    for step in range(1, len(expected)):
        found = _fit(tmp_path / f"from{step}", make(), tmp_path / f"step={step}.ckpt")
        assert found == expected[step:], step


def test_a_run_that_is_resumed_twice_sees_each_batch_once(tmp_path: Path) -> None:
    expected = _fit(tmp_path / "whole", _finite())
    first = _fit(tmp_path / "first", _finite(), max_steps=3)
    second = _fit(tmp_path / "second", _finite(), tmp_path / "first/step=3.ckpt", max_steps=8)
    third = _fit(tmp_path / "third", _finite(), tmp_path / "second/step=8.ckpt")
    assert first + second + third == expected


@pytest.mark.parametrize("make", [_finite, _without_length, _stream])
def test_a_checkpoint_at_the_end_of_an_epoch_continues_with_the_next(
    make: Any, tmp_path: Path
) -> None:
    saves = {"save_on_train_epoch_end": True, "every_n_epochs": 1}
    expected = _fit(tmp_path, make(), saves=saves)
    for step in (5, 10):
        path = tmp_path / f"step={step}.ckpt"
        assert _fit(tmp_path / f"from{step}", make(), path) == expected[step:]


@pytest.mark.parametrize("make", [_finite, _without_length, _stream])
def test_epochs_that_are_left_early_resume_exactly(make: Any, tmp_path: Path) -> None:
    expected = _fit(tmp_path, make(), limit_train_batches=2)
    assert [epoch for epoch, _ in expected] == [0, 0, 1, 1, 2, 2]
    for step in range(1, 6):
        path = tmp_path / f"step={step}.ckpt"
        found = _fit(tmp_path / f"from{step}", make(), path, limit_train_batches=2)
        assert found == expected[step:], step


def test_an_endless_loader_without_epochs_goes_on(tmp_path: Path) -> None:
    def make() -> Any:
        ds = wg.MapDataset.range(19).seed(5).shuffle().repeat().map(_record).batch(4)
        return wholegrain.torch.loader(ds)

    expected = _fit(tmp_path, make(), max_steps=12, max_epochs=-1)
    found = _fit(tmp_path / "b", make(), tmp_path / "step=7.ckpt", max_steps=12, max_epochs=-1)
    assert [numbers for _, numbers in found] == [numbers for _, numbers in expected[7:]]


def test_validation_between_steps_does_not_disturb_training(tmp_path: Path) -> None:
    validation = wg.MapDataset.range(6).map(_record).batch(4)

    def fit(resume: Path | None) -> Seen:
        model = Model()
        loader = wholegrain.torch.loader(validation, reseed_each_epoch=False)
        trainer = _trainer(_saver(tmp_path), val_check_interval=2, num_sanity_val_steps=1)
        trainer.fit(model, _finite(), loader, ckpt_path=resume and str(resume))
        return model.seen

    expected = fit(None)
    assert expected.count((-1, [0, 1, 2, 3])) == expected.count((-1, [4, 5])) + 1 == 7
    trained = [one for one in expected if one[0] >= 0]
    assert [one for one in fit(tmp_path / "step=7.ckpt") if one[0] >= 0] == trained[7:]


def test_a_trainer_predicts_with_a_loader() -> None:
    ds = wg.MapDataset.range(10).map(_record).batch(4)
    found = _trainer().predict(Model(), wholegrain.torch.loader(ds))
    assert found == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]


def test_a_model_makes_its_own_loader(tmp_path: Path) -> None:
    class Own(Model):
        def train_dataloader(self) -> Any:
            return _finite()

    model = Own()
    _trainer(_saver(tmp_path)).fit(model)
    resumed = Own()
    _trainer(_saver(tmp_path)).fit(resumed, ckpt_path=str(tmp_path / "step=6.ckpt"))
    assert resumed.seen == model.seen[6:]


def test_fabric_saves_and_restores_a_loader(tmp_path: Path) -> None:
    def run(resume: bool, stop: int) -> Seen:
        fabric = lightning.Fabric(accelerator="cpu", devices=1)
        loader = fabric.setup_dataloaders(_finite())
        progress = {"epoch": 0}
        state = {"loader": loader, "progress": progress}
        if resume:
            fabric.load(tmp_path / "fabric.ckpt", state)
            progress = state["progress"]
        seen: Seen = []
        for epoch in range(progress["epoch"], 3):
            progress["epoch"] = epoch
            for batch in loader:
                seen.append((epoch, batch["number"].tolist()))
                if len(seen) == stop:
                    fabric.save(tmp_path / "fabric.ckpt", state)
                    return seen
        return seen

    expected = run(resume=False, stop=-1)
    assert len(expected) == 15
    for stop in (2, 7, 12):
        assert run(resume=False, stop=stop) == expected[:stop]
        assert run(resume=True, stop=-1) == expected[stop:]


def test_two_ranks_resume_from_the_checkpoint_of_the_first(tmp_path: Path) -> None:
    ranks = in_processes("lightning_ddp", 2, tmp_path)
    for name in ("sharded", "in_lanes"):
        first = [{n for epoch, numbers in seen[name][0] if not epoch for n in numbers}
                 for seen in ranks]  # fmt: skip
        assert first[0].isdisjoint(first[1])
        for seen in ranks:
            whole, resumed = seen[name]
            for step, found in resumed.items():
                assert found == whole[int(step) :], (name, step)
                assert found
