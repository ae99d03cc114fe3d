"""Options from the environment and from command-line flags."""

import os
import subprocess
import sys

import pytest

_SHOW = """
print(wg.config.py_debug_mode, wg.config.py_traceback_filtering, wg.config.tf_lookup_batch_size,
      repr(wg.config.py_dataset_visualization_output_dir))
"""
_DEFAULTS = "False auto 100 None"


def _run(program: str, *arguments: str, **environ: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", program + _SHOW, *arguments],
        env={**os.environ, **environ},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    ).stdout.strip()


def test_the_environment_gives_initial_values() -> None:
    given = {
        "GRAIN_PY_DEBUG_MODE": "true",
        "GRAIN_PY_TRACEBACK_FILTERING": "off",
        "GRAIN_TF_LOOKUP_BATCH_SIZE": "7",
        "GRAIN_PY_DATASET_VISUALIZATION_OUTPUT_DIR": "",
    }
    assert _run("import wholegrain as wg", **given) == "True off 7 ''"


_FLAGS = ("--grain_py_debug_mode", "--grain_py_traceback_filtering=off")
_PARSE = "from absl import flags; flags.FLAGS(__import__('sys').argv)\n"


@pytest.mark.parametrize(
    "imports",
    [
        "import wholegrain as wg\n" + _PARSE,
        "from absl import flags\nimport wholegrain as wg\n" + _PARSE,
    ],
    ids=["absl is imported later", "absl is imported first"],
)
def test_flags_that_were_parsed_count(imports: str) -> None:
    pytest.importorskip("absl")
    assert _run(imports, *_FLAGS) == "True off 100 None"
    assert _run(imports) == _DEFAULTS
    assert _run(imports, "--nograin_py_debug_mode", GRAIN_PY_DEBUG_MODE="1") == _DEFAULTS


def test_flags_that_nobody_parses_do_no_harm() -> None:
    pytest.importorskip("absl")
    assert _run("from absl import flags\nimport wholegrain as wg") == _DEFAULTS
    assert _run("import wholegrain as wg", *_FLAGS) == _DEFAULTS


def test_update_overrules_flags_and_the_environment() -> None:
    pytest.importorskip("absl")
    program = f"import wholegrain as wg\n{_PARSE}\nwg.config.update('py_debug_mode', False)"
    assert _run(program, *_FLAGS, GRAIN_PY_DEBUG_MODE="1") == "False off 100 None"


def test_flags_of_grain_count_if_it_is_loaded_too() -> None:
    pytest.importorskip("absl")
    pytest.importorskip("grain")
    program = f"import warnings, grain\nimport wholegrain as wg\n{_PARSE}"
    assert _run(program, *_FLAGS) == "True off 100 None"


def test_a_wrong_flag_is_refused_by_absl() -> None:
    pytest.importorskip("absl")
    program = f"import wholegrain as wg\n{_PARSE}"
    with pytest.raises(subprocess.CalledProcessError):
        _run(program, "--grain_py_traceback_filtering=nonsense")


_USE_LATER = """
from absl import flags
flags.FLAGS(["program", "--grain_py_debug_mode"])
flags.FLAGS.grain_py_traceback_filtering = "off"
"""


@pytest.mark.parametrize(
    "imports",
    ["import wholegrain as wg", "from absl import flags; import wholegrain as wg"],
    ids=["absl is imported later", "absl is imported first"],
)
def test_flags_that_the_program_itself_sets_after_the_import_count(imports: str) -> None:
    pytest.importorskip("absl")
    assert _run(imports + _USE_LATER) == "True off 100 None"
    program = f"{imports}{_USE_LATER}\nflags.FLAGS.grain_py_debug_mode = False"
    assert _run(program) == "False off 100 None"


@pytest.mark.parametrize(
    "imports",
    [
        "import wholegrain as wg, absl.flags, grain",
        "import absl.flags, wholegrain as wg, grain",
        "import absl.flags, grain, wholegrain as wg",
        "import grain, wholegrain as wg, absl.flags",
        "import grain, absl.flags, wholegrain as wg",
        "import wholegrain as wg, grain, absl.flags",
    ],
)
def test_wholegrain_grain_and_absl_are_imported_in_any_order(imports: str) -> None:
    pytest.importorskip("absl")
    pytest.importorskip("grain")
    assert _run(f"{imports}\n{_PARSE}", *_FLAGS) == "True off 100 None"
    # Each of the two has its own options, and the flags are those of both.
    program = f"{imports}\n{_PARSE}\nassert flags.FLAGS.grain_py_debug_mode"
    program += "\nassert grain.config.py_debug_mode"
    assert _run(program, *_FLAGS) == "True off 100 None"


def test_what_was_parsed_before_grain_is_imported_still_counts() -> None:
    pytest.importorskip("absl")
    pytest.importorskip("grain")
    program = f"import wholegrain as wg\n{_PARSE}\nimport grain"
    assert _run(program, *_FLAGS) == "True off 100 None"
