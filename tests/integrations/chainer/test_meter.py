"""What each operator raises is the most that it has alive at a time, on NumPy's memory and on CuPy's."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from stowplan import CupyPool, NumpyPool
from stowplan.chainer import meter

KIB = 1 << 10

Backend = tuple[Any, Callable[[int], Any]]
"""A meter, and what asks for that many bytes."""


@pytest.fixture(params=["host", "cupy"])
def backend(request: pytest.FixtureRequest) -> Iterator[Backend]:
    """A meter of each kind."""
    if request.param == "host":
        yield meter.host_meter(), lambda size: np.empty(size, np.uint8)
        return
    from ...allocator.cupy_host import HostUpstream, cupy

    with cupy.cuda.using_allocator(CupyPool(HostUpstream(), device=0).malloc):
        yield meter.cupy_meter(0), lambda size: cupy.empty(size, cupy.uint8)


def test_a_pool_that_serves_goes_on_to_serve() -> None:
    pool = NumpyPool()
    with pool, meter.host_meter() as measured:
        measured.runs(0)
        kept = np.empty(9 * KIB, np.uint8)
    assert pool.stats.live_bytes == kept.nbytes
    assert measured.rises(1).tolist() == [kept.nbytes]


def test_of_each_operator_the_most_that_is_alive_at_a_time(backend: Backend) -> None:
    measured, empty = backend
    kept = [empty(9 * KIB)]  # before the step: not seen
    with measured:
        measured.runs(0)
        workspace = empty(30 * KIB)
        kept.append(empty(10 * KIB))
        del workspace
        measured.runs(-1)
        between = empty(500 * KIB)
        measured.runs(1)
        for _ in range(3):
            workspace = empty(20 * KIB)
            del workspace
        measured.runs(2)
        kept.clear()  # what it frees makes room for what it asks for
        kept.append(empty(4 * KIB))
        kept.append(empty(8 * KIB))
        measured.runs(3)
        measured.runs(-1)
        del between
    empty(700 * KIB)  # after it
    assert measured.rises(4).tolist() == [40 * KIB, 20 * KIB, 12 * KIB, 0]
    assert measured.rises(4).dtype == np.int64


def test_small_requests_are_not_numpy_s_but_cupy_s(backend: Backend) -> None:
    measured, empty = backend
    with measured:
        measured.runs(0)
        small = empty(1000)
        measured.runs(-1)
    assert measured.rises(1).tolist() == [0 if isinstance(small, np.ndarray) else 1000]


def test_a_meter_goes_with_what_it_measured(backend: Backend) -> None:
    measured, empty = backend
    with contextlib.suppress(KeyboardInterrupt), measured:
        measured.runs(0)
        raise KeyboardInterrupt
    assert measured.rises(1).tolist() == [0]
    empty(2 * KIB)
    gc.collect()
    with measured:  # again
        measured.runs(0)
        empty(3 * KIB)
    assert measured.rises(1).tolist() == [3 * KIB]
