"""What holds for the project as a whole."""

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import wholegrain

_ROOT = Path(__file__).parent.parent
_SOURCES = sorted((_ROOT / "src" / "wholegrain").rglob("*.py"))
_MAX_LINES = 470

_ALWAYS_THERE = {"wholegrain", "numpy", "cloudpickle", "absl"}  # absl: if the program uses it.
_DISTRIBUTIONS = {
    "array_record": "array-record",
    "google_crc32c": "google-crc32c",
    "orbax": "orbax-checkpoint",
    "prometheus_client": "prometheus-client",
}


def _project() -> dict[str, Any]:
    with (_ROOT / "pyproject.toml").open("rb") as file:
        project: dict[str, Any] = tomllib.load(file)["project"]
    return project


def _extras() -> dict[str, list[str]]:
    extras: dict[str, list[str]] = _project()["optional-dependencies"]
    return extras


def test_the_version_is_the_same_everywhere() -> None:
    version = _project()["version"]
    assert wholegrain.__version__ == version
    assert f"[{version}]" in (_ROOT / "CHANGELOG.md").read_text()


def test_the_licence_is_there() -> None:
    assert "Apache License" in (_ROOT / "LICENSE").read_text()
    assert _project()["license"] == "Apache-2.0"


def _files_of_the_repository() -> list[Path]:
    try:
        listed = subprocess.run(
            ["git", "ls-files", "-z"], cwd=_ROOT, capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("this is no git checkout: which files belong to it is not known")
    return [_ROOT / name for name in listed.stdout.split("\0") if name]


def test_no_file_names_a_place_on_somebodys_machine() -> None:
    place = re.compile(r"(?<![\w.])/(?:root|home|Users|work|tmp/\w+)/\w")
    found = []
    for file in _files_of_the_repository():
        if not file.is_file():
            continue
        try:
            text = file.read_text()
        except UnicodeDecodeError:
            continue
        for number, line in enumerate(text.splitlines(), 1):
            if place.search(line):
                found.append(f"{file.relative_to(_ROOT)}:{number}: {line.strip()}")
    assert not found, "\n".join(found)


def test_the_extension_counts_none_for_older_versions_too() -> None:
    # Py_RETURN_NONE does not with newer headers: under Python 3.11 None would be freed.
    sources = list((_ROOT / "src" / "wholegrain" / "_core").glob("*.c"))
    assert sources
    for file in sources:
        assert not re.search(r"Py_RETURN_\w+;", file.read_text())


def test_files_are_small_enough_to_read() -> None:
    lengths = {file: len(file.read_text().splitlines()) for file in _SOURCES}
    too_long = {str(file): lines for file, lines in lengths.items() if lines > _MAX_LINES}
    assert not too_long


_MAX_ATTRIBUTES = 15


class _Class(NamedTuple):
    """A class: its bases by name, and its instance attributes."""

    bases: list[str]
    attributes: set[str]


def _classes(*folders: str) -> dict[str, _Class]:
    found = {}
    for folder in folders:
        for file in (_ROOT / "src" / "wholegrain" / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(file.read_text())):
                if isinstance(node, ast.ClassDef):
                    bases = [re.split(r"[.\[]", ast.unparse(base))[0] for base in node.bases]
                    found[node.name] = _Class(bases, set(_attributes(node)))
    return found


def _attributes(node: ast.ClassDef) -> Iterator[str]:
    """Yield what methods assign to `self`, and the fields of a dataclass."""
    for child in ast.walk(node):
        match child:
            case ast.Attribute(ctx=ast.Store(), value=ast.Name(id="self")):
                yield child.attr
    if any("dataclass" in ast.unparse(decorator) for decorator in node.decorator_list):
        for child in node.body:
            if isinstance(child, ast.AnnAssign):
                yield ast.unparse(child.target)


def _family(name: str, classes: dict[str, _Class]) -> set[str]:
    """Return the names of a class and of the classes that it inherits from."""
    if name not in classes:
        return set()
    return {name}.union(*[_family(base, classes) for base in classes[name].bases])


def test_classes_are_small_enough_to_understand() -> None:
    classes = _classes("_read", "_workers", "_graph")
    too_large = {}
    for name in classes:
        family = _family(name, classes)
        attributes = {a for member in family for a in classes[member].attributes}
        if len(attributes) > _MAX_ATTRIBUTES:
            too_large[name] = sorted(attributes)
    assert "ReadAhead" in classes
    assert not too_large


def _layers_of_the_linter() -> list[set[str]]:
    """Return the modules of each layer in pyproject.toml, without those that do not exist here."""
    with (_ROOT / "pyproject.toml").open("rb") as file:
        contracts = tomllib.load(file)["tool"]["importlinter"]["contracts"]
    (layers,) = [contract["layers"] for contract in contracts if contract["type"] == "layers"]
    package = _ROOT / "src" / "wholegrain"
    existing = {path.stem for path in package.iterdir()}
    found = [set(re.findall(r"\w+", layer)) & existing for layer in layers]
    return [layer for layer in found if layer]


def test_architecture_shows_the_layers_that_the_linter_checks() -> None:
    text = (_ROOT / "ARCHITECTURE.md").read_text()
    assert len(text.splitlines()) <= 250
    picture = text.split("\n## Layers\n")[1].split("```")[1]
    names = [line.split("  ")[0] for line in picture.strip().splitlines()]
    assert [set(name.split(" | ")) for name in names] == _layers_of_the_linter()


def _imported_modules(tree: ast.AST) -> Iterator[str]:
    """Yield the modules that a file imports, in whatever way."""
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                yield from (alias.name for alias in names)
            case ast.ImportFrom(module=str(module), level=0):
                yield module
            case ast.Call(func=func, args=[ast.Constant(value=str(module)), *_]) if getattr(
                func, "attr", getattr(func, "id", "")
            ) in ("import_module", "require"):
                yield module


def test_an_extra_installs_each_optional_library() -> None:
    known = _ALWAYS_THERE | set(sys.stdlib_module_names)
    installed = {
        re.split(r"[^\w.-]", requirement)[0].lower().replace("_", "-")
        for requirements in _extras().values()
        for requirement in requirements
    }
    missing = []
    for file in _SOURCES:
        for module in _imported_modules(ast.parse(file.read_text())):
            package = module.partition(".")[0]
            distribution = _DISTRIBUTIONS.get(package, package).lower().replace("_", "-")
            if package not in known and distribution not in installed:
                missing.append(f"{file.relative_to(_ROOT)} imports {module}")
    assert not missing, "\n".join(missing)


def test_messages_name_extras_that_exist() -> None:
    named = set()
    for file in _SOURCES:
        text = file.read_text()
        named |= set(re.findall(r"wholegrain\[(\w+)\]", text))
        named |= set(re.findall(r"\bextra=\"(\w+)\"", text))
    assert named <= _extras().keys()


def test_the_readme_lists_the_extras() -> None:
    readme = (_ROOT / "README.md").read_text()
    for extra in _extras().keys() - {"test", "test-jax", "lint", "dev"}:
        assert f"wholegrain[{extra}]" in readme, extra


_CHECKS = {"is_interruption", "can_be_recorded"}
# These pass the exception on to one of the checks and raise an interruption.
_CHECKED_INSIDE = {
    *("_fail", "_record", "after_failure", "_explained"),
    *("explained", "_raise_explained", "_raise_unreadable"),
}

_MAY_CATCH_ALL = {
    # The command, and programs that it runs: what it caught is the last thing that it prints.
    "_cli",
    "compat/program.py",
    "testing/resume.py:answer",
    # Threads of our own, in which no signal handler runs.
    "_read/background.py:_run",
    "_read/background.py:_state_after_error",
    "_read/read_ahead.py:_work",
    "ray/_handle.py:fetch_all",
    "sources/_requests.py:run",
    "sources/_requests.py:_persist",
    # Worker processes, the fork server, and actors of Ray.
    "_workers/local/fork_server.py",
    "_workers/local/process.py",
    "_workers/outbox.py",
    "_workers/worker.py",
    "ray/_server.py",
    "ray/_stream.py",
    "_graph/iterator.py:__del__",  # Nothing can be raised out of it.
    "checkpoint/args.py:<module>",
}
"""Folders, files and functions that may catch every exception without a check, and why."""


def _catches_all(kinds: list[ast.expr]) -> bool:
    names = {ast.unparse(kind) for found in kinds for kind in getattr(found, "elts", [found])}
    return bool(names & {"Exception", "BaseException"})


def _lets_interruptions_through(handler: ast.ExceptHandler) -> bool:
    """Return whether a handler raises what it caught, in the end or after a check."""
    called = {
        getattr(node.func, "attr", getattr(node.func, "id", ""))
        for node in ast.walk(handler)
        if isinstance(node, ast.Call)
    }
    last = handler.body[-1]
    return bool(called & (_CHECKS | _CHECKED_INSIDE)) or (
        isinstance(last, ast.Raise) and last.exc is None
    )


def _functions_that_catch_all(node: ast.AST, function: str = "<module>") -> Iterator[str]:
    """Yield the functions in which exceptions of signal handlers may be swallowed."""
    match node:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
            function = name
        case ast.ExceptHandler(type=kind) if kind is None or _catches_all([kind]):
            if not _lets_interruptions_through(node):
                yield function
        case ast.Call(func=func, args=args) if _catches_all(args):
            if ast.unparse(func) in ("suppress", "contextlib.suppress"):
                yield function
    for child in ast.iter_child_nodes(node):
        yield from _functions_that_catch_all(child, function)


def test_no_handler_swallows_an_exception_of_a_signal_handler() -> None:
    package = _ROOT / "src" / "wholegrain"
    swallowing = [
        f"{file.relative_to(package).as_posix()}:{function}"
        for file in _SOURCES
        for function in _functions_that_catch_all(ast.parse(file.read_text()))
    ]
    more = [
        place
        for place in swallowing
        if not {place, place.partition(":")[0], place.partition("/")[0]} & _MAY_CATCH_ALL
    ]
    assert not more, (
        f"Raise the exception again if `is_interruption(error)`, or use `suppress_errors()`: {more}"
    )
