"""Runs the cells of a tutorial in order, as a notebook does.

    python -m tests.tutorials.run PAGE             with Grain
    python -m tests.tutorials.run PAGE wholegrain  with `import wholegrain as grain` in its place
    python -m wholegrain -m tests.tutorials.run PAGE

Files are written into the current directory and, by TFDS, into the home directory. What cells print
goes to the standard output, that of shell lines to the standard error.
"""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

_CELL = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_IMPORT = re.compile(r"^import grain(\.\w+)?(?: as (\w+))?$", re.MULTILINE)


def shell(line: str) -> None:
    """Run a line that starts with an exclamation mark."""
    if not line.startswith("pip "):
        subprocess.run(line, shell=True, check=True, stdout=sys.stderr)


def _with_wholegrain(found: "re.Match[str]") -> str:
    return f"import wholegrain{found[1] or ''} as {found[2] or 'grain'}"


def run(page: Path, package: str) -> None:
    """Run the cells of a page."""
    text = page.read_text()
    if package == "wholegrain":
        text = _IMPORT.sub(_with_wholegrain, text)
        assert not re.search(r"^import grain", text, re.MULTILINE)
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
    run(page, *(sys.argv[2:] or ["grain"]))
