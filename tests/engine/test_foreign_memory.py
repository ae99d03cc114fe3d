"""Memory of another process is written as a whole, in however many parts."""

import os

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from wholegrain._engine import foreign_memory
from wholegrain._engine.foreign_memory import address_of, read_from_process, write_to_process


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(sizes=st.lists(st.integers(0, 5000), max_size=8), at_once=st.integers(1, 3000))
def test_writes_all_pieces(sizes: list[int], at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(foreign_memory, "_BYTES_AT_ONCE", at_once)
    rng = np.random.default_rng(at_once)
    sources = [rng.bytes(size) for size in sizes]
    targets = [bytearray(size + 1) for size in sizes]
    places = [address_of(target) for target in targets]
    write_to_process(os.getpid(), list(zip(places, sources, strict=True)))
    assert [bytes(target) for target in targets] == [source + b"\0" for source in sources]
    for place, source in zip(places, sources, strict=True):
        read = bytearray(len(source))
        read_from_process(os.getpid(), place, read)
        assert read == source


def test_says_when_that_is_not_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(foreign_memory, "_BYTES_AT_ONCE", 10)
    with pytest.raises(OSError, match="address"):
        write_to_process(os.getpid(), [(1, bytes(100))])
