"""Keras trains with wholegrain's datasets and DataLoader."""

import importlib.util
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.compat.programs import python

_PROGRAM = Path(__file__).parent / "keras_program.py"

if importlib.util.find_spec("keras") is None:
    pytest.skip("keras is not installed", allow_module_level=True)


def _run(backend: str, how: str, folder: Path) -> Any:
    if importlib.util.find_spec(backend) is None:
        pytest.skip(f"{backend} is not installed")
    if how in ("beside", "after") and importlib.util.find_spec("grain") is None:
        pytest.skip("Grain is not installed")
    run = python(
        *(["-m", "wholegrain"] if how == "alias" else []),
        _PROGRAM,
        how,
        cwd=folder,
        KERAS_BACKEND=backend,
        KERAS_HOME=str(folder),
        JAX_PLATFORMS="cpu",
    )
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout.splitlines()[-1])


@pytest.mark.parametrize("backend", ["jax", "torch"])
@pytest.mark.parametrize("how", ["without", "beside", "after", "alias"])
def test_models_learn_the_same_as_from_arrays(backend: str, how: str, tmp_path: Path) -> None:
    found = _run(backend, how, tmp_path)
    assert found.pop("backend") == backend
    # A layer in a pipeline computes there, and Keras knows that it does.
    assert found.pop("layers") == [True, True, False]
    if how == "alias":
        module, shape = found.pop("made by keras")
        assert module.startswith("wholegrain.")
        assert shape == [4, 4]
    expected = found.pop("arrays")
    assert found.keys() >= {"map", "iter", "loader"}
    for what, values in found.items():
        for name, value in values.items():
            np.testing.assert_allclose(value, expected[name], rtol=1e-4, atol=1e-5, err_msg=what)
