"""Pipelines named on the command line: `module:ds` or `path/to/file.py:ds`."""

import contextlib
import importlib
import importlib.util
import os
import sys
from types import ModuleType
from typing import Any

import wholegrain as wg
from wholegrain._cli.errors import BadInput, one_line
from wholegrain._core.names import kind_of
from wholegrain._observe import outline


def load_pipeline(spec: str) -> Any:
    """Return the dataset or DataLoader that `spec` names.

    Args:
        spec: A module or a file, a colon, and the name of a pipeline in it, or of a function
            without arguments that returns one. This directory is searched first.
    """
    place, colon, name = spec.rpartition(":")
    if not (colon and place and name):
        raise BadInput(f"A pipeline has to be `module:name` or `file.py:name`, but got {spec!r}.")
    value: Any = _module(place)
    for part in name.split("."):
        if not hasattr(value, part):
            raise BadInput(f"{place!r} has no {name!r}{_similar(value, part)}.")
        value = getattr(value, part)
    return _pipeline(value, spec)


def _module(place: str) -> ModuleType:
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        if place.endswith(".py") or os.sep in place:
            return _module_of_file(place)
        return importlib.import_module(place)
    except BadInput:
        raise
    except ModuleNotFoundError as error:
        top = place.partition(".")[0]
        if error.name in (place, top):
            raise BadInput(
                f"There is no module {place!r}, neither in this directory nor installed."
            ) from error
        raise BadInput(f"{place!r} could not be imported: {one_line(error)}.") from error
    except (Exception, SystemExit) as error:
        raise BadInput(f"{place!r} could not be imported: {one_line(error)}.") from error


def _module_of_file(path: str) -> ModuleType:
    if not os.path.isfile(path):
        raise BadInput(f"There is no file {path!r}.")
    # Import it under its own name, so that other processes can unpickle its functions, and so that
    # it can import modules next to it.
    name = os.path.basename(path).removesuffix(".py")
    folder = os.path.dirname(os.path.abspath(path))
    if folder not in sys.path:
        sys.path.insert(0, folder)
    loaded = sys.modules.get(name)
    if loaded is not None and getattr(loaded, "__file__", None):
        with contextlib.suppress(OSError):
            if os.path.samefile(str(loaded.__file__), path):
                return loaded
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise BadInput(f"{path!r} cannot be imported: its name has to end with .py.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _similar(value: Any, name: str) -> str:
    there = [each for each, found in vars(value).items() if is_pipeline(found)]
    return f"; its pipelines are {', '.join(there)}" if there else ""


def is_pipeline(value: Any) -> bool:
    """Return whether a value is a dataset or a DataLoader."""
    return isinstance(value, (wg.MapDataset, wg.IterDataset, wg.DataLoader))


def _pipeline(value: Any, spec: str) -> Any:
    if is_pipeline(value):
        return value
    if callable(value):
        try:
            made = value()
        except Exception as error:
            raise BadInput(f"Calling {spec!r} raised: {one_line(error)}.") from error
        if is_pipeline(made):
            return made
        raise BadInput(
            f"{spec!r} returned {kind_of(made)}, but a MapDataset, an IterDataset or a"
            " DataLoader was expected."
        )
    raise BadInput(
        f"{spec!r} is {kind_of(value)}, but a MapDataset, an IterDataset, a DataLoader,"
        " or a function that returns one was expected."
    )


def describe(pipeline: Any) -> str:
    """Return a one-line description of a pipeline."""
    kind = "MapDataset" if isinstance(pipeline, wg.MapDataset) else "IterDataset"
    if isinstance(pipeline, wg.DataLoader):
        workers = pipeline.multiprocessing_options.num_workers
        return f"DataLoader, {workers} workers"
    if isinstance(pipeline, wg.MapDataset):
        length = outline.length_text(pipeline)
        return f"{kind}, infinite" if length == "infinite" else f"{kind}, {length} elements"
    return kind
