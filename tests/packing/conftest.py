"""Packing is tested with the C extension, then without."""

from collections.abc import Iterator

import pytest

from wholegrain._core import native

_EXTENSION = native.lib


@pytest.fixture(autouse=True, params=["extension", "numpy"], scope="module")
def path(request: pytest.FixtureRequest) -> Iterator[None]:
    if request.param == "extension" and _EXTENSION is None:
        pytest.skip("the C extension is not built")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(native, "lib", _EXTENSION if request.param == "extension" else None)
        yield
