"""Processes that save together wait for each other."""

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from wholegrain._state.files import _others_to_wait_for
from wholegrain.sharding import as_process


class _Orbax:
    """An Orbax of which parts may be missing."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.waits: list[str] = []
        for name in ("orbax", "orbax.checkpoint"):
            monkeypatch.setitem(sys.modules, name, ModuleType(name))
        modules: dict[str, Any] = dict(sys.modules)
        self.package = modules["orbax.checkpoint"]
        self.package.multihost = SimpleNamespace(get_barrier_sync_fn=lambda: self._wait)

    def _wait(self, key: str, timeout_ms: int) -> None:
        self.waits.append(key)


@pytest.fixture
def orbax(monkeypatch: pytest.MonkeyPatch) -> _Orbax:
    return _Orbax(monkeypatch)


def test_each_time_a_path_is_written_has_a_barrier_of_its_own(orbax: _Orbax) -> None:
    with as_process(0, 3):
        wait = _others_to_wait_for()
    assert wait is not None
    for path in ("one", "one", "other"):
        wait(path)
    assert len(set(orbax.waits)) == 3


def test_a_single_process_waits_for_nobody(orbax: _Orbax) -> None:
    with as_process(0, 1):
        assert _others_to_wait_for() is None


def test_without_a_way_to_wait_nothing_is_saved(orbax: _Orbax) -> None:
    del orbax.package.multihost.get_barrier_sync_fn
    with as_process(0, 3), pytest.raises(RuntimeError, match="this release of Orbax lacks"):
        _others_to_wait_for()
    del orbax.package.multihost
    with as_process(0, 3), pytest.raises(RuntimeError, match="this release of Orbax lacks"):
        _others_to_wait_for()
