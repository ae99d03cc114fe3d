"""Pages of the site that are made when it is built: a hook of mkdocs.

The reference has a page for each public namespace, listing the names its module exports. Texts
at the root of the repository become pages. Pages that the navigation names but that do not exist
are left out of it.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src" / "wholegrain"

# The text of a page, by its place in the site.
FROM_ROOT = {
    "architecture.md": "ARCHITECTURE.md",
    "changelog.md": "CHANGELOG.md",
    "contributing.md": "CONTRIBUTING.md",
}

# Namespaces in the order of the navigation, each with what it is for.
NAMESPACES = {
    "wholegrain": "Datasets, the DataLoader and their options: `import wholegrain as wg`.",
    "wholegrain.transforms": "Transformations as classes: for `apply`, and for the DataLoader.",
    "wholegrain.experimental": "Packing, interleaving, window shuffles, caches and other parts."
    " [Transformations](../transformations.md) has examples.",
    "wholegrain.sources": "Where records come from.",
    "wholegrain.schedule": "Weights of a mixture that change while it is read."
    " [Mixing datasets](../recipes/mixing.md) has examples.",
    "wholegrain.samplers": "Which record stands where, for the DataLoader.",
    "wholegrain.sharding": "Which part of the data a process reads.",
    "wholegrain.checkpoint": "Iterators saved and restored.",
    "wholegrain.multiprocessing": "Arrays in shared memory.",
    "wholegrain.torch": "A DataLoader for PyTorch. [A PyTorch loop](../recipes/pytorch.md) has"
    " examples.",
    "wholegrain.ray": "Pipelines on a Ray cluster.",
    "wholegrain.constants": "Keys that older programs use.",
    "wholegrain.testing": "Checks for datasets and sources of your own.",
}

# What most programs start with.
FIRST = (
    *("MapDataset", "IterDataset", "DatasetIterator", "DataLoader", "DataLoaderIterator", "load"),
    *("ReadOptions", "MultiprocessingOptions", "CheckpointHandler", "CheckpointSave"),
    *("CheckpointRestore", "loader", "check_resume", "check_map_dataset", "check_iter_dataset"),
)

# Used between modules; a program has no use for them.
INNER = {
    *("as_process", "jax_process", "even_split", "record_rng", "check_shard_options"),
    *("load_ipython_extension", "unload_ipython_extension"),
}

# Class methods that live in a metaclass, so that instances do not have them.
FACTORIES = {
    "MapDataset": "wholegrain._graph.map_dataset._MapDatasetFactories",
    "IterDataset": "wholegrain._graph.iter_dataset._IterDatasetFactories",
}

# What programs call of a dataset, in the order of a pipeline. The rest is between stages.
OF_DATASETS = {
    "MapDataset": (
        *("map", "random_map", "map_with_index", "filter", "shuffle", "batch", "repeat"),
        *("slice", "shard", "seed", "to_iter_dataset", "apply", "pipe", "named", "explain"),
        "parents",
    ),
    "IterDataset": (
        *("map", "random_map", "map_with_index", "filter", "batch", "mp_prefetch", "prefetch"),
        *("seed", "apply", "pipe", "named", "explain", "parents"),
    ),
}


def exported(module: str) -> list[str]:
    """Return the names that a module exports, in its order.

    Those are the names it defines, and those it imports under the same name: `import a as a`.
    """
    names = [name for name in _names(_tree(module).body) if not name.startswith("_")]
    names = [name for name in names if name not in INNER]
    if module == "wholegrain.experimental":
        # Datasets come first, then what is used with them.
        names = sorted(names, key=lambda name: (not name.endswith("Dataset"), name.lower()))
    return list(dict.fromkeys([name for name in FIRST if name in names] + names))


def _tree(module: str) -> ast.Module:
    path = ROOT / "src" / Path(*module.split("."))
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    return ast.parse(file.read_text())


def _names(body: list[ast.stmt]) -> Iterator[str]:
    for node in body:
        match node:
            case ast.If(test=ast.Name(id="TYPE_CHECKING")):
                yield from _names(node.body)
            case ast.ImportFrom(module="wholegrain.python"):
                continue  # older names for what has a place of its own
            case ast.Import(names=names) | ast.ImportFrom(names=names):
                yield from (alias.name for alias in names if alias.asname == alias.name)
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name):
                yield name
            case ast.Assign(targets=targets):
                for target in targets:
                    if isinstance(target, ast.Name) and target.id == "__all__":
                        yield from _literal_names(node.value)
                    elif isinstance(target, ast.Name):
                        yield target.id
            case ast.AnnAssign(target=ast.Name(id=name)):
                yield name


def _literal_names(value: ast.expr) -> list[str]:
    try:
        return list(ast.literal_eval(value))
    except ValueError:
        return []


def _is_module(name: str) -> bool:
    path = ROOT / "src" / Path(*name.split("."))
    return path.is_dir() or path.with_suffix(".py").is_file()


def reference_page(module: str) -> str:
    """Return the page of a public namespace, for mkdocstrings to fill in."""
    lines = [f"# {module}", "", NAMESPACES[module], ""]
    for name in exported(module):
        if _is_module(f"{module}.{name}"):
            continue
        lines += [f"::: {module}.{name}"]
        if name.endswith(("IterDataset", "MapDataset")) or (
            module != "wholegrain" and name.endswith("DatasetIterator")
        ):
            # What can be done with it is what can be done with any dataset, or any iterator.
            lines += ["    options: {members: false}"]
        lines += [""]
        if module == "wholegrain" and name in FACTORIES:
            methods = [f"{FACTORIES[name]}.{method}" for method in _methods(FACTORIES[name])]
            methods += [f"{module}.{name}.{method}" for method in OF_DATASETS[name]]
            for path in methods:
                method = path.rpartition(".")[2]
                heading = f"heading: {name}.{method}, toc_label: {method}, heading_level: 3"
                lines += [f"::: {path}", f"    options: {{{heading}}}", ""]
    return "\n".join(lines)


def _methods(path: str) -> list[str]:
    module, _, name = path.rpartition(".")
    for node in _tree(module).body:
        if isinstance(node, ast.ClassDef) and node.name == name:
            methods = [inner.name for inner in node.body if isinstance(inner, ast.FunctionDef)]
            return [method for method in dict.fromkeys(methods) if not method.startswith("_")]
    return []


def older_names_page() -> str:
    """Return the page of `wholegrain.python`: a table, as all of it is found elsewhere."""
    lines = [
        "# wholegrain.python",
        "",
        "One flat namespace, for programs that say `import grain.python as grain`. Its names:",
        "",
        "| name | is |",
        "|---|---|",
    ]
    names = sorted(exported("wholegrain.python"), key=str.lower)
    return "\n".join([*lines, *(f"| `{name}` | {_home(name)} |" for name in names)])


_OLDER_NAMES = {
    "Batch": "wholegrain.transforms.Batch",
    "InMemoryDataSource": "wholegrain.sources.SharedMemoryDataSource",
    "PyGrainDatasetIterator": "wholegrain.DataLoaderIterator",
}


def _home(name: str) -> str:
    plain = re.sub(r"^(Py)?Grain(?=Checkpoint)", "", name)
    for candidate in (name, plain, plain.removesuffix("Transform")):
        for module in NAMESPACES:
            if candidate in exported(module) and not _is_module(f"{module}.{candidate}"):
                return f"[`{module}.{candidate}`][{module}.{candidate}]"
    if name in _OLDER_NAMES:
        return f"[`{_OLDER_NAMES[name]}`][{_OLDER_NAMES[name]}]"
    return "kept for older programs"


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Leave pages out of the navigation that do not exist, and put the reference in."""
    made = {*FROM_ROOT, *_reference_paths()}
    docs = Path(config.docs_dir)

    def kept(entries: list[Any]) -> list[Any]:
        result: list[Any] = []
        for entry in entries:
            title, target = next(iter(entry.items()))
            if target == "reference":
                pages = [{page.removeprefix("reference/")[:-3]: page} for page in made_reference]
                result.append({title: pages})
            elif isinstance(target, list):
                if inner := kept(target):
                    result.append({title: inner})
            elif target in made or (docs / target).is_file():
                result.append(entry)
        return result

    made_reference = _reference_paths()
    config.nav = kept(config.nav or [])
    config.watch = [*config.watch, str(PACKAGE)]
    return config


def _reference_paths() -> list[str]:
    return [f"reference/{module}.md" for module in [*NAMESPACES, "wholegrain.python"]]


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are made here."""
    for module in NAMESPACES:
        page = f"reference/{module}.md"
        files.append(File.generated(config, page, content=reference_page(module)))
    page = "reference/wholegrain.python.md"
    files.append(File.generated(config, page, content=older_names_page()))
    for page, source in FROM_ROOT.items():
        text = (ROOT / source).read_text()
        files.append(File.generated(config, page, content=_moved(text)))
    return files


def _moved(text: str) -> str:
    """Return a text from the root of the repository with its links as from `docs`."""
    text = re.sub(r"\]\(docs/", "](", text)
    for page, source in FROM_ROOT.items():
        text = text.replace(f"]({source}", f"]({page}")
    # What is no page of the site stands in the repository.
    return re.sub(r"\[([^\]]+)\]\((?:benchmarks|examples|src|README)[^)]*\)", r"\1", text)


_TABLE = re.compile(r"<!-- benchmark table -->\n(.*?)\n<!-- end -->", re.DOTALL)
_FIGURE = re.compile(r'<img [^>]*src="[^"]*figures/(?P<name>[\w-]+\.svg)"[^>]*>')


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Lead links to the root to their pages, and put in the README's table of benchmarks."""
    depth = page.file.src_uri.count("/")
    for place, source in FROM_ROOT.items():
        markdown = markdown.replace(f"]({'../' * (depth + 1)}{source}", f"]({'../' * depth}{place}")
    if measured := _TABLE.search((ROOT / "README.md").read_text()):
        markdown = _TABLE.sub(lambda _: measured[1], markdown)
    return markdown


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Put figures into the page itself, where they have the colours of the theme."""

    def drawing(figure: re.Match[str]) -> str:
        text = (Path(config.docs_dir) / "figures" / figure["name"]).read_text().strip()
        return text if 'class="wg-figure"' in text else figure[0]

    return _FIGURE.sub(drawing, html)


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:
    """Have class methods under the names of their classes, in addresses within a page too."""
    for name, path in FACTORIES.items():
        output = output.replace(f"{path}.", f"wholegrain.{name}.")
    return output
