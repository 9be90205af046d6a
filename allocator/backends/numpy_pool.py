"""The pool for NumPy arrays in host memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...profiler._recorder import current_handler
from ...profiler.default_handler import default_handler
from .._core import HandlerPool, HostBackend, NativePlace, Scope
from ..options import documented
from .host_pool import HostPool

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ..options import Options

SMALL = 1033
"""Bytes; below, NumPy's own cache (up to 1023 bytes) and the C library's cache of each thread (glibc's: up to 1032)
answer faster than any plan, and the memory does not matter."""

PLACE = NativePlace(handler=default_handler())
"""In the place of NumPy's default handler: one for the process, which has the functions that NumPy's own had."""


@documented
class NumpyPool(HostPool):
    """Serve the NumPy allocations of this context, those of repeated steps from a plan.

    NumPy's memory handler is context-local (NEP 49): the pool serves the threads that entered it, and the asyncio tasks
    created there; of several tasks of one thread, only one at a time may enter it. Arrays may leave it, be freed on any
    thread, and outlive the pool.

    Parameters
    ----------
    options
        How to plan, as for all pools: `PlanningOptions`.

    Raises
    ------
    PoolError
        An option is out of range; a thread enters the pool twice, or leaves it where it does not serve; a step begins
        within a step.
    UnknownSolverError
        There is no such solver.

    Examples
    --------
    >>> import numpy as np
    >>> from stowplan import NumpyPool
    >>> pool = NumpyPool(warmup=0)
    >>> with pool:
    ...     for _ in range(5):
    ...         with pool.step():
    ...             total = float((np.ones(1000) * 2).sum())
    ...         ready = pool.wait()
    >>> pool.stats.plans, pool.stats.upstream == pool.stats.reasons["no_plan"]
    (1, True)
    """

    default_small = SMALL
    _host: HandlerPool

    def __init__(self, **options: Unpack[Options]) -> None:
        super().__init__(**options)
        self._enter, self._leave = self._host.start_serving, self._host.stop_serving

    def _make_host(self, small: int, limit: int, scope: Scope) -> HostBackend:
        return HandlerPool("stowplan", default_handler(), small, limit, PLACE)

    def install(self) -> None:
        """Serve all threads and contexts of the process, in the place of NumPy's default handler.

        Threads, tasks of asyncio and work of executors begin in a context that has the default handler; so this
        reaches them all, also those that run already. Contexts that have another handler keep it. One pool at a time.

        Raises
        ------
        PoolError
            A pool is installed already.
        """
        super().install()

    def _reset_after_fork(self) -> None:
        super()._reset_after_fork()
        self._host.inherit()

    def _end_told(self) -> None:
        self._told.end_here()  # it may serve other threads still

    def _serves_here(self) -> bool:
        return self._host.is_innermost or (self._host.installed and current_handler() is default_handler())

    def _backend(self) -> str:
        return "numpy"
