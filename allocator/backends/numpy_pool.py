"""The pool for NumPy arrays in host memory."""

from __future__ import annotations

import threading
from contextlib import AbstractContextManager, nullcontext
from types import TracebackType
from typing import Any

from ...errors import PoolError
from ...profiler import _recorder
from ...profiler.default_handler import default_handler
from .._core import HostPool, any_installed
from ..forking import watch
from ..lanes import Lanes
from ..planning_budget import SHARE
from ..pool import Plans, Pool, checked_bytes, store_of

HOST_ALIGNMENT = 64
"""Bytes; a cache line and the widest vector load. NumPy's default handler promises 16."""

SMALL = 1033
"""Bytes; below, NumPy's own cache (up to 1023 bytes) and the C library's cache of each thread (glibc's: up to 1032)
answer faster than any plan, and the memory does not matter."""


class NumpyPool(Pool):
    """Serve the NumPy allocations of this context, those of repeated steps from a plan.

    NumPy's memory handler is context-local (NEP 49): the pool serves the threads and tasks that entered it. Arrays may
    leave it, be freed on any thread, and outlive the pool.

    Parameters
    ----------
    warmup
        Steps that pass before one is recorded; first steps are seldom representative.
    planner
        Name of the packing solver, from `stowplan.packing.solvers`, or ``"auto"``.
    max_plans
        Plans to keep, the most recently used.
    planning_share
        CPU time that making plans may use, as a share of the CPU time of the rest of the process since the pool was
        made and 20 seconds more; the first four plans come in any case. What is beyond is not planned, and counted
        (``stats.plans_skipped``). ``math.inf``: no bound.
    auto_step
        Find the step that the program repeats, without `step` being called, and plan it; see `Pool.step`. There is no
        warm-up.
    small
        Requests below this many bytes go to NumPy's default handler, which has caches for them, and are neither
        planned nor counted. None: 1033.
    limit
        Bytes that arenas, as a whole, and arrays that lie in none, may take together at most. An arena is not made
        larger than that allows, and a request beyond it raises MemoryError. None: no limit.
    plans
        A directory, or another store (`stowplan.planning.PlanStore`), in which plans are looked for before they are
        packed, and kept for other processes and later runs. None: each process packs its own.

    Raises
    ------
    PoolError
        `warmup` is negative; a thread enters the pool twice, or leaves it where it does not serve; a step begins within
        a step.
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

    def __init__(
        self,
        *,
        warmup: int = 1,
        planner: str = "auto",
        max_plans: int = 32,
        planning_share: float = SHARE,
        auto_step: bool = False,
        small: int | None = None,
        limit: int | None = None,
        plans: Plans = None,
    ) -> None:
        small = SMALL if small is None else checked_bytes("small", small, 0)
        limit = checked_bytes("limit", limit, 1)
        self._host = HostPool("stowplan", default_handler(), small, limit)
        self._only = Lanes(
            self._host,
            alignment=HOST_ALIGNMENT,
            auto_step=auto_step,
            warmup=warmup,
            planner=planner,
            max_plans=max_plans,
            planning_share=planning_share,
            store=store_of(plans),
        )
        self._entered = threading.local()  # NumPy's handler before, of each thread that is in the pool
        watch(self)

    def __enter__(self) -> NumpyPool:
        if getattr(self._entered, "inherited", False):
            self._entered.inherited = (
                False  # a forked worker may enter what its parent had entered: it serves already
            )
            self._entered.again = True
            return self
        if hasattr(self._entered, "outer"):
            raise PoolError("this thread has entered this pool already")
        self._entered.outer = _recorder.set_handler(self._host.handler)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, MemoryError):
            self._only.diagnose(error)
        if not (hasattr(self._entered, "outer") and self._is_innermost()):
            raise PoolError(
                "this pool does not serve here: leave it in the thread or task that entered it, "
                "and leave pools that were entered after it first"
            )
        if getattr(self._entered, "again", False):
            self._entered.again = False
            return
        _recorder.set_handler(self._entered.outer)
        del self._entered.outer

    def install(self) -> None:
        """Serve all threads and contexts of the process, in the place of NumPy's default handler.

        Threads, tasks of asyncio and work of executors begin in a context that has the default handler; so this
        reaches them all, also those that run already. Contexts that have another handler keep it. One pool at a time.

        Raises
        ------
        PoolError
            A pool is installed already.
        """
        if any_installed():
            raise PoolError("a pool is installed in this process already: uninstall it first")
        self._host.install(default_handler())

    def uninstall(self) -> None:
        """Leave new requests to NumPy's default handler again. What the pool has handed out stays its own.

        Raises
        ------
        PoolError
            The pool is not installed.
        """
        if not self._host.installed:
            raise PoolError("this pool is not installed")
        self._host.uninstall()

    def trim(self) -> None:
        """Give back to the system the memory that is kept for later requests, of the C library, too."""
        self._host.trim()

    def _begin_anew(self) -> None:
        super()._begin_anew()
        self._entered.inherited = hasattr(self._entered, "outer") and self._is_innermost()

    def serving(self) -> AbstractContextManager[Any]:
        """Return a context manager in which the pool serves this thread: itself, or nothing where it does already."""
        return nullcontext() if self._serves_here() else self

    def _serves_here(self) -> bool:
        return self._is_innermost() or (
            self._host.installed and _recorder.current_handler() is default_handler()
        )

    def _is_innermost(self) -> bool:
        return _recorder.current_handler() is self._host.handler

    def _lanes(self) -> Lanes:
        return self._only

    def _all_lanes(self) -> list[Lanes]:
        return [self._only]

    def _backend(self) -> str:
        return "numpy"
