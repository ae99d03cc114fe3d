"""Datasets and iterators of wholegrain in the loaders of torch and torchdata."""

import itertools
import subprocess
import sys
from typing import Any

import pytest

import wholegrain as wg

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

DataLoader = torch.utils.data.DataLoader

# torch warns of more workers than there are processors, and of forks beside threads.
pytestmark = pytest.mark.filterwarnings("ignore")


def _noisy(number: int, rng: Any) -> float:
    return number + float(rng.random())


def _stream() -> wg.IterDataset[Any]:
    return wg.MapDataset.range(23).seed(1).shuffle().to_iter_dataset().random_map(_noisy)


def _read(loader: Any) -> list[float]:
    return [float(x) for batch in loader for x in batch]


def test_an_iter_dataset_is_an_iterable_dataset() -> None:
    assert isinstance(_stream(), torch.utils.data.IterableDataset)
    assert _read(DataLoader(_stream(), batch_size=4)) == list(_stream())
    batches = DataLoader(_stream().batch(4), batch_size=None)
    assert _read(batches) == list(_stream())


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_each_worker_of_torch_reads_its_share(workers: int) -> None:
    found = _read(DataLoader(_stream(), batch_size=4, num_workers=workers))
    assert sorted(found) == sorted(_stream())  # Each element once, with its own random numbers.


def test_workers_read_shares_of_a_dataset_that_accelerate_divides_among_ranks() -> None:
    accelerate = pytest.importorskip("accelerate.data_loader", reason="needs Accelerate")
    ds = wg.MapDataset.range(32).to_iter_dataset().map(float)
    found = []
    for rank in range(2):
        part = accelerate.IterableDatasetShard(ds, 4, num_processes=2, process_index=rank)
        found += _read(DataLoader(part, batch_size=4, num_workers=2))
    assert sorted(found) == list(range(32))


def test_a_dataset_of_the_user_divides_ours_by_itself() -> None:
    class EveryOther(torch.utils.data.IterableDataset):  # type: ignore[misc,name-defined,unused-ignore]
        def __init__(self, dataset: Any) -> None:
            self.dataset = dataset

        def __iter__(self) -> Any:
            worker = torch.utils.data.get_worker_info()
            return itertools.islice(iter(self.dataset), worker.id, None, worker.num_workers)

    found = _read(DataLoader(EveryOther(_stream()), batch_size=4, num_workers=2))
    assert sorted(found) == sorted(_stream())


def test_a_map_dataset_is_a_map_style_dataset() -> None:
    ds = wg.MapDataset.range(10).map(float)
    assert _read(DataLoader(ds, batch_size=4)) == list(ds)
    shuffled = _read(DataLoader(ds, batch_size=4, shuffle=True, num_workers=2))
    assert sorted(shuffled) == list(ds)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_stateful_data_loader_restores_the_iterators(workers: int) -> None:
    torchdata = pytest.importorskip("torchdata.stateful_dataloader", reason="needs torchdata")

    def make() -> Any:
        return torchdata.StatefulDataLoader(_stream(), batch_size=3, num_workers=workers)

    loader = make()
    expected = [batch.tolist() for batch in make()]
    for count, _ in enumerate(loader, 1):
        if count == 4:
            state = loader.state_dict()
            break
    other = make()
    other.load_state_dict(state)
    assert [batch.tolist() for batch in other] == expected[4:]


def test_nodes_of_torchdata_save_the_position() -> None:
    nodes = pytest.importorskip("torchdata.nodes", reason="needs torchdata")

    def make() -> Any:
        return nodes.Loader(nodes.IterableWrapper(_stream()))

    loader = make()
    expected = list(make())
    for count, _ in enumerate(loader, 1):
        if count == 7:
            state = loader.state_dict()
            break
    other = make()
    other.load_state_dict(state)
    assert list(other) == expected[7:]


_PROGRAM = """
import os, sys
import torch.utils.data  # Before wholegrain, unlike in this file.
import wholegrain as wg

class Numbers(wg.IterDataset):
    def __iter__(self):
        return iter(wg.MapDataset.range(5))

kept = []  # torch takes 10 s to end workers that have failed.

def read(ds, workers):
    it = iter(torch.utils.data.DataLoader(ds, num_workers=workers))
    kept.append(it)
    try:
        print(len(list(it)))
    except ValueError as error:
        text = str(error)
        print("error", "give your class a method" in text, "already runs in several" in text)

undivided = Numbers().map(lambda number: number)
read(undivided, 0)
read(undivided, 2)
in_workers = wg.MapDataset.range(6).to_iter_dataset()
in_workers = in_workers.mp_prefetch(wg.MultiprocessingOptions(num_workers=2))
read(in_workers, 0)
read(in_workers, 2)
print("wholegrain.torch" in sys.modules)
sys.stdout.flush()
for it in kept:
    for worker in getattr(it, "_workers", ()):
        worker.kill()
os._exit(0)
"""


def test_what_cannot_be_divided_among_workers_is_an_error_and_not_read_twice() -> None:
    run = subprocess.run(
        [sys.executable, "-c", _PROGRAM], capture_output=True, text=True, check=True
    )
    assert run.stdout.splitlines() == ["5", "error True False", "6", "error False True", "False"]
