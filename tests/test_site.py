"""The documentation builds as a site, needs nothing from elsewhere, and shows in a browser."""

import contextlib
import functools
import html
import http.server
import importlib
import importlib.util
import json
import os
import re
import shutil
import struct
import subprocess
import sys
import threading
import urllib.parse
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from xml.etree import ElementTree as ET

import pytest

_ROOT = Path(__file__).parent.parent
_SURFACE: dict[str, Any] = json.loads(
    (Path(__file__).parent / "golden" / "api_surface.json").read_text()
)
_NAMESPACES = [
    "",
    ".checkpoint",
    ".constants",
    ".experimental",
    ".multiprocessing",
    ".samplers",
    ".schedule",
    ".sharding",
    ".sources",
    ".testing",
    ".transforms",
]
# In a docstring of Grain's only: it has no such class.
_LEFT_OUT = {"grain.experimental.WithOptionsMapDataset"}
_NEED_ORBAX = ("CheckpointSave", "CheckpointRestore")
_DESKTOP, _PHONE = (1280, 900), (400, 844)

# What a browser does of its own accord is switched off, and nothing but the site can be reached.
_FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-dev-shm-usage",
    "--disable-sync",
    "--hide-scrollbars",
    "--enable-logging=stderr",
    "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1",
]

# Opens all pages one after the other, and says which of them do not fit the width of the window.
_VISIT_ALL = """<!doctype html><title>visiting</title>
<link rel="icon" href="data:,">
<style>
  body {{ margin: 0 }}
  iframe {{ border: 0; width: 100vw; height: 100vh; display: block }}
</style>
<iframe></iframe><pre></pre>
<script>
  const pages = {pages}, wide = [], frame = document.querySelector("iframe");
  let next = 0;
  frame.onload = () => setTimeout(() => {{
    const root = frame.contentDocument.documentElement;
    if (next > 0 && root.scrollWidth > root.clientWidth) wide.push(pages[next - 1]);
    if (next < pages.length) frame.src = pages[next++];
    else document.querySelector("pre").textContent = JSON.stringify({{visited: next, wide}});
  }}, 50);
  frame.src = "about:blank";
</script>
"""


# Asks the page's own search, and tells the server what it found.
_SEARCH = """<!doctype html><title>searching</title>
<link rel="icon" href="data:,">
<iframe src="index.html?q={query}" width="1280" height="900"></iframe>
<img src="/until-told">
<script>
  const frame = document.querySelector("iframe");
  const timer = setInterval(() => {{
    const links = frame.contentDocument.querySelectorAll(".md-search-result__link");
    if (!links.length) return;
    clearInterval(timer);
    const places = [...links].map((link) => new URL(link.href).pathname);
    fetch("/tell?" + encodeURIComponent(JSON.stringify(places)));
  }}, 100);
</script>
"""


@pytest.fixture(name="site", scope="module")
def _site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that the site was built into."""
    for module in ("mkdocs", "material", "mkdocstrings_handlers.python"):
        pytest.importorskip(module)
    folder: Path = tmp_path_factory.mktemp("site")
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "--quiet", "build", "--site-dir", str(folder)],
        cwd=_ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stdout + built.stderr
    return folder


def _pages(site: Path) -> list[str]:
    return sorted(page.relative_to(site).as_posix() for page in site.rglob("*.html"))


def test_each_document_is_a_page(site: Path) -> None:
    documents = [file.relative_to(_ROOT / "docs") for file in (_ROOT / "docs").rglob("*.md")]
    assert {file.with_suffix(".html").as_posix() for file in documents} <= set(_pages(site))


def test_pages_fetch_nothing_from_elsewhere(site: Path) -> None:
    fetched = re.compile(r'<(?:script|img|iframe|source)[^>]*\ssrc="?(https?:)?//[^">]*')
    linked = re.compile(r'<link[^>]*\shref="?(https?:)?//[^">]*')
    found = []
    for page in _pages(site):
        text = (site / page).read_text()
        found += [f"{page}: {match[0]}" for p in (fetched, linked) for match in p.finditer(text)]
    for style in site.rglob("*.css"):
        text = style.read_text()
        found += [f"{style.name}: {match[0]}" for match in re.finditer(r"url\(.?https?:", text)]
    assert not found


@pytest.mark.parametrize("namespace", _NAMESPACES)
def test_the_reference_has_every_public_name(site: Path, namespace: str) -> None:
    page = (site / "reference" / f"wholegrain{namespace}.html").read_text()
    listed = set(re.findall(rf'id="?wholegrain{re.escape(namespace)}\.(\w+)"?', page))
    of_grain = {
        name
        for name, entry in _SURFACE["modules"].get(f"grain{namespace}", {}).items()
        if entry["kind"] != "module"
        and not name.startswith("_")
        and f"grain{namespace}.{name}" not in _LEFT_OUT
    }
    assert of_grain <= listed
    module = importlib.import_module(f"wholegrain{namespace}")
    assert all(hasattr(module, name) for name in listed - set(_NEED_ORBAX))


def test_the_reference_begins_with_what_programs_use(site: Path) -> None:
    page = (site / "reference" / "wholegrain.html").read_text()
    listed = re.findall(r'<h[23] id="?([\w.]+)', page)
    assert listed[:4] == [
        "wholegrain.MapDataset",
        "wholegrain.MapDataset.source",
        "wholegrain.MapDataset.range",
        "wholegrain.MapDataset.mix",
    ]
    classes = [name for name in listed if name.count(".") == 1]
    assert classes[:4] == [
        f"wholegrain.{name}"
        for name in ("MapDataset", "IterDataset", "DatasetIterator", "DataLoader")
    ]
    others = (site / "reference" / "wholegrain.experimental.html").read_text()
    first = re.findall(r'<h2 id="?wholegrain\.experimental\.(\w+)', others)[:10]
    assert all(name.endswith("Dataset") for name in first), first
    every_page = "".join(page.read_text() for page in (site / "reference").glob("*.html"))
    of_modules_inside = re.findall(r'(?:id|href)="?#?wholegrain(?:\.\w+)*\._\w+[^">]*', every_page)
    assert not of_modules_inside
    between_stages = ("getitem_into", "chunk_hint", "go_to", "pass_over", "tell_report", "put_back")
    assert not [name for name in listed if name.rpartition(".")[2] in between_stages]


def test_the_front_page_says_how_to_install_and_how_fast(site: Path) -> None:
    page = (site / "index.html").read_text()
    text = html.unescape(re.sub(r"<[^>]*>", "", page))
    assert "pip install ." in text
    assert "next_index" in text
    readme = (_ROOT / "README.md").read_text()
    for bar in _script("docs_chart").bars(readme):
        assert bar.label in text
        assert bar.text in text
    pictures = re.findall(r'<img [^>]*src="?(figures/[\w.-]+)', page)
    assert {"figures/demo.svg", "figures/dashboard-light.png", "figures/dashboard-dark.png"} == set(
        pictures
    )
    assert all((site / picture).stat().st_size < 250_000 for picture in pictures)


def test_the_chart_is_that_of_the_readme() -> None:
    script = _script("docs_chart")
    drawn = script.chart((_ROOT / "README.md").read_text())
    assert script.CHART.read_text() == drawn, "Run `python scripts/docs_chart.py`."


def test_a_row_that_the_chart_does_not_find_is_named() -> None:
    script = _script("docs_chart")
    readme = (_ROOT / "README.md").read_text().replace("| JPEG decoding", "| decoding of JPEG")
    with pytest.raises(ValueError, match="0 rows that begin 'JPEG decoding'"):
        script.bars(readme)


@pytest.mark.parametrize(
    "figure", sorted((_ROOT / "docs" / "figures").glob("*.svg")), ids=lambda file: file.name
)
def test_figures_are_well_formed_and_load_nothing(figure: Path) -> None:
    text = figure.read_text()
    assert ET.fromstring(text).tag == "{http://www.w3.org/2000/svg}svg"
    addresses = set(re.findall(r"https?://[^\s\"')]+", text))
    assert addresses == {"http://www.w3.org/2000/svg"}


def _script(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, _ROOT / "scripts" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# In a browser.


@pytest.fixture(name="chromium", scope="module")
def _chromium() -> str:
    for name in ("chromium", "chromium-browser", "google-chrome"):
        if path := shutil.which(name):
            return path
    pytest.skip("there is no Chromium")


class _Served(NamedTuple):
    address: str
    missing: list[str]  # what was asked for and is not there
    told: list[str]  # what pages sent to `/tell`


@pytest.fixture(name="served", scope="module")
def _served(site: Path) -> Iterator[_Served]:
    missing: list[str] = []
    told: list[str] = []
    is_told = threading.Event()

    class Handler(http.server.SimpleHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path == "/until-told":  # keeps a page loading while its scripts work
                is_told.wait(timeout=120)
                self.path = "/assets/icon.svg"
            elif self.path.startswith("/tell?"):
                told.append(urllib.parse.unquote(self.path.removeprefix("/tell?")))
                is_told.set()
                self.path = "/assets/icon.svg"
            super().do_GET()

        def log_message(self, format: str, *args: Any) -> None:
            pass

        def log_error(self, format: str, *args: Any) -> None:
            missing.append(self.path)

    handler = functools.partial(Handler, directory=str(site))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield _Served(f"http://127.0.0.1:{server.server_address[1]}", missing, told)
        server.shutdown()
        thread.join()


def _run(chromium: str, folder: Path, size: tuple[int, int], *arguments: str) -> tuple[str, str]:
    """Run the browser; return what it printed and its errors on the console."""
    run = subprocess.run(
        [
            chromium,
            *_FLAGS,
            f"--user-data-dir={folder / 'profile'}",
            f"--window-size={size[0]},{size[1]}",
            *arguments,
        ],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    messages = [line for line in run.stderr.splitlines() if ":CONSOLE" in line]
    return run.stdout, "\n".join(messages)


@contextlib.contextmanager
def _page(site: Path, name: str, text: str) -> Iterator[None]:
    (site / name).write_text(text)
    try:
        yield
    finally:
        (site / name).unlink()


@pytest.mark.parametrize("size", [_DESKTOP, _PHONE], ids=["desktop", "phone"])
def test_no_page_has_errors_or_is_too_wide(
    site: Path, served: _Served, chromium: str, size: tuple[int, int], tmp_path: Path
) -> None:
    pages = _pages(site)
    with _page(site, "visit-all.html", _VISIT_ALL.format(pages=json.dumps(pages))):
        dom, console = _run(
            chromium,
            tmp_path,
            size,
            "--virtual-time-budget=120000",
            "--dump-dom",
            f"{served.address}/visit-all.html",
        )
    assert not console
    assert not served.missing
    told = re.search(r"<pre>(.*)</pre>", dom)
    assert told is not None, dom
    assert json.loads(told[1]) == {"visited": len(pages), "wide": []}


def test_errors_would_be_noticed(
    site: Path, served: _Served, chromium: str, tmp_path: Path
) -> None:
    broken = '<script src="missing.js"></script><script>throw new Error("a bad script")</script>'
    with _page(site, "broken.html", broken):
        _, console = _run(
            chromium, tmp_path, _DESKTOP, "--dump-dom", f"{served.address}/broken.html"
        )
    assert "a bad script" in console
    assert "/missing.js" in served.missing
    served.missing.clear()


def test_the_search_finds_pages(site: Path, served: _Served, chromium: str, tmp_path: Path) -> None:
    with _page(site, "search.html", _SEARCH.format(query="packing")):
        _, console = _run(
            chromium, tmp_path, _DESKTOP, "--dump-dom", f"{served.address}/search.html"
        )
    assert not console
    found = json.loads(served.told[-1])
    assert any(place.startswith("/recipes/llm-packing.html") for place in found)


@pytest.mark.parametrize("page", ["index.html", "recipes/mixing.html"])
def test_the_search_works_from_the_disk(
    site: Path, chromium: str, page: str, tmp_path: Path
) -> None:
    dom, console = _run(
        chromium,
        tmp_path,
        _DESKTOP,
        "--virtual-time-budget=20000",
        "--dump-dom",
        f"{(site / page).as_uri()}?q=packing",
    )
    assert not console
    found = re.findall(r'<a href="([^"]*)" class="md-search-result__link"', dom)
    assert any("recipes/llm-packing.html" in place for place in found)


@pytest.mark.parametrize("page", ["index.html", "engine.html", "reference/wholegrain.html"])
def test_pages_can_be_photographed(
    served: _Served, chromium: str, page: str, tmp_path: Path
) -> None:
    picture = tmp_path / "picture.png"
    _, console = _run(
        chromium,
        tmp_path,
        _DESKTOP,
        "--virtual-time-budget=5000",
        f"--screenshot={picture}",
        f"{served.address}/{page}",
    )
    assert not console
    data = picture.read_bytes()
    assert struct.unpack(">II", data[16:24]) == _DESKTOP
    assert len(data) > 20_000  # an empty page is much smaller
