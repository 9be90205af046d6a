"""Serve a program that does not mention stowplan: NumPy's arrays, and CuPy's.

NumPy's come from the pool's heap alone until the first step begins, which the program marks or, where it is to, a
framework tells. CuPy's pool is always told steps, where there is such a framework.

CuPy is served from the moment the program imports it, by a pool in the place of CuPy's default one. If the program sets
an allocator itself, that allocator becomes the upstream of a new pool::

    program                                      CuPy's allocator
    import cupy                                  pool above the device, also as cupy.get_default_memory_pool()
    cupy.cuda.set_allocator(malloc_managed)      pool above malloc_managed
    with cupy.cuda.using_allocator(mine): ...    mine, in this thread
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from ...common.import_hooks import once_imported
from .step_markers import steps_go_to

if TYPE_CHECKING:
    from ...allocator.pool import Pool

QUICK = "best_fit_orders"
"""The packing solver for NumPy's blocks: some percent of host memory are not worth a second of CPU time."""

SHARE = 0.01
"""Planning's share of the CPU time, for NumPy's blocks: small, as the pool's heap already avoids page faults."""


@contextmanager
def pools(auto_step: bool = False) -> Iterator[dict[str, Pool]]:
    """Serve NumPy, and CuPy once it is imported, by pools; yield the pools by name, the host's first.

    Parameters
    ----------
    auto_step
        Whether NumPy's pool is told steps, too.

    Raises
    ------
    PoolError
        It is to be, and there is no framework that does.
    """
    from ...allocator import NumpyPool
    from ...allocator._core import keep_host_memory

    class HeapPool(NumpyPool):
        _plans_at_once = False  # mostly never

    pool = (NumpyPool if auto_step else HeapPool)(auto_step=auto_step, solver=QUICK, planning_share=SHARE)
    keep_host_memory()
    pool.serve_by_heap()
    serving: dict[str, Pool] = {"numpy": pool}
    with ExitStack() as stack:
        pool.install()
        stack.callback(pool.uninstall)
        stack.enter_context(steps_go_to(pool.step))
        serve_cupy = lambda: stack.enter_context(_cupy_served(serving))  # noqa: E731
        stack.callback(once_imported("cupy", serve_cupy))
        yield serving


@contextmanager
def _cupy_served(serving: dict[str, Pool]) -> Iterator[None]:
    """Put a pool, ``serving["cupy"]``, in the place of CuPy's default one, and above what allocator CuPy is given."""
    import cupy
    from cupy.cuda import memory

    from ...allocator import CupyPool
    from ...allocator.step_boundaries import can_be_told

    install: Callable[[Any], None] = cupy.cuda.set_allocator
    before = cupy.cuda.get_allocator()
    device = None if _has_device() else 0  # without a driver CuPy cannot say which device is current
    get_default, default = cupy.get_default_memory_pool, cupy.get_default_memory_pool()
    make = functools.partial(CupyPool, auto_step=can_be_told(), device=device)
    own = make()

    def set_allocator(allocator: Any = None) -> None:
        install(allocator)
        pool = own
        if allocator not in (None, default.malloc, own.malloc):
            pool = make(allocator)
        install(pool.malloc)
        serving["cupy"] = pool

    set_allocator(before)
    cupy.cuda.set_allocator = memory.set_allocator = set_allocator
    cupy.get_default_memory_pool = lambda: own
    try:
        with steps_go_to(lambda key: serving["cupy"].step(key)):
            yield
    finally:
        cupy.cuda.set_allocator = memory.set_allocator = install
        cupy.get_default_memory_pool = get_default
        install(before)


def _has_device() -> bool:
    import cupy

    try:
        return bool(cupy.cuda.runtime.getDeviceCount())
    except cupy.cuda.runtime.CUDARuntimeError:
        return False
