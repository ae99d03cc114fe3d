"""The Python blocks of the documentation run, and print what they say they print.

A comment before a block says where it does not:

    <!-- not run: why -->
    <!-- needs: jax, orbax.checkpoint -->     modules; `s3` stands for a server of that kind
"""

import contextlib
import importlib.util
import io
import re
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from xml.etree import ElementTree as ET

import pytest

from tests.s3_server import s3_bucket

_ROOT = Path(__file__).parent.parent
_PAGES = sorted([*_ROOT.glob("*.md"), *_ROOT.glob("docs/**/*.md")])
_NOT_RUN = re.compile(r"<!-- not run: .+ -->")
_NEEDS = re.compile(r"<!-- needs: (.+) -->")
_PRINTED = re.compile(r"# -> ?(.*)$", re.MULTILINE)
_S3 = ["moto", "obstore", "boto3"]


class _Block(NamedTuple):
    line: int
    text: str
    runs: bool
    needs: list[str]


def _name(page: Path) -> str:
    return page.relative_to(_ROOT).as_posix()


def _blocks(page: Path) -> Iterator[_Block]:
    """Yield the Python blocks of a page, each with what the line before it says."""
    before = ""
    lines = iter(enumerate(page.read_text().splitlines(), 1))
    for number, line in lines:
        if line.strip().startswith("```"):
            language = line.strip().removeprefix("```").strip()
            text = []
            for _, inner in lines:
                if inner.strip() == "```":
                    break
                text.append(inner)
            if language in ("python", "py"):
                needs = _NEEDS.fullmatch(before)
                yield _Block(
                    number,
                    "\n".join(text),
                    not _NOT_RUN.fullmatch(before),
                    needs[1].split(", ") if needs else [],
                )
        if line.strip():
            before = line.strip()


def _is_installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def _missing(block: _Block) -> list[str]:
    modules = [name for need in block.needs for name in (_S3 if need == "s3" else [need])]
    return [name for name in modules if not _is_installed(name)]


@pytest.fixture
def s3() -> Iterator[None]:
    """A store with an empty bucket `training`, in a server of its own."""
    with s3_bucket("training"):
        yield


@pytest.mark.parametrize("page", _PAGES, ids=_name)
def test_blocks_run_in_order_and_print_what_they_say(
    page: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> None:
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, Any] = {"__name__": "docs"}
    blocks = [block for block in _blocks(page) if block.runs]
    missing = {name for block in blocks for name in _missing(block)}
    if blocks and all(_missing(block) for block in blocks):
        pytest.skip(f"needs {', '.join(sorted(missing))}")
    for block in blocks:
        if _missing(block):
            continue
        if "s3" in block.needs:
            request.getfixturevalue("s3")
        # Lines count as in the page, so that a traceback points there.
        code = compile("\n" * block.line + block.text, str(page), "exec")
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed), warnings.catch_warnings():
            if block.needs:  # what other packages warn about is their affair
                warnings.simplefilter("default")
            exec(code, namespace)
        where = f"{_name(page)}:{block.line}"
        assert printed.getvalue().splitlines() == _PRINTED.findall(block.text), where


@pytest.mark.parametrize("page", _PAGES, ids=_name)
def test_most_blocks_are_run(page: Path) -> None:
    blocks = list(_blocks(page))
    assert sum(block.runs for block in blocks) >= len(blocks) / 2


@pytest.mark.parametrize("page", _PAGES, ids=_name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text()):
        if not target.startswith(("https://", "http://")):
            assert (page.parent / target).exists(), f"{_name(page)} links to {target}"


def test_each_page_is_in_the_navigation_of_the_site() -> None:
    named = set(re.findall(r": ([\w/-]+\.md)$", (_ROOT / "mkdocs.yml").read_text(), re.MULTILINE))
    pages = {page.relative_to(_ROOT / "docs").as_posix() for page in _ROOT.glob("docs/**/*.md")}
    assert pages <= named


def test_figures_are_drawings_with_a_title_and_are_shown() -> None:
    texts = "".join(page.read_text() for page in _PAGES)
    for figure in (_ROOT / "docs" / "figures").glob("*.svg"):
        drawing = ET.parse(figure).getroot()
        assert drawing.findtext("{http://www.w3.org/2000/svg}title")
        assert f"figures/{figure.name}" in texts


def test_directions_in_a_pipeline_are_upstream_and_downstream() -> None:
    # "behind" reads as upstream to some people and as downstream to others.
    found = [
        f"{_name(page)}:{number}: {line}"
        for page in [_ROOT / "README.md", *_ROOT.glob("docs/**/*.md"), *_ROOT.glob("docs/**/*.svg")]
        for number, line in enumerate(page.read_text().splitlines(), 1)
        if re.search(r"\b(behind|in front of)\b", line, re.IGNORECASE)
    ]
    assert not found, "\n".join(found)
