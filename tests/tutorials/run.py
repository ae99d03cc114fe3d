"""Runs the cells of a tutorial in order, as a notebook does.

    python -m tests.tutorials.run PAGE PACKAGE

`PACKAGE` is what is imported as `grain`. Files are written into the current directory and, by
TFDS, into the home directory. What cells print goes to the standard output, that of shell lines
to the standard error.
"""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

_CELL = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def shell(line: str) -> None:
    """Run a line that starts with an exclamation mark."""
    if not line.startswith("pip "):
        subprocess.run(line, shell=True, check=True, stdout=sys.stderr)


def run(page: Path, package: str) -> None:
    """Run the cells of a page."""
    text = page.read_text().replace("wholegrain", package)
    # Where checkpoints go; others may run at the same time.
    text = text.replace("/tmp/orbax", str(Path.cwd() / "orbax"))
    names: dict[str, Any] = {"__name__": "__main__", "shell": shell}
    for cell in _CELL.finditer(text):
        first_line = text.count("\n", 0, cell.start(1))
        code = re.sub(r"^!(.*)$", r"shell('''\1''')", cell[1], flags=re.MULTILINE)
        exec(compile("\n" * first_line + code, page.name, "exec"), names)


if __name__ == "__main__":
    page = Path(sys.argv[1])
    if "tensorflow_datasets" in page.read_text():
        from tests.tutorials import tiny_tfds

        tiny_tfds.prepare()
    run(page, sys.argv[2])
