"""Settings of the process."""

import copy
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

import wholegrain as wg
import wholegrain.python

_DEFAULTS = {
    "py_debug_mode": False,
    "py_dataset_visualization_output_dir": None,
    "py_traceback_filtering": "auto",
    "py_relay_sigterm_to_main": False,
    "tf_interleaved_shuffle": False,
    "tf_interleaved_shuffle_block_size": 10,
    "tf_interleaved_shuffle_parallel_blocks": 10,
    "tf_lookup_batch_size": 100,
    "tf_lookup_num_parallel_calls": -1,
    "tf_lookup_fast_warmup": False,
    "tf_optimized_sequential_read": False,
    "tf_prefetch_buffer_size": -1,
}


@pytest.fixture(autouse=True)
def _values_as_before() -> Iterator[None]:
    before = {name: getattr(wg.config, name) for name in _DEFAULTS}
    yield
    for name, value in before.items():
        wg.config.update(name, value)


@pytest.mark.parametrize(("name", "default"), _DEFAULTS.items())
def test_options_have_grains_names_and_defaults(name: str, default: Any) -> None:
    assert getattr(wg.config, name) == default
    assert wg.config.get_or_default(name) == default
    assert name in dir(wg.config)


def test_the_flat_namespace_has_the_same_object() -> None:
    assert wholegrain.python.config is wg.config


def test_update_takes_effect_at_once() -> None:
    wg.config.update("py_debug_mode", True)
    assert wg.config.py_debug_mode is True
    wg.config.update("py_dataset_visualization_output_dir", "")
    assert wg.config.py_dataset_visualization_output_dir == ""
    wg.config.update("py_dataset_visualization_output_dir", None)
    assert wg.config.py_dataset_visualization_output_dir is None


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("py_debug_mode", "yes"),
        ("py_debug_mode", None),
        ("py_traceback_filtering", "sometimes"),
        ("py_dataset_visualization_output_dir", 3),
        ("tf_lookup_batch_size", "many"),
    ],
)
def test_values_that_an_option_cannot_have_are_refused(name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=name):
        wg.config.update(name, value)
    assert getattr(wg.config, name) == _DEFAULTS[name]


def test_an_unknown_option_is_a_missing_attribute_and_a_wrong_value() -> None:
    for kind in (AttributeError, ValueError):
        with pytest.raises(kind, match=r"no option 'nothing'.*py_debug_mode"):
            _ = wg.config.nothing
        with pytest.raises(kind):
            wg.config.update("nothing", 1)
        with pytest.raises(kind):
            wg.config.get_or_default("nothing")
    assert not hasattr(wg.config, "nothing")


def test_setting_an_attribute_says_how_options_are_set() -> None:
    with pytest.raises(ValueError, match=r"config\.update\('py_debug_mode', True\)"):
        wg.config.py_debug_mode = True


def test_a_deep_copy_is_independent() -> None:
    other = copy.deepcopy(wg.config)
    other.update("py_debug_mode", True)
    assert other.py_debug_mode
    assert not wg.config.py_debug_mode


def _run(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", f"import wholegrain as wg; {code}"],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
        check=False,
    )


def test_the_environment_gives_the_values_to_start_with() -> None:
    run = _run(
        "c = wg.config; print(c.py_debug_mode, c.tf_lookup_batch_size, c.py_traceback_filtering)",
        GRAIN_PY_DEBUG_MODE="1",
        GRAIN_TF_LOOKUP_BATCH_SIZE="7",
        GRAIN_PY_TRACEBACK_FILTERING="off",
    )
    assert run.stdout == "True 7 off\n"


def test_a_wrong_value_in_the_environment_is_named() -> None:
    run = _run("", GRAIN_PY_TRACEBACK_FILTERING="sometimes")
    assert run.returncode
    assert "GRAIN_PY_TRACEBACK_FILTERING" in run.stderr
    assert "'sometimes'" in run.stderr
