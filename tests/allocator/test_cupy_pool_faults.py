"""CupyPool: upstream, the arena or the solver fails, or an argument is wrong."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from stowplan import CupyPool
from stowplan.errors import PoolError
from stowplan.packing import registry, solvers

from ..running import run
from .cupy_host import HostUpstream, chain, cupy, empty, holds


def test_a_retired_arena_goes_before_upstream_fails(upstream: HostUpstream) -> None:
    pool = CupyPool(upstream, device=0)
    capacity = 40_000
    upstream.fails = lambda number, size: upstream.live_bytes + size > capacity
    with cupy.cuda.using_allocator(pool.malloc):
        run(pool, 5, lambda: chain((8000, 8000)))
        with pool.step():
            kept = empty(64, 3)  # in the first arena, 16,896 bytes
        run(pool, 4, lambda: chain((9000, 9000)))
        assert pool.plan().arena_bytes > pool.stats.lower_bound - 1
        assert upstream.live_bytes > 20_000
        del kept
        assert holds(empty(20_000, 1), 1)
    assert pool.stats.live_bytes == 0


def test_what_the_arena_serves_in_upstream_s_place_is_freed(upstream: HostUpstream) -> None:
    """The frames of upstream's error have the program's arrays; nobody gets to see that error."""
    pool = CupyPool(upstream, device=0)

    def ask() -> None:
        array = empty(3500, 1)
        assert holds(array, 1)

    with cupy.cuda.using_allocator(pool.malloc):
        run(pool, 5, chain)
        upstream.fails = lambda number, size: True
        with pool.step():
            ask()  # of a size that is not the plan's
            assert (upstream.sizes[-1], pool.stats.guests, pool.stats.live_bytes) == (3500, 1, 0)


def test_an_upstream_that_answers_nonsense(upstream: HostUpstream) -> None:
    pool = CupyPool(lambda size: upstream(size).ptr, device=0)
    with pytest.raises(PoolError, match=r"upstream returned .*; expected a cupy.cuda.MemoryPointer"):
        pool.malloc(10)
    assert pool.stats.live_bytes == 0


def _wrong(problem: Any, options: Any) -> Any:
    return np.zeros(len(problem), dtype=np.int64)  # all at one place


def _raising(problem: Any, options: Any) -> Any:
    raise RuntimeError("no answer")


def _misshapen(problem: Any, options: Any) -> Any:
    return np.zeros(1, dtype=np.float32)


@pytest.mark.parametrize("solver", [_wrong, _raising, _misshapen])
def test_a_solver_that_fails(upstream: HostUpstream, monkeypatch: pytest.MonkeyPatch, solver: Any) -> None:
    monkeypatch.setitem(registry._solvers, "under test", solver)
    pool = CupyPool(upstream, device=0, solver="under test")
    with cupy.cuda.using_allocator(pool.malloc):
        run(pool, 10, chain)
        assert pool.stats.replayed == pool.stats.plans == pool.stats.arena_bytes == 0
        monkeypatch.setitem(registry._solvers, "under test", solvers["best_fit"])
        run(pool, 10, chain)
    assert pool.stats.replayed > 0


def test_bad_arguments_are_refused(upstream: HostUpstream) -> None:
    with pytest.raises(PoolError, match="small is 100; expected None: CuPy's arrays of any size"):
        CupyPool(upstream, device=0, small=100)
    with pytest.raises(PoolError, match="knows no limit"):
        CupyPool(upstream, device=0, limit="1 GiB")
    with pytest.raises(PoolError, match="sample is 'host'; expected 'device' or 'managed'"):
        CupyPool(upstream, device=0, sample="host")
    for device in (-1, "0", 1.0, False):
        with pytest.raises(PoolError, match=r"device is .*; expected a device number"):
            CupyPool(upstream, device=device)  # type: ignore[arg-type]
    for bad in (5, "pool", object()):
        with pytest.raises(PoolError, match=r"upstream is .*; expected an allocator"):
            CupyPool(bad, device=0)


def test_sizes_that_are_none(pool: CupyPool) -> None:
    run(pool, 4, chain)
    for size in (-1, 2**70):
        with pytest.raises(OverflowError):
            pool.malloc(size)
    with pytest.raises(TypeError):
        pool.malloc("12")
    assert pool.stats.live_bytes == 0
    run(pool, 2, chain)
