"""Runs a program as Python would, with `import grain` importing wholegrain."""

import builtins
import importlib.machinery
import importlib.util
import io
import os
import sys
from collections.abc import Sequence
from types import CodeType, ModuleType, TracebackType
from typing import Any, NoReturn

from wholegrain.compat.alias import install_as_grain

_SCRIPT = "WHOLEGRAIN_SCRIPT"


class NoProgramError(Exception):
    """The program does not exist or cannot be run."""


def run_script(path: str, arguments: Sequence[str]) -> None:
    """Run a script, as `python path arguments...` does."""
    script = path
    if os.path.isdir(path):
        script = os.path.join(path, "__main__.py")
    try:
        code = _code_of(script)
    except (OSError, ValueError) as error:
        raise NoProgramError(f"The script {path!r} cannot be read: {error}.") from None
    except SyntaxError as error:
        _show(error, None)
    _look_for_modules_in(os.path.dirname(os.path.realpath(script)))
    sys.argv[:] = [path, *arguments]
    # Processes that `multiprocessing` spawns use these to find the script.
    os.environ[_SCRIPT] = os.path.abspath(path)
    spec = importlib.machinery.ModuleSpec(f"{__package__}.spawned", None)
    _run(code, __file__=script, __spec__=spec, __package__=None, __cached__=None, __loader__=None)


def run_module(name: str, arguments: Sequence[str]) -> None:
    """Run a module, as `python -m name arguments...` does."""
    _look_for_modules_in(os.getcwd())
    sys.argv[:] = ["-m", *arguments]
    install_as_grain()  # Finding a submodule imports its package, which may import Grain.
    try:
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.submodule_search_locations is not None:
            name = f"{name}.__main__"
            spec = importlib.util.find_spec(name)
    except ModuleNotFoundError as error:
        raise NoProgramError(f"There is no module {name!r}: {error}.") from None
    code = getattr(spec.loader, "get_code", lambda name: None)(name) if spec else None
    if spec is None or code is None:
        raise NoProgramError(f"There is no module {name!r} that can be run.")
    sys.argv[0] = spec.origin or name
    _run(
        code,
        __file__=spec.origin,
        __spec__=spec,
        __package__=spec.parent,
        __cached__=spec.cached,
        __loader__=spec.loader,
    )


def run_code(text: str, arguments: Sequence[str]) -> None:
    """Run code, as `python -c text arguments...` does."""
    _look_for_modules_in("")
    sys.argv[:] = ["-c", *arguments]
    try:
        code = compile(text, "<string>", "exec")
    except SyntaxError as error:
        _show(error, None)
    _run(code, __spec__=None, __package__=None, __loader__=None)


def run_again(namespace: dict[str, Any]) -> None:
    """Run the script of the main process again, in a process that it has spawned."""
    script = os.environ.get(_SCRIPT, "")
    install_as_grain()
    if not os.path.isfile(script):
        return  # As in Python, a `__main__.py` runs only in the main process.
    sys.argv[0] = script
    namespace["__file__"] = script
    exec(_code_of(script), namespace)


def _code_of(script: str) -> CodeType:
    with io.open_code(os.path.abspath(script)) as file:
        return compile(file.read(), script, "exec")


def _look_for_modules_in(folder: str) -> None:
    """Replace the first entry of `sys.path`, where `python -m` has put the current folder."""
    if not sys.flags.safe_path and sys.path:
        sys.path[0] = folder


def _run(code: CodeType, **attributes: Any) -> None:
    install_as_grain()
    # A new module, so that the program does not see the names of `wholegrain.__main__`.
    main = ModuleType("__main__")
    vars(main).update(attributes, __builtins__=builtins)
    sys.modules["__main__"] = main
    try:
        exec(code, vars(main))
    except Exception as error:
        traceback = error.__traceback__
        _show(error, traceback and traceback.tb_next)  # as Python does: from the program on


def _show(error: Exception, traceback: TracebackType | None) -> NoReturn:
    sys.excepthook(type(error), error.with_traceback(traceback), traceback)
    sys.stderr.flush()
    raise SystemExit(1)
