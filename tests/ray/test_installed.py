"""Whether the tests of this folder run."""

import subprocess
import sys

import pytest


def test_ray_is_installed() -> None:
    pytest.importorskip("ray", reason="without ray, the tests of `wholegrain.ray` do not run")


def test_without_ray_the_message_names_the_extra() -> None:
    code = "import sys; sys.modules['ray'] = None; import wholegrain.ray"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "wholegrain[ray]" in run.stderr
    assert run.stderr.rstrip().splitlines()[-1].startswith("ImportError")
