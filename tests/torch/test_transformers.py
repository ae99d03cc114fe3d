"""Hugging Face's Trainer: resuming from each of its checkpoints."""

from pathlib import Path
from typing import Any

import pytest

import wholegrain as wg

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
transformers = pytest.importorskip("transformers", reason="transformers is not installed")

import wholegrain.torch  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")  # Of transformers' own dependencies.


def _record(number: int) -> dict[str, Any]:
    return {"number": number, "x": float(number)}


class Model(torch.nn.Module):  # type: ignore[misc,name-defined,unused-ignore]
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)
        self.seen: list[list[int]] = []

    def forward(self, number: Any, x: Any) -> Any:
        self.seen.append(number.tolist())
        return {"loss": self.layer(x.float()[:, None]).square().mean()}


class Trainer(transformers.Trainer):  # type: ignore[misc,name-defined,unused-ignore]
    """The usual way to use another loader: override `get_train_dataloader`."""

    make: Any

    def get_train_dataloader(self) -> Any:
        return self.make()


def _train(make: Any, folder: Path, resume: Path | None = None, **options: Any) -> list[list[int]]:
    model = Model()
    arguments = transformers.TrainingArguments(
        output_dir=str(folder),
        save_strategy="no" if resume and "save_steps" not in options else "steps",
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
        logging_strategy="no",
        dataloader_pin_memory=False,
        **({"num_train_epochs": 3, "save_steps": 1} | options),
    )
    trainer = Trainer(model=model, args=arguments)
    trainer.make = make
    trainer.train(resume_from_checkpoint=None if resume is None else str(resume))
    return model.seen


def _finite() -> Any:
    ds = wg.MapDataset.range(19).seed(5).shuffle().map(_record).batch(4)
    return wholegrain.torch.loader(ds)


def _stream() -> Any:
    ds = wg.MapDataset.range(19).seed(5).shuffle().repeat().map(_record).batch(4)
    return wholegrain.torch.loader(ds, steps_per_epoch=5)


def _packed() -> Any:
    ds = wg.MapDataset.range(38).seed(5).shuffle().to_iter_dataset().filter(lambda x: x % 2)
    stream = wg.experimental.RepeatIterDataset(ds.map(_record)).batch(4)
    return wholegrain.torch.loader(stream, steps_per_epoch=5)


@pytest.mark.parametrize("make", [_finite, _stream, _packed])
def test_a_run_resumes_exactly(make: Any, tmp_path: Path) -> None:
    expected = _train(make, tmp_path)
    assert len(expected) == 15
    for step in (1, 5, 7, 10, 14):  # In each of the epochs, and at the end of each.
        found = _train(make, tmp_path / f"from{step}", tmp_path / f"checkpoint-{step}")
        assert found == expected[step:], step


def test_a_run_that_is_resumed_twice_sees_each_batch_once(tmp_path: Path) -> None:
    expected = _train(_finite, tmp_path / "a", gradient_accumulation_steps=2)
    assert len(expected) == 15
    options: Any = {"gradient_accumulation_steps": 2, "save_steps": 1}
    first = _train(_finite, tmp_path / "b", max_steps=2, **options)
    second = _train(_finite, tmp_path / "b", tmp_path / "b/checkpoint-2", max_steps=5, **options)
    third = _train(_finite, tmp_path / "b", tmp_path / "b/checkpoint-5", max_steps=9, **options)
    assert first + second + third == expected


def test_a_loader_without_a_length_needs_a_number_of_steps(tmp_path: Path) -> None:
    def make() -> Any:
        ds = wg.MapDataset.range(30).seed(5).shuffle().repeat().to_iter_dataset()
        return wholegrain.torch.loader(ds.filter(lambda x: x % 3).map(_record).batch(4))

    with pytest.raises(ValueError, match="max_steps"):
        _train(make, tmp_path)
    expected = _train(make, tmp_path, max_steps=12)
    found = _train(make, tmp_path, tmp_path / "checkpoint-7", max_steps=12)
    assert found == expected[7:]


def test_an_iter_dataset_is_a_train_dataset(tmp_path: Path) -> None:
    def train(resume: Path | None = None) -> list[list[int]]:
        ds = wg.MapDataset.range(40).seed(5).shuffle().to_iter_dataset().map(_record)
        model = Model()
        arguments = transformers.TrainingArguments(
            output_dir=str(tmp_path),
            per_device_train_batch_size=4,
            max_steps=10,
            save_steps=1,
            report_to=[],
            use_cpu=True,
            disable_tqdm=True,
            dataloader_pin_memory=False,
        )
        trainer = transformers.Trainer(model=model, args=arguments, train_dataset=ds)
        trainer.train(resume_from_checkpoint=resume and str(resume))
        return model.seen

    expected = train()
    assert sorted(number for batch in expected for number in batch) == list(range(40))
    assert train(tmp_path / "checkpoint-6") == expected[6:]
