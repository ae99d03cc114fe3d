"""The command that installs what is missing: for a release, and for a checkout."""

import runpy
import shutil
from pathlib import Path

import pytest

from wholegrain._core import install


@pytest.mark.parametrize(
    ("folder", "command"),
    [
        ("lib/site-packages", "pip install 'wholegrain[parquet]'"),
        ("my code/src", "pip install -e '{tmp_path}/my code[parquet]'"),
    ],
)
def test_the_command_names_a_checkout_by_its_path(
    tmp_path: Path, folder: str, command: str
) -> None:
    file = tmp_path / folder / "wholegrain" / "_core" / "install.py"
    file.parent.mkdir(parents=True)
    shutil.copy(install.__file__, file)
    (tmp_path / folder).parent.joinpath("pyproject.toml").touch()
    found = runpy.run_path(str(file))["install_command"]("parquet")
    assert found == command.format(tmp_path=tmp_path.resolve())
