"""What a checkpoint knows of its pipeline, and says when the pipeline has changed."""

import asyncio
import json
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import wholegrain as wg
from tests.checkpoint.changed_pipelines import BREAKING, HARMLESS, R, Records, interleaved
from wholegrain.checkpoint import CheckpointHandler, fingerprint


class Nameless:
    """A source that does not."""

    def __len__(self) -> int:
        return 40

    def __getitem__(self, index: int) -> int:
        return index


def saved_at(pipeline: Any, step: int, directory: Path) -> Any:
    """Save a checkpoint after `step` elements; return the element that comes next."""
    it = iter(pipeline)
    for _ in range(step):
        next(it)
    CheckpointHandler().save(directory, it)
    return next(it)


@pytest.mark.parametrize("change", BREAKING)
def test_a_changed_order_is_an_error_that_names_the_stage(change: str, tmp_path: Path) -> None:
    before, after, words = BREAKING[change]
    saved_at(before(), 3, tmp_path)
    it = iter(after())
    first = next(it)
    state = it.get_state()
    with pytest.raises(ValueError, match="by another pipeline") as caught:
        CheckpointHandler().restore(tmp_path, it)
    for word in [*words, str(tmp_path), "config.update('check_pipeline', False)"]:
        assert word in str(caught.value)
    # The iterator has not moved.
    assert it.get_state() == state
    fresh = iter(after())
    np.testing.assert_equal([first, next(it)], [next(fresh), next(fresh)])


@pytest.mark.parametrize("change", HARMLESS)
def test_a_change_that_keeps_the_position_is_a_warning(change: str, tmp_path: Path) -> None:
    before, after, words = HARMLESS[change]
    saved_at(before(), 3, tmp_path)
    it = iter(after())
    with pytest.warns(UserWarning, match="The position keeps its meaning") as caught:
        CheckpointHandler().restore(tmp_path, it)
    assert len(caught) == 1
    for word in words:
        assert word in str(caught[0].message)


def test_after_a_harmless_change_the_position_is_right(tmp_path: Path) -> None:
    saved_at(R(40).shuffle(seed=1).to_iter_dataset().batch(2), 3, tmp_path)
    it: Any = iter(R(40).shuffle(seed=1).to_iter_dataset().batch(5).map(lambda batch: batch * 10))
    with pytest.warns(UserWarning, match="keeps its meaning"):
        CheckpointHandler().restore(tmp_path, it)
    rest = [element for batch in it for element in batch.tolist()]
    assert rest == [element * 10 for element in list(R(40).shuffle(seed=1))[6:]]


@pytest.mark.parametrize("workers", [(2, 3), (0, 2), (2, 0)], ids=str)
def test_another_number_of_workers_is_a_warning(workers: tuple[int, int], tmp_path: Path) -> None:
    def pipeline(count: int) -> Any:
        ds = R(40).shuffle(seed=1).to_iter_dataset()
        return ds.mp_prefetch(wg.MultiprocessingOptions(num_workers=count))

    expected = saved_at(pipeline(workers[0]), 7, tmp_path)
    it = iter(pipeline(workers[1]))
    with pytest.warns(UserWarning, match="ProcessPrefetchIterDataset"):
        CheckpointHandler().restore(tmp_path, it)
    assert next(it) == expected
    it.close()


ALL = {f"{name} {when}": change[when] for name, change in {**BREAKING, **HARMLESS}.items()
       for when in (0, 1)}  # fmt: skip


@pytest.mark.parametrize("name", ALL)
def test_the_same_pipeline_restores_in_silence(name: str, tmp_path: Path) -> None:
    pipeline: Any = ALL[name]
    expected = saved_at(pipeline(), 3, tmp_path)
    it = iter(pipeline())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert CheckpointHandler().restore(tmp_path, it) is it
    np.testing.assert_equal(next(it), expected)


@pytest.mark.parametrize("name", ALL)
def test_a_fingerprint_is_small_json(name: str) -> None:
    pipeline: Any = ALL[name]
    described = fingerprint(pipeline())
    text = json.dumps(described)
    assert json.loads(text) == described
    assert len(text) < 3000
    assert " at 0x" not in text


def test_a_fingerprint_holds_no_data() -> None:
    secret = [f"secret {number}" for number in range(50)]
    text = json.dumps(fingerprint(wg.MapDataset.source(secret)))
    assert "secret" not in text
    assert len(text) < 200


def test_a_fingerprint_is_the_same_in_another_process() -> None:
    code = (
        "import json, wholegrain as wg\n"
        "from wholegrain.checkpoint import fingerprint\n"
        "class Source(list): pass\n"
        "ds = wg.MapDataset.source(Source(range(100))).seed(3).shuffle().map(lambda x: x)\n"
        "ds = wg.MapDataset.concatenate([ds[n:] for n in range(30)])\n"
        "print(json.dumps(fingerprint(ds)))"
    )
    found = {
        subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            check=True,
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
        ).stdout
        for seed in "12"
    }
    assert len(found) == 1


def test_many_inputs_are_told_apart_though_few_are_written_down(tmp_path: Path) -> None:
    def pipeline(last_length: int) -> Any:
        return interleaved(2, *[5] * 30, last_length)

    assert len(json.dumps(fingerprint(pipeline(5)))) < 5000
    saved_at(pipeline(5), 3, tmp_path)
    with pytest.raises(ValueError, match="15 more, sha256"):
        CheckpointHandler().restore(tmp_path, iter(pipeline(6)))


def test_a_function_that_moved_to_another_line_is_the_same(tmp_path: Path) -> None:
    def pipeline(source: str) -> Any:
        names: dict[str, Any] = {}
        exec(source, names)
        return R(40).map(names["f"])

    expected = saved_at(pipeline("def f(x): return x"), 3, tmp_path)
    it = iter(pipeline("\n\n\ndef f(x): return x"))
    CheckpointHandler().restore(tmp_path, it)
    assert next(it) == expected


def test_a_source_without_a_name_is_known_by_its_class(tmp_path: Path) -> None:
    expected = saved_at(wg.MapDataset.source(Nameless()), 3, tmp_path)
    it = iter(wg.MapDataset.source(Nameless()))
    CheckpointHandler().restore(tmp_path, it)
    assert next(it) == expected
    with pytest.raises(ValueError, match="Nameless"):
        CheckpointHandler().restore(tmp_path, iter(wg.MapDataset.source(Records("train"))))


def test_a_checkpoint_without_a_description_restores_in_silence(tmp_path: Path) -> None:
    expected = saved_at(R(40).shuffle(seed=1), 3, tmp_path)
    (tmp_path / "pipeline_0-of-1.json").unlink()
    it = iter(R(40).shuffle(seed=1).map(lambda x: x))
    CheckpointHandler().restore(tmp_path, it)
    assert next(it) == expected


def test_grain_reads_a_directory_with_a_description(tmp_path: Path) -> None:
    grain = pytest.importorskip("grain", reason="compares with Grain")
    expected = saved_at(R(40).shuffle(seed=1), 3, tmp_path)
    it = iter(grain.MapDataset.range(40).shuffle(seed=1))
    grain.checkpoint.CheckpointHandler().restore(tmp_path, it)
    assert next(it) == expected


@pytest.fixture
def without_check() -> Iterator[None]:
    wg.config.update("check_pipeline", False)
    yield
    wg.config.update("check_pipeline", True)


@pytest.mark.usefixtures("without_check")
def test_the_check_can_be_switched_off(tmp_path: Path) -> None:
    saved_at(R(40).shuffle(seed=1), 3, tmp_path)
    it = iter(R(40).shuffle(seed=2))
    CheckpointHandler().restore(tmp_path, it)
    assert next(it) == R(40).shuffle(seed=2)[3]


@pytest.mark.parametrize(
    "text", ['{"version": 1, "sta', '{"version": "1"}', "[]", '{"stages": [{}]}', ""]
)
def test_a_description_that_cannot_be_read_is_refused(text: str, tmp_path: Path) -> None:
    expected = saved_at(R(40).shuffle(seed=1), 3, tmp_path)
    file = tmp_path / "pipeline_0-of-1.json"
    file.write_text(text)
    it = iter(R(40).shuffle(seed=1))
    with pytest.raises(ValueError, match=r"pipeline_0-of-1\.json is damaged.*delete the file"):
        CheckpointHandler().restore(tmp_path, it)
    file.unlink()
    CheckpointHandler().restore(tmp_path, it)
    assert next(it) == expected


class Unspeakable(Nameless):
    def __repr__(self) -> str:
        raise RuntimeError("no words")


def test_what_cannot_be_described_is_saved_and_restored(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    expected = saved_at(wg.MapDataset.source(Unspeakable()), 3, tmp_path)
    assert "no description" in caplog.text
    assert [file.name for file in tmp_path.iterdir()] == ["process_0-of-1.json"]
    it = iter(wg.MapDataset.source(Unspeakable()))
    CheckpointHandler().restore(tmp_path, it)
    assert next(it) == expected


class Later:
    """A directory that Orbax is about to make."""

    def __init__(self, path: Path) -> None:
        self._path = path

    async def await_creation(self) -> Path:
        return self._path


def test_the_newer_interface_checks_as_well(tmp_path: Path) -> None:
    it = iter(R(40).shuffle(seed=1))
    next(it)

    async def save() -> None:
        await (await it.save(Later(tmp_path)))

    async def load(into: Any) -> None:
        await (await into.load(tmp_path))

    asyncio.run(save())
    restored = iter(R(40).shuffle(seed=1))
    asyncio.run(load(restored))
    assert next(restored) == next(it)
    with pytest.raises(ValueError, match="ShuffleMapDataset, has seed=2, and had 1"):
        asyncio.run(load(iter(R(40).shuffle(seed=2))))


class Squares(wg.IterDataset[int]):
    """A user's dataset, which knows nothing of descriptions."""

    def __iter__(self) -> Any:
        return R(40).map(lambda x: x * x).to_iter_dataset().__iter__()


def test_users_datasets_are_stages_too(tmp_path: Path) -> None:
    stages = fingerprint(Squares().batch(2))["stages"]
    assert [stage["stage"] for stage in stages] == ["Squares", "BatchIterDataset"]
    saved_at(Squares().batch(2), 3, tmp_path)
    it: Any = iter(Squares().batch(2))
    CheckpointHandler().restore(tmp_path, it)
    assert next(it).tolist() == [36, 49]
