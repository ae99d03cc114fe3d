"""These tests hold without jax; what is different with it is said where it is tested."""

import pytest

from wholegrain._core import tree


@pytest.fixture(autouse=True)
def without_jax(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide jax, where it is installed."""
    monkeypatch.setattr(tree, "follows_jax", lambda: False)
