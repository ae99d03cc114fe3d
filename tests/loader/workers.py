"""Whether pipelines run in worker processes yet."""

import functools

import pytest

import wholegrain as wg


@functools.cache
def _work() -> bool:
    try:
        wg.MapDataset.range(1).to_iter_dataset().mp_prefetch(
            wg.MultiprocessingOptions(num_workers=1)
        )
    except NotImplementedError:
        return False
    return True


needs_workers = pytest.mark.skipif(not _work(), reason="`mp_prefetch` has no workers yet")
