"""What the tests of CupyPool share: a pool over host memory. CuPy is imported where it is asked for."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from stowplan import CupyPool

    from .cupy_host import HostUpstream


@pytest.fixture
def upstream() -> Iterator[HostUpstream]:
    from .cupy_host import HostUpstream

    upstream = HostUpstream()
    yield upstream
    gc.collect()
    assert not upstream.overwritten


@pytest.fixture
def pool(upstream: HostUpstream) -> Iterator[CupyPool]:
    """A pool that serves this thread."""
    from stowplan import CupyPool

    from .cupy_host import cupy

    pool = CupyPool(upstream, device=0)
    with cupy.cuda.using_allocator(pool.malloc):
        yield pool
