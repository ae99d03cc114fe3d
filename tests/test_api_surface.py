"""Every public name of Grain is here, with the same parameters, fields and members."""

import collections.abc
import dataclasses
import importlib
import importlib.util
import inspect
import json
import types
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

_SURFACE = json.loads((Path(__file__).parent / "golden" / "api_surface.json").read_text())

_HAS_ORBAX = bool(
    importlib.util.find_spec("orbax") and importlib.util.find_spec("orbax.checkpoint")
)

# Names that are in the recording and not here, and why.
_LEFT_OUT = {
    "grain.monitoring": "a module of Grain's inside that is visible by accident",
    "grain.experimental.WithOptionsMapDataset": "in a docstring only: Grain has no such class",
}
_NOT_YET: dict[str, str] = {}
# Parameters and fields that are in the recording and not here, and why.
_WITHOUT_PARAMETERS = {
    "grain.experimental.PackAndBatchOperation": {
        "_cur_batch": "what an operation packs does not outlive its call"
    },
}
# Members whose presence says nothing: what they do is tested elsewhere.
_INNER_MEMBERS = {"__del__", "__getstate__", "__setstate__", "__reduce_ex__", "<option>"}

# Bases of Grain's inside, and a protocol that a class here fulfils without inheriting.
_INNER_BASES = {"_Dataset", "PackIterDataset", "ShapeDtypeStructProtocol"}
# The record is of a later revision. Programs rely on what it is in 0.2.18.
_OTHER_BASES = {("grain.experimental.ElasticIterator", "DatasetIterator"): "IterDataset"}

Entry = dict[str, Any]


def _entries(section: str = "modules") -> Iterator[tuple[str, Entry]]:
    for module, names in _SURFACE[section].items():
        for name, entry in names.items():
            yield f"{module}.{name}", entry


def _params(predicate: Any, section: str = "modules") -> list[Any]:
    found = []
    for path, entry in _entries(section):
        if path in _LEFT_OUT or not predicate(entry):
            continue
        marks = []
        if path in _NOT_YET:
            marks.append(pytest.mark.xfail(reason=_NOT_YET[path], strict=True))
        if _needs_orbax(path, entry) and not _HAS_ORBAX:
            marks.append(pytest.mark.skip(reason="Orbax is not installed"))
        found.append(pytest.param(path, _at_head(entry), id=path, marks=marks))
    return found


def _needs_orbax(path: str, entry: Entry) -> bool:
    return "present_only_if_installed" in entry or path.endswith(
        ("CheckpointSave", "CheckpointRestore")
    )


def _at_head(entry: Entry) -> Entry:
    """Return an entry as of Grain's newest revision."""
    return {**entry, **entry.get("head", {})}


def _ours(path: str) -> Any:
    """Return our object for a dotted path of Grain's."""
    module, _, name = path.rpartition(".")
    return getattr(importlib.import_module(module.replace("grain", "wholegrain", 1)), name)


# Names.


@pytest.mark.parametrize("module", _SURFACE["modules"])
def test_the_module_exists(module: str) -> None:
    importlib.import_module(module.replace("grain", "wholegrain", 1))


@pytest.mark.parametrize(("path", "entry"), _params(lambda entry: True))
def test_the_name_exists_and_is_of_that_kind(path: str, entry: Entry) -> None:
    if entry["kind"] == "module":
        assert isinstance(_ours_after_import(path), types.ModuleType)
        return
    ours = _ours(path)
    if entry["kind"] == "class":
        assert isinstance(ours, type)
        assert "class_name" not in entry or ours.__name__ == entry["class_name"]
    elif entry["kind"] == "function":
        assert callable(ours)
    elif entry["kind"] == "constant" and "value" in entry:
        assert type(ours).__name__ == entry["type"]
        if "__version" not in path:
            assert set(ours) == set(entry["value"]) if entry["type"] == "frozenset" else True
            assert ours == entry["value"] or entry["type"] == "frozenset"


def _ours_after_import(path: str) -> Any:
    """Return a module, which may have to be imported by itself."""
    return importlib.import_module(path.replace("grain", "wholegrain", 1))


@pytest.mark.parametrize(("path", "entry"), _params(lambda entry: "alias_of" in entry))
def test_the_name_is_the_same_object(path: str, entry: Entry) -> None:
    assert _ours(path) is _ours(entry["alias_of"])


@pytest.mark.parametrize(
    ("path", "entry"), _params(lambda entry: True, section="wholegrain_additions")
)
def test_the_name_that_grain_lacks_exists(path: str, entry: Entry) -> None:
    ours = _ours(path)
    assert "alias_of" not in entry or ours is _ours(entry["alias_of"])


def test_the_flat_experimental_module_has_the_names_of_the_other_one() -> None:
    import wholegrain.experimental
    import wholegrain.python.experimental

    flat, other = wholegrain.python.experimental, wholegrain.experimental
    assert _public(flat) == _public(other)
    assert all(getattr(flat, name) is getattr(other, name) for name in _public(flat))


def test_modules_export_only_names_that_are_meant() -> None:
    import wholegrain

    recorded = set(_SURFACE["modules"]["grain.experimental"])
    added = set(_SURFACE["wholegrain_additions"]["grain.experimental"])
    assert _public(wholegrain.experimental) <= recorded | added


def test_every_module_but_the_flat_one_is_an_attribute_of_the_package() -> None:
    import wholegrain

    for name, entry in _SURFACE["modules"]["grain"].items():
        if entry["kind"] == "module" and name not in ("monitoring", "python"):
            assert isinstance(getattr(wholegrain, name), types.ModuleType)


def _public(module: types.ModuleType) -> set[str]:
    return {name for name in dir(module) if not name.startswith("_")}


# Signatures.


@pytest.mark.parametrize(("path", "entry"), _params(lambda entry: "params" in entry))
def test_it_is_called_in_the_same_way(path: str, entry: Entry) -> None:
    left_out = _WITHOUT_PARAMETERS.get(path, {})
    recorded = [one for one in entry["params"] if one["name"] not in left_out]
    _check_signature(_ours(path), recorded, path)


@pytest.mark.parametrize(("path", "entry"), _params(lambda entry: entry.get("members")))
def test_its_members_exist_and_are_called_in_the_same_way(path: str, entry: Entry) -> None:
    ours = _ours(path)
    for name, member in entry["members"].items():
        if name in _INNER_MEMBERS:
            continue
        where = f"{path}.{name}"
        kind = member["kind"]
        if kind in ("attribute", "slot field") and dataclasses.is_dataclass(ours):
            assert name in {field.name for field in dataclasses.fields(ours)}, where
            continue
        assert hasattr(ours, name), where
        if kind in ("property", "cached_property", "attribute", "slot field", "enum member"):
            continue
        assert kind != "async method" or inspect.iscoroutinefunction(getattr(ours, name)), where
        if "params" in member and not _is_builtin(getattr(ours, name)):
            is_bound = kind in ("classmethod", "class factory") or not isinstance(ours, type)
            _check_signature(getattr(ours, name), member["params"], where, skip=not is_bound)


def _is_builtin(function: Any) -> bool:
    """Say whether a function is one of Python's own, which may not tell its signature."""
    return not isinstance(function, (types.FunctionType, types.MethodType, type))


def _check_signature(
    function: Any, recorded: list[dict[str, Any]], where: str, *, skip: bool = False
) -> None:
    """Check that what can be passed to Grain's function can be passed to ours."""
    ours = list(inspect.signature(function).parameters.values())[1 if skip else 0 :]
    by_name = {parameter.name: parameter for parameter in ours}
    positional = [p.name for p in ours if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    their_positional = [one["name"] for one in recorded if one["kind"].startswith("positional")]
    assert positional[: len(their_positional)] == their_positional, where
    for one in recorded:
        assert one["name"] in by_name, f"{where} has no parameter {one['name']}"
        parameter = by_name.pop(one["name"])
        assert parameter.kind.name.lower() == one["kind"], f"{where}, {one['name']}"
        _check_default(function, parameter, one.get("default"), where)
    for parameter in by_name.values():
        optional = parameter.default is not parameter.empty
        assert optional or parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD), (
            f"{where} needs {parameter.name}, which Grain does not have"
        )


def _check_default(
    function: Any, parameter: inspect.Parameter, recorded: str | None, where: str
) -> None:
    where = f"the default of {parameter.name} of {where}"
    if recorded is None:
        assert parameter.default is parameter.empty, where
    elif recorded.startswith("_Default(value="):
        # Of these it matters whether they were given, so that the default is a mark.
        value = getattr(function(), parameter.name)
        assert f"_Default(value={value!r})" == recorded, where
    else:
        assert repr(parameter.default) == recorded, where


# Classes.


@pytest.mark.parametrize(("path", "entry"), _params(lambda entry: "dataclass" in entry))
def test_the_dataclass_is_of_the_same_form(path: str, entry: Entry) -> None:
    ours, recorded = _ours(path), entry["dataclass"]
    left_out = _WITHOUT_PARAMETERS.get(path, {})
    fields = [name for name in recorded["fields"] if name not in left_out]
    found = dataclasses.fields(ours)
    assert [field.name for field in found[: len(fields)]] == fields
    # What is ours alone comes behind, and nobody has to give it.
    assert all(field.default is not dataclasses.MISSING for field in found[len(fields) :])
    assert ours.__dataclass_params__.frozen == recorded["frozen"]
    assert ("__slots__" in vars(ours)) == recorded["slots"]
    assert (ours.__eq__ is not object.__eq__) == recorded["eq"]


@pytest.mark.parametrize(("path", "entry"), _params(lambda entry: entry.get("bases")))
def test_the_class_has_the_same_public_bases(path: str, entry: Entry) -> None:
    ours = _ours(path)
    names = {base.__name__ for base in ours.__mro__}
    for base in entry["bases"]:
        if base in ("Iterator", "Iterable"):
            assert issubclass(ours, getattr(collections.abc, base))
        elif base not in _INNER_BASES:
            assert _OTHER_BASES.get((path, base), base) in names, f"{path} is no {base}"


@pytest.mark.parametrize(("path", "entry"), _params(lambda entry: entry.get("abstract")))
def test_the_class_is_abstract_in_the_same_methods(path: str, entry: Entry) -> None:
    ours = _ours(path)
    with pytest.raises(TypeError):
        ours()
    for name, member in entry["members"].items():
        if member.get("abstract") and not (path == "grain.MapDataset" and name == "__getitem__"):
            assert name in ours.__abstractmethods__


@pytest.mark.parametrize(("path", "entry"), _params(lambda entry: entry.get("protocol")))
def test_the_protocol_can_be_checked_at_run_time(path: str, entry: Entry) -> None:
    ours = _ours(path)
    assert getattr(ours, "_is_protocol", False)
    assert not isinstance(object(), ours)


@pytest.mark.parametrize(("path", "entry"), _params(lambda entry: "values" in entry))
def test_the_enum_has_the_same_values(path: str, entry: Entry) -> None:
    assert {member.name: member.value for member in _ours(path)} == entry["values"]


def test_generic_classes_can_be_subscripted() -> None:
    import wholegrain as wg

    for generic in (wg.MapDataset, wg.IterDataset, wg.DatasetIterator, wg.Record):
        assert typing.get_origin(generic[int]) is generic
    assert typing.get_origin(wg.sources.RandomAccessDataSource[int]) is not None


def test_a_shape_and_a_dtype_fulfil_the_protocol() -> None:
    from wholegrain import experimental

    struct = experimental.ShapeDtypeStruct((1, 2), float)
    assert isinstance(struct, experimental.ShapeDtypeStructProtocol)


def test_the_version_is_told_in_two_ways() -> None:
    import wholegrain as wg

    parts = tuple(int(part) for part in wg.__version__.split(".") if part.isdigit())
    assert wg.__version_info__ == parts


@pytest.mark.parametrize(
    ("name", "same"),
    [
        ("Batch", "transforms.Batch"),
        ("BatchTransform", "transforms.Batch"),
        ("GrainCheckpointHandler", "checkpoint.CheckpointHandler"),
        ("GrainCheckpointSave", "checkpoint.CheckpointSave"),
        ("GrainCheckpointRestore", "checkpoint.CheckpointRestore"),
    ],
)
def test_names_of_the_documents_are_in_both_namespaces(name: str, same: str) -> None:
    import wholegrain
    import wholegrain.python

    if not _HAS_ORBAX and name.endswith(("Save", "Restore")):
        assert not hasattr(wholegrain, name)
        assert not hasattr(wholegrain.python, name)
        return
    assert getattr(wholegrain, name) is getattr(wholegrain.python, name) is _ours(f"grain.{same}")


def test_the_names_that_need_orbax_say_why_they_are_missing() -> None:
    import wholegrain.python as flat_wg
    from wholegrain import checkpoint

    for module, prefix in ((checkpoint, ""), (flat_wg, "PyGrain"), (flat_wg, "Grain")):
        for name in (f"{prefix}CheckpointSave", f"{prefix}CheckpointRestore"):
            assert (name in dir(module)) == hasattr(module, name) == _HAS_ORBAX
            if not _HAS_ORBAX:
                with pytest.raises(AttributeError, match=r"Orbax.*pip install.*\[orbax\]"):
                    getattr(module, name)
