"""Fixtures of the tests of sources."""

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def _own_cache_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep what sources save out of the user's cache folder."""
    monkeypatch.setenv("WHOLEGRAIN_CACHE", str(tmp_path / "cache"))
