"""The report as a page, looked at in a browser."""

import re
import shutil
import struct
import subprocess
from pathlib import Path
from typing import Any

import pytest

import wholegrain as wg

_BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--enable-logging=stderr",
    "--window-size=1200,1000",
)


def _report() -> Any:
    parts = [
        wg.MapDataset.range(600).shuffle(seed=1).map(lambda x: x + 1),
        wg.MapDataset.range(200).map(lambda x: -x),
    ]
    it: Any = iter(wg.MapDataset.mix(parts, [3, 1]).to_iter_dataset().map(lambda x: x * 2).batch(8))
    list(it)
    return it.report()


def test_the_page_needs_nothing_else() -> None:
    page = _report().to_html()
    assert page.startswith("<!doctype html>")
    assert not re.search(r"(src|href)\s*=\s*[\"'](?!data:)", page)
    assert "url(http" not in page
    assert "prefers-color-scheme: dark" in page
    for name in ("mix (2 datasets)", "map(lambda)", "batch(8)"):
        assert name in page


def test_names_are_escaped() -> None:
    class Strange:
        __name__ = "<script>alert(1)</script>"

        def __call__(self, x: int) -> int:
            return x

    it = iter(wg.MapDataset.range(10).map(Strange()))
    list(it)
    assert "<script" not in it.report().to_html()
    assert "<script" not in it.report()._repr_html_()


def test_a_browser_shows_it_without_errors(tmp_path: Path) -> None:
    browser = next(filter(None, map(shutil.which, _BROWSERS)), None)
    if browser is None:
        pytest.skip("there is no Chromium to look at the page with")
    page, picture = tmp_path / "report.html", tmp_path / "report.png"
    _report().save_html(page)
    found = subprocess.run(
        [
            browser,
            *_FLAGS,
            f"--user-data-dir={tmp_path / 'profile'}",
            f"--screenshot={picture}",
            page.as_uri(),
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert picture.exists(), found.stderr
    assert ":CONSOLE" not in found.stderr
    data = picture.read_bytes()
    width, height = struct.unpack(">II", data[16:24])
    assert (width, height) == (1200, 1000)
    assert len(data) > 20_000  # An empty page is smaller.
