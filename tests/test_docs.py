"""The Python blocks of the documentation run, and print what they say they print."""

import contextlib
import io
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

_ROOT = Path(__file__).parent.parent
_PAGES = sorted([*_ROOT.glob("*.md"), *_ROOT.glob("docs/*.md")])
_NOT_RUN = re.compile(r"<!-- not run: .+ -->")
_PRINTED = re.compile(r"# -> ?(.*)$", re.MULTILINE)


class _Block(NamedTuple):
    line: int
    text: str
    runs: bool


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
                yield _Block(number, "\n".join(text), not _NOT_RUN.fullmatch(before))
        if line.strip():
            before = line.strip()


@pytest.mark.parametrize("page", _PAGES, ids=lambda page: page.name)
def test_blocks_run_in_order_and_print_what_they_say(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, Any] = {"__name__": "docs"}
    for block in _blocks(page):
        if not block.runs:
            continue
        # Lines count as in the page, so that a traceback points there.
        code = compile("\n" * block.line + block.text, str(page), "exec")
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(code, namespace)
        where = f"{page.name}:{block.line}"
        assert printed.getvalue().splitlines() == _PRINTED.findall(block.text), where


@pytest.mark.parametrize("page", _PAGES, ids=lambda page: page.name)
def test_most_blocks_are_run(page: Path) -> None:
    blocks = list(_blocks(page))
    assert sum(block.runs for block in blocks) >= len(blocks) / 2


@pytest.mark.parametrize("page", _PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text()):
        if not target.startswith(("https://", "http://")):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"
