"""A program that trains with Keras; run by `test_keras.py`, and told how it finds Grain.

python keras_program.py FOLDER {without,beside,after,alias}
"""

import importlib
import json
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any

import numpy as np


class _NoGrain:
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> None:
        if fullname.partition(".")[0] == "grain":
            raise ModuleNotFoundError(f"No module named {fullname!r}", name=fullname)


how = sys.argv[1]
if how == "without":
    sys.meta_path.insert(0, _NoGrain())
if how == "after":  # Keras is imported first, and Grain too.
    importlib.import_module("keras")
if how in ("after", "beside"):
    importlib.import_module("grain")

import keras  # type: ignore[import-not-found,unused-ignore]  # noqa: E402

wg: Any = importlib.import_module("grain" if how == "alias" else "wholegrain")

rng = np.random.default_rng(0)
X = rng.normal(size=(20, 4)).astype(np.float32)
Y = X.sum(1, keepdims=True)


class Pairs:
    """A source of inputs and targets."""

    def __len__(self) -> int:
        return len(X)

    def __getitem__(self, index: int) -> Any:
        return X[index], Y[index]


def model() -> Any:
    """Make the same model each time."""
    made = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1, kernel_initializer="ones")])
    made.compile(optimizer=keras.optimizers.SGD(0.05), loss="mse")
    return made


def losses(x: Any, *y: Any) -> dict[str, Any]:
    """Train, evaluate and predict."""
    made = model()
    history = made.fit(x, *y, batch_size=None if not y else 5, epochs=2, shuffle=False, verbose=0)
    return {
        "fit": history.history["loss"],
        "evaluate": made.evaluate(x, *y, batch_size=None if not y else 5, verbose=0),
        "predict": np.ravel(made.predict(x, batch_size=None if not y else 5, verbose=0)).tolist(),
    }


def loader(worker_count: int) -> Any:
    """Make a DataLoader of the pairs, in order."""
    return wg.DataLoader(
        data_source=Pairs(),
        sampler=wg.samplers.SequentialSampler(len(X), seed=0),
        operations=[wg.transforms.Batch(5)],
        worker_count=worker_count,
    )


def pipeline_of_layers() -> Any:
    """Use a layer within a pipeline, and say whether Keras notices."""
    utils = importlib.import_module("keras.src.utils.backend_utils")
    layer = keras.layers.Rescaling(2.0)

    def rescale(pair: Any) -> Any:
        return np.asarray(layer(pair[0])), utils.in_grain_data_pipeline()

    doubled, noticed = zip(*wg.MapDataset.source(Pairs()).map(rescale), strict=True)
    return np.allclose(doubled, 2 * X), all(noticed), utils.in_grain_data_pipeline()


pairs = wg.MapDataset.source(Pairs()).batch(5)
found: dict[str, Any] = {
    "arrays": losses(X, Y),
    "map": losses(pairs),
    "iter": losses(pairs.to_iter_dataset()),
    "loader": losses(loader(0)),
    "layers": pipeline_of_layers(),
}
if how in ("without", "alias"):
    workers = wg.MultiprocessingOptions(num_workers=2)
    found["workers"] = losses(pairs.to_iter_dataset().mp_prefetch(workers))
    found["loader with a worker"] = losses(loader(1))
if how == "alias":
    # Keras makes datasets itself.
    series = keras.utils.timeseries_dataset_from_array(
        X[:, 0], Y[3:, 0], sequence_length=4, batch_size=4, format="grain"
    )
    found["made by keras"] = [type(series).__module__, np.shape(next(iter(series))[0])]
if how in ("beside", "after"):
    # Those of Grain are handled as ever.
    grain: Any = importlib.import_module("grain")
    found["grain"] = losses(grain.MapDataset.source(Pairs()).batch(5).to_iter_dataset())
found["backend"] = keras.backend.backend()
print(json.dumps(found))
