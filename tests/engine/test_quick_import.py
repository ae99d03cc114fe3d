"""New processes import modules from where this one has them."""

import inspect
import os
import sys
import textwrap
import time
from collections.abc import Iterator
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import wholegrain as wg
from tests.compat.programs import printed, python
from wholegrain._engine import launcher, quick_import

_NAME = "wholegrain_test_module"


@pytest.fixture
def source(tmp_path: Path) -> Iterator[Path]:
    """A module, in a folder where nobody looks for modules."""
    path = tmp_path / f"{_NAME}.py"
    path.write_text("def number():\n    return 1\n")
    yield path
    sys.modules.pop(_NAME, None)


def _import(path: Path) -> Any:
    compiled = str(path.parent / "__pycache__" / f"{_NAME}.{sys.implementation.cache_tag}.pyc")
    finder = quick_import.begin({_NAME: (str(path), compiled, None)})
    try:
        sys.modules.pop(_NAME, None)
        return __import__(_NAME)
    finally:
        finder.stop()


def test_a_module_is_found_where_it_is_said_to_be(
    source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    for _ in range(2):  # The second time Python has compiled it.
        module = _import(source)
        assert module.number() == 1
        assert module.__file__ == str(source)
        assert isinstance(module.__spec__.loader, SourceFileLoader)
        assert "return 1" in inspect.getsource(module.number)
    assert os.path.exists(module.__cached__)


def test_what_was_compiled_before_a_change_is_not_used(
    source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    assert _import(source).number() == 1
    source.write_text("def number():\n    return 22\n")
    assert _import(source).number() == 22
    # As long as before, and later.
    source.write_text("def number():\n    return 33\n")
    os.utime(source, (time.time() + 5, time.time() + 5))
    assert _import(source).number() == 33


def test_a_module_that_is_gone_is_not_found(source: Path) -> None:
    source.unlink()
    with pytest.raises(ImportError):
        _import(source)


def test_packages_and_extensions_are_found() -> None:
    places = quick_import.places({"numpy", "wholegrain"})
    assert places["numpy"][0] == np.__file__
    assert places["numpy"][2] == list(np.__path__)
    assert not places["numpy._core._multiarray_umath"][0].endswith(".py")
    assert "pytest" not in places
    assert "__main__" not in places
    assert "sys" not in places  # It is part of the interpreter.


def test_places_of_modules_that_are_not_what_they_seem() -> None:
    """Some programs put other objects into `sys.modules`."""

    class Odd(ModuleType):
        __spec__ = None

    sys.modules["wholegrain.odd"] = Odd("wholegrain.odd")
    sys.modules["wholegrain.none"] = None  # type: ignore[assignment]
    try:
        places = quick_import.places({"wholegrain"})
    finally:
        del sys.modules["wholegrain.odd"], sys.modules["wholegrain.none"]
    assert "wholegrain" in places
    assert "wholegrain.odd" not in places


def _about_modules(_: int) -> Any:
    return {
        "files": [str(np.__file__), str(wg.__file__), str(inspect.__file__)],
        "finders": [type(finder).__name__ for finder in sys.meta_path],
        "source": inspect.getsource(np.full)[:3],
    }


def test_workers_have_the_modules_of_this_process_and_look_for_others_themselves() -> None:
    launcher.close_launcher()
    ds = wg.MapDataset.range(1).map(_about_modules).to_iter_dataset()
    [seen] = ds.mp_prefetch(wg.MultiprocessingOptions(num_workers=1))
    assert seen["files"] == [np.__file__, wg.__file__, inspect.__file__]
    assert "Finder" not in seen["finders"]
    assert seen["source"] == inspect.getsource(np.full)[:3]


def test_the_process_that_starts_workers_looks_for_no_module(tmp_path: Path) -> None:
    """Else there is a new one to be named in `server_process.py`."""
    program = textwrap.dedent(
        """
        import sys
        from importlib.machinery import SourceFileLoader
        import wholegrain as wg

        def searched_for(_):
            specs = [getattr(module, "__spec__", None) for module in sys.modules.values()]
            return [spec.name for spec in specs if spec and type(spec.loader) is SourceFileLoader]

        ds = wg.MapDataset.range(2).shuffle(1).map(searched_for).batch(1, batch_fn=list)
        [[names], _] = ds.to_iter_dataset().mp_prefetch(wg.MultiprocessingOptions(num_workers=1))
        ours = ("wholegrain", "numpy", "cloudpickle", "logging", "uuid", "traceback", "string")
        print([name for name in names if name.startswith(ours)])
        """
    )
    assert printed("-c", program, cwd=tmp_path) == ["[]"]


def test_places_of_modules_that_were_not_imported_yet(source: Path) -> None:
    sys.path.insert(0, str(source.parent))
    try:
        places = quick_import.places((), [_NAME, "wholegrain_no_such_module", "no_package.module"])
    finally:
        sys.path.remove(str(source.parent))
    assert places[_NAME][0] == str(source)
    assert _NAME not in sys.modules
    assert not any(name.startswith(("wholegrain_no", "no_package")) for name in places)


def test_a_file_named_as_a_part_of_the_interpreter_is_not_taken_for_it(
    source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(source.parent)
    assert _NAME in quick_import.places((), [_NAME])
    monkeypatch.setattr(sys, "builtin_module_names", (*sys.builtin_module_names, _NAME))
    assert _NAME not in quick_import.places((), [_NAME])


def test_workers_do_not_inherit_what_is_open(tmp_path: Path) -> None:
    program = textwrap.dedent(
        """
        import os
        import wholegrain as wg

        inherited = os.open("marked", os.O_RDWR | os.O_CREAT)
        os.set_inheritable(inherited, True)

        def open_files(_):
            files = [f"/proc/self/fd/{number}" for number in os.listdir("/proc/self/fd")]
            return [f"{file} {os.readlink(file)}" for file in files if os.path.lexists(file)]

        ds = wg.MapDataset.range(1).map(lambda x: x).map(open_files).to_iter_dataset()
        [files] = ds.mp_prefetch(wg.MultiprocessingOptions(num_workers=1))
        print(any("marked" in file for file in files), "/proc/self/fd/0 /dev/null" in files)
        """
    )
    assert python("-c", program, cwd=tmp_path).stdout == "False True\n"


@pytest.mark.parametrize("closed", ["0", "1", "2", "0, 1, 2"])
def test_workers_start_where_standard_streams_are_closed(closed: str, tmp_path: Path) -> None:
    """As in services: what workers print is lost, and reaches nobody else."""
    program = textwrap.dedent(
        f"""
        import os
        for number in ({closed},):
            os.close(number)
        import wholegrain as wg

        def loud(x):
            os.write(1, b"output")
            os.write(2, b"output")
            return x

        ds = wg.MapDataset.range(300).map(loud).to_iter_dataset()
        seen = list(ds.mp_prefetch(wg.MultiprocessingOptions(num_workers=2)))
        open("seen", "w").write(str(seen == list(range(300))))
        """
    )
    python("-c", program, cwd=tmp_path)
    assert (tmp_path / "seen").read_text() == "True"
