"""Imports modules from where the process that started this one has them: nothing is searched for.

A new interpreter that imports numpy and this package looks for more than two hundred modules,
which takes longer than to run some of them. The process that starts it knows where they are.

The code of this module reaches that interpreter through a socket, before it can import anything
of the package: nothing of it can be used here.
"""

import marshal
import os
import sys

# What `importlib` has them from: it would be searched for, with all that it imports.
from _frozen_importlib import ModuleSpec
from _frozen_importlib_external import (
    MAGIC_NUMBER,
    ExtensionFileLoader,
    PathFinder,
    SourceFileLoader,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence
    from types import CodeType

    Place = tuple[str, str | None, list[str] | None]
    """The file, the one that Python compiled it to, and for a package where its modules are.

    Nothing is compiled of an extension."""

_MASK = (1 << 32) - 1


def places(packages: "Collection[str]", also: "Iterable[str]" = ()) -> "dict[str, Place]":
    """Return where modules are.

    Args:
        packages: What this process has imported of them, and of Python itself, is where it was
            found.
        also: These it would find, as things are now. Packages come before what is in them.
    """
    wanted = sys.stdlib_module_names.union(packages)
    found: dict[str, Place] = {}
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] in wanted:
            _note(found, name, getattr(module, "__spec__", None))
    # What is part of the interpreter comes before any file of that name.
    for name in [n for n in also if n not in sys.modules and n not in sys.builtin_module_names]:
        package = name.rpartition(".")[0]
        if not package or package in found:
            _note(found, name, PathFinder.find_spec(name, found[package][2] if package else None))
    return found


def _note(found: "dict[str, Place]", name: str, spec: ModuleSpec | None) -> None:
    if spec is None or spec.name != name or spec.origin is None:
        return
    inside = spec.submodule_search_locations
    # Others find modules in archives, or make them up: they will do it again.
    if type(spec.loader) is (ExtensionFileLoader if spec.cached is None else SourceFileLoader):
        found[name] = (spec.origin, spec.cached, None if inside is None else list(inside))


class _SourceLoader(SourceFileLoader):
    """Reads what Python has compiled before, if it is of the file as it is now."""

    def __init__(self, name: str, path: str, compiled: str, status: os.stat_result) -> None:
        super().__init__(name, path)
        self._compiled = compiled
        self._status = status

    def get_code(self, fullname: str) -> "CodeType | None":
        # What is compiled is seldom longer than the source.
        room = 2 * self._status.st_size + 4096
        try:
            file = os.open(self._compiled, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return super().get_code(fullname)
        try:
            content = os.read(file, room)
        finally:
            os.close(file)
        numbers = (0, int(self._status.st_mtime) & _MASK, self._status.st_size & _MASK)
        header = b"".join([MAGIC_NUMBER, *[number.to_bytes(4, "little") for number in numbers]])
        if content.startswith(header) and len(content) < room:
            code: CodeType = marshal.loads(memoryview(content)[len(header) :])
            if code.co_filename == self.path:
                return code
        return super().get_code(fullname)


def begin(places: "Mapping[str, Place]") -> "Finder":
    """Import modules from `places`, until the finder that this returns is told to stop."""
    finder = Finder(places)
    sys.meta_path.insert(0, finder)
    return finder


class Finder:
    """Finds modules where another process found them.

    Args:
        places: By the names of the modules.
    """

    def __init__(self, places: "Mapping[str, Place]") -> None:
        self._places = places

    def find_spec(
        self, fullname: str, path: "Sequence[str] | None" = None, target: object = None
    ) -> ModuleSpec | None:
        """Return how to load a module, if it is known where it is. Called by Python."""
        place = self._places.get(fullname)
        if place is None:
            return None
        file, compiled, inside = place
        try:
            status = os.stat(file)
        except OSError:
            return None  # Gone since. Maybe there is another one.
        loader: SourceFileLoader | ExtensionFileLoader
        if compiled is not None:
            loader = _SourceLoader(fullname, file, compiled, status)
        else:
            loader = ExtensionFileLoader(fullname, file)
        spec = ModuleSpec(fullname, loader, origin=file)
        spec.submodule_search_locations = inside
        spec.has_location = True
        spec.cached = compiled
        return spec

    def stop(self) -> None:
        """Leave all further imports to Python."""
        sys.meta_path.remove(self)
