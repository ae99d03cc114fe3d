"""The modules `grain` and `grain.…`, created on import, that give access to wholegrain.

Public modules are the same objects: `grain.experimental is wholegrain.experimental`. `grain` itself
and the modules under `grain._src` are small modules that look names up (see `private.py`).
"""

import importlib
import importlib.machinery
import importlib.util
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any

import wholegrain
from wholegrain._workers import startup
from wholegrain.compat import private

STANDS_FOR = "0.2.18"
"""The release of Grain whose API this is: `grain.__version__`."""

_SET_UP = "wholegrain.compat:install_as_grain"


def install_as_grain() -> None:
    """Make `import grain` import wholegrain, here and in worker processes.

    This includes `import grain.python as grain`, `from grain.experimental import ...`, and the
    modules under `grain._src` that programs are known to use. Call it before anything imports
    Grain. A second call has no effect.

    Raises:
        ImportError: If Grain is already imported, because the program would mix objects of both.

    Example:
        >>> import wholegrain
        >>> wholegrain.install_as_grain()
        >>> import grain  # and everything that imports it
    """
    if not _is_installed():
        _check_not_imported()
        sys.meta_path.insert(0, _FINDER)
    startup.add(_SET_UP)


def uninstall_as_grain() -> None:
    """Undo `install_as_grain` for later imports."""
    if not _is_installed():
        return
    sys.meta_path.remove(_FINDER)
    startup.remove(_SET_UP)
    for name in [name for name in sys.modules if _is_grain(name)]:
        del sys.modules[name]


def _is_installed() -> bool:
    return _FINDER in sys.meta_path


def _is_grain(name: str) -> bool:
    return name == "grain" or name.startswith("grain.")


def _check_not_imported() -> None:
    found = sys.modules.get("grain")
    if found is None:
        return
    where = getattr(found, "__file__", None) or "an unknown location"
    raise ImportError(
        f"`import grain` cannot import wholegrain: Grain is already imported, from {where}. Call"
        " `wholegrain.install_as_grain()` before the first import of Grain and of packages that"
        " import it, or run the program with `python -m wholegrain SCRIPT`. In a notebook, restart"
        " the kernel and start with `%load_ext wholegrain`."
    )


class _AliasModule(ModuleType):
    """A module whose names are looked up in wholegrain."""

    def __getattr__(self, name: str) -> Any:
        own = self.__name__
        if private.is_module(f"{own}.{name}"):
            return importlib.import_module(f"{own}.{name}")
        if name.startswith("__"):
            raise AttributeError(f"module {own!r} has no attribute {name!r}")
        try:
            if own == "grain":
                return getattr(wholegrain, name)
            return private.find(name)
        except AttributeError:
            raise AttributeError(
                f"module {own!r} has no attribute {name!r} (`grain` is wholegrain here, which"
                " has no such name)"
            ) from None

    def __dir__(self) -> list[str]:
        names = set(super().__dir__())
        return sorted(names | set(dir(wholegrain)) if self.__name__ == "grain" else names)

    def __reduce__(self) -> tuple[Any, ...]:
        # So that pickles load in processes where `import grain` is not wholegrain.
        return module, (self.__name__,)


def module(name: str) -> ModuleType:
    """Return the module of wholegrain that `import name` imports."""
    found = sys.modules.get(name)
    if found is not None and _is_installed():
        return found
    return _new_module(name)


def _new_module(name: str) -> _AliasModule:
    made = _AliasModule(name, "A module of Grain's name; its objects are wholegrain's.")
    made.__spec__ = _spec(name)
    made.__loader__ = _FINDER
    made.__package__ = name
    made.__path__ = []
    made.__file__ = wholegrain.__file__
    if name == "grain":
        made.__version__ = STANDS_FOR  # type: ignore[attr-defined]
        made.__version_info__ = tuple(map(int, STANDS_FOR.split(".")))  # type: ignore[attr-defined]
    return made


def _spec(name: str) -> importlib.machinery.ModuleSpec:
    return importlib.machinery.ModuleSpec(name, _FINDER, is_package=True)


class _Finder:
    """Finds `grain` and its submodules before other finders do."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if _is_grain(fullname) and (private.is_module(fullname) or _public_name(fullname)):
            return _spec(fullname)
        return None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        return _new_module(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        public = _public_name(module.__name__)
        if public:
            sys.modules[module.__name__] = importlib.import_module(public)


def _public_name(name: str) -> str | None:
    """Return the module of wholegrain for a public module of Grain."""
    _, _, rest = name.partition(".")
    if not rest or rest.startswith("_"):
        return None
    own = f"wholegrain.{rest}"
    return own if importlib.util.find_spec(own) else None


_FINDER: Any = _Finder()  # without importlib's base classes, which are slow to import
