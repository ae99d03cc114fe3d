"""These tests hold without jax; what is different with it is said where it is tested."""

import pytest

from tests.graph import tools
from wholegrain._core import tree


@pytest.fixture(autouse=True)
def without_jax(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide jax, where it is installed."""
    monkeypatch.setattr(tree, "follows_jax", lambda: False)


@pytest.fixture(autouse=True)
def _leave_out_threads_of_earlier_tests() -> None:
    tools.leave_out_threads_of_earlier_tests()
