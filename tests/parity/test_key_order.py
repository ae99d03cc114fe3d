"""With jax installed, Grain's dicts have sorted keys wherever it takes elements apart."""

from typing import Any

import numpy as np
import pytest

import wholegrain as wg

pytest.importorskip("jax")
grain: Any = pytest.importorskip("grain")
pytest.importorskip("grain.experimental")

pytestmark = pytest.mark.filterwarnings("ignore")


def elements(package: Any) -> Any:
    records = [{"z": np.arange(i % 3 + 1), "a": {"y": i, "b": [i]}, "m": i} for i in range(6)]
    return package.MapDataset.source(records)


def batched(package: Any) -> Any:
    return elements(package).map(lambda e: {"z": e["m"], "a": e["a"]}).batch(2)


def batched_in_order(package: Any) -> Any:
    ds = elements(package).to_iter_dataset().map(lambda e: {"z": e["m"], "a": e["a"]})
    return ds.batch(2)


def first_fit(package: Any) -> Any:
    return package.experimental.FirstFitPackIterDataset(
        elements(package).to_iter_dataset(),
        length_struct={"z": 8, "m": 4},
        meta_features=["a"],
        num_packing_bins=2,
    )


def concatenated(package: Any) -> Any:
    ds = elements(package).to_iter_dataset().map(lambda e: {"z": e["z"], "m": e["m"]})
    return package.experimental.ConcatThenSplitIterDataset(ds, length_struct={"z": 4, "m": 4})


def keys(value: Any) -> Any:
    if not isinstance(value, dict):
        return None
    return [(key, keys(item)) for key, item in value.items()]


@pytest.mark.parametrize("pipeline", [elements, batched, batched_in_order, first_fit, concatenated])
def test_keys_stand_in_the_order_of_grain(pipeline: Any) -> None:
    assert keys(next(iter(pipeline(wg)))) == keys(next(iter(pipeline(grain))))


def test_what_comes_from_a_worker_has_sorted_keys() -> None:
    options = wg.MultiprocessingOptions(num_workers=1)
    with iter(elements(wg).to_iter_dataset().mp_prefetch(options)) as it:
        assert keys(next(it)) == [("a", [("b", None), ("y", None)]), ("m", None), ("z", None)]
