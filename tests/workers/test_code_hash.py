"""A hash that notices changed code, whatever module it is in."""

import functools
import importlib
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import wholegrain as wg
from wholegrain._workers.code_hash import code_hash

_MODULE = """
import re
LIMIT = 3

def helper(x):
    return x > LIMIT

def is_kept(x):
    return helper(x) and x in {"a", "b", 1, 5}

def again(x):
    return again(x - 1) if x else 0  # refers to itself

class Kept:
    most = 10
    def __init__(self, least):
        self.least = least
    def __call__(self, x):
        return self.least < x < self.most
    @property
    def both(self):
        return self.least + self.most
    @classmethod
    def all(cls):
        return cls(0)
"""


@pytest.fixture
def hash_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Returns the hash of a pipeline with functions of a module that has the given text."""
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def found(text: str, choose: Any) -> str:
        (tmp_path / "user_code.py").write_text(text)
        sys.modules.pop("user_code", None)
        importlib.invalidate_caches()
        module = importlib.import_module("user_code")
        try:
            return code_hash(wg.MapDataset.range(9).filter(choose(module)).to_iter_dataset())
        finally:
            sys.modules.pop("user_code")

    return found


_CHOICES: dict[str, Any] = {
    "function": lambda module: module.is_kept,
    "partial": lambda module: functools.partial(module.is_kept),
    "object": lambda module: module.Kept(2),
    "closure": lambda module: lambda x: module.Kept(2)(x),
    "recursive": lambda module: module.again,
}


@pytest.mark.parametrize(
    ("kind", "old", "new"),
    [
        ("function", "x in", "x not in"),
        ("function", "x > LIMIT", "x >= LIMIT"),
        ("function", "LIMIT = 3", "LIMIT = 4"),
        ("function", "1, 5}", "1, 6}"),
        ("partial", "x > LIMIT", "x >= LIMIT"),
        ("object", "< x <", "<= x <"),
        ("object", "most = 10", "most = 11"),
        ("object", "self.least + self.most", "self.least - self.most"),
        ("object", "cls(0)", "cls(1)"),
        ("recursive", "again(x - 1)", "again(x - 2)"),
    ],
)
def test_a_change_of_the_code_is_noticed(hash_of: Any, kind: str, old: str, new: str) -> None:
    choose = _CHOICES[kind]
    assert old in _MODULE
    before = hash_of(_MODULE, choose)
    assert hash_of(_MODULE.replace(old, new), choose) != before
    assert hash_of("# moved\n\n\n" + _MODULE, choose) == before
    assert hash_of(_MODULE + "\ndef unused(x):\n    return x\n", choose) == before


def test_data_in_memory_and_what_functions_hold_are_part_of_it() -> None:
    def pipeline(rows: Any, least: Any) -> Any:
        return wg.MapDataset.source(rows).filter(lambda x: x > least)

    first = code_hash(pipeline(np.arange(9), 1))
    assert code_hash(pipeline(np.arange(9), 1)) == first
    assert code_hash(pipeline(np.arange(8), 1)) != first
    assert code_hash(pipeline(np.arange(9), 2)) != first


def test_it_is_the_same_in_another_process(tmp_path: Path) -> None:
    (tmp_path / "user_code.py").write_text(_MODULE)
    text = (
        "import user_code, wholegrain as wg; from wholegrain._workers.code_hash import code_hash;"
        "print(code_hash(wg.MapDataset.range(9).filter(user_code.is_kept).map(user_code.Kept(2))"
        ".map(lambda x: {'a': 1, 'b': x in {'u', 'v', 'w'}})))"
    )
    found = {
        subprocess.run(
            [sys.executable, "-c", text],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "PYTHONHASHSEED": str(seed)},
        ).stdout
        for seed in (1, 2)
    }
    assert len(found) == 1
    assert len(found.pop().strip()) == 16
