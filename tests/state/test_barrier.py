"""Processes that save together wait for each other, whatever Orbax tells of itself."""

import logging
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from wholegrain._state.barrier import others_to_wait_for
from wholegrain.sharding import as_process

_CONTEXT = "orbax.checkpoint.experimental.v1._src.context"


class _Orbax:
    """An Orbax of which parts may be missing."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.waits: list[Any] = []
        self.options: Any = SimpleNamespace(primary_host=0, active_processes={0, 2})
        parts = _CONTEXT.split(".")
        for end in range(1, len(parts) + 1):
            monkeypatch.setitem(sys.modules, ".".join(parts[:end]), ModuleType(parts[end - 1]))
        modules: dict[str, Any] = dict(sys.modules)
        self.package = modules["orbax.checkpoint"]
        self.package.multihost = SimpleNamespace(get_barrier_sync_fn=self._barrier)
        self.private = modules[_CONTEXT]
        self.private.context = SimpleNamespace(
            get_context=lambda: SimpleNamespace(multiprocessing_options=self.options)
        )

    def _barrier(self, processes: Any) -> Any:
        return lambda key, timeout_ms: self.waits.append((processes, key))


@pytest.fixture
def orbax(monkeypatch: pytest.MonkeyPatch) -> _Orbax:
    return _Orbax(monkeypatch)


def _wait(path: str) -> None:
    with as_process(0, 3):
        wait = others_to_wait_for()
    assert wait is not None
    wait(path)


def test_those_wait_that_save_together(orbax: _Orbax) -> None:
    _wait("one")
    _wait("one")
    assert [processes for processes, _ in orbax.waits] == [{0, 2}, {0, 2}]
    assert len({key for _, key in orbax.waits}) == 2


def test_nobody_waits_where_nobody_else_writes_there(orbax: _Orbax) -> None:
    with as_process(0, 1):
        assert others_to_wait_for() is None
    orbax.options.primary_host = None
    with as_process(0, 3):
        assert others_to_wait_for() is None


@pytest.mark.parametrize("missing", ["module", "function", "options", "fields"])
def test_all_wait_where_orbax_does_not_tell_which_save_together(
    missing: str,
    orbax: _Orbax,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    if missing == "module":
        monkeypatch.setitem(sys.modules, _CONTEXT, None)
    elif missing == "function":
        del orbax.private.context.get_context
    else:
        orbax.options = None if missing == "options" else SimpleNamespace()
    with caplog.at_level(logging.WARNING, logger="wholegrain"):
        _wait("other")
    assert [processes for processes, _ in orbax.waits] == [None]
    assert "does not tell which processes save together" in caplog.text
    assert "all 3 processes" in caplog.text


def test_without_a_way_to_wait_nothing_is_saved(orbax: _Orbax) -> None:
    del orbax.package.multihost.get_barrier_sync_fn
    with as_process(0, 3), pytest.raises(RuntimeError, match="this release of Orbax lacks"):
        others_to_wait_for()
    del orbax.package.multihost
    with as_process(0, 3), pytest.raises(RuntimeError, match="this release of Orbax lacks"):
        others_to_wait_for()


@pytest.mark.filterwarnings("ignore")
def test_the_installed_orbax_tells() -> None:
    pytest.importorskip("orbax.checkpoint.experimental.v1")
    from wholegrain._state import barrier as write_barrier

    options = write_barrier._multiprocessing_options()
    assert options is not None
    assert options.primary_host == 0
