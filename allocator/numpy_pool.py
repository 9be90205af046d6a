"""The pool for NumPy arrays in host memory."""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable
from typing import Any, ParamSpec, TypeVar

from ..errors import PoolError
from ..profiler import Profile, _recorder
from ..profiler.numpy_recorder import default_handler
from ._core import HostPool
from .controller import Controller
from .plan import Plan
from .stats import Stats
from .step import Step, interrupt

P = ParamSpec("P")
R = TypeVar("R")

HOST_ALIGNMENT = 64
"""Bytes; a cache line and the widest vector load. NumPy's default handler promises 16."""


BACKEND = "numpy"

SMALL = 512
"""Bytes; below, NumPy's own cache of small blocks is faster than any plan, and the memory does not matter."""


class NumpyPool:
    """Serve the NumPy allocations of this context, those of repeated steps from a plan.

    NumPy's memory handler is context-local (NEP 49): the pool serves the thread or task that entered it. Arrays may
    leave it, be freed on any thread, and outlive the pool.

    Parameters
    ----------
    warmup
        Steps that pass before one is recorded; first steps are seldom representative.
    planner
        Name of the packing solver, from `stowplan.packing.solvers`, or ``"auto"``.
    max_plans
        Plans to keep, the most recently used.
    small
        Requests below this many bytes go to NumPy's default handler, which has a cache for them, and are neither
        planned nor counted.

    Raises
    ------
    PoolError
        `warmup` is negative; the pool is entered twice; a step begins within a step.
    UnknownSolverError
        There is no such solver.

    Examples
    --------
    >>> import numpy as np
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
        self, *, warmup: int = 1, planner: str = "auto", max_plans: int = 32, small: int = SMALL
    ) -> None:
        if not isinstance(small, int) or isinstance(small, bool) or small < 0:
            raise PoolError(f"small is {small!r}; expected a number of bytes, 0 or more")
        self._host = HostPool("stowplan", default_handler(), small)
        self._controller = Controller(
            self._host, warmup=warmup, alignment=HOST_ALIGNMENT, planner=planner, max_plans=max_plans
        )
        self._outer: Any = None

    def __enter__(self) -> NumpyPool:
        if self._outer is not None:
            raise PoolError("this pool is entered already")
        self._outer = _recorder.set_handler(self._host.handler)
        return self

    def __exit__(self, *error: object) -> None:
        _recorder.set_handler(self._outer)
        self._outer = None

    def step(self, key: Hashable = None) -> Step:
        """Return a context manager around one step, the code that repeats.

        An exception that leaves the step passes on; what the step did is not taken for a record.

        Parameters
        ----------
        key
            Says which of several steps this is. Without it (and among steps of one key) plans are told apart by their
            requests.
        """
        return Step(self._controller, key)

    def interrupt(self, function: Callable[P, R] | None = None) -> Any:
        """Enter a part of the program, in this thread, that does not repeat: upstream serves it, no profile sees it.

        As a call, to be ended by `resume`; as a context manager; as a decorator. Parts may nest. Blocks may be born
        inside and die outside, and the other way round.

        Examples
        --------
        >>> pool = NumpyPool()
        >>> with pool.interrupt():
        ...     pass
        >>> @pool.interrupt
        ... def log_something():
        ...     pass
        """
        return interrupt(self._controller, function)

    def resume(self) -> None:
        """Leave the innermost interrupted part of this thread.

        Raises
        ------
        PoolError
            There is none.
        """
        self._controller.resume()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until plans that are being made are ready for the next step, at most `timeout` seconds.

        A program never has to; a benchmark may want to. Return whether they are ready.
        """
        return self._controller.wait(timeout)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the plans to a file, for `load` in another run of the program.

        Raises
        ------
        PoolError
            A step key is neither None nor a string nor an integer.
        OSError
            The file cannot be written. The old one, if any, is untouched.
        """
        self._controller.save(path, BACKEND)

    @classmethod
    def load(cls, path: str | os.PathLike[str], **options: Any) -> NumpyPool:
        """Make a pool that starts with the plans of a file, and so without a warm-up.

        Every request is still checked against them, and every placement is validated again.

        Parameters
        ----------
        path
            What `save` wrote.
        options
            As for the constructor.

        Raises
        ------
        FormatError
            The file is truncated or foreign, of another version or backend, or holds an invalid plan.
        PoolError
            There is no memory for the arena.
        """
        pool = cls(**options)
        pool._controller.load(path, BACKEND)
        return pool

    @property
    def stats(self) -> Stats:
        """A snapshot of the pool's counts."""
        return self._controller.stats()

    def profile(self) -> Profile:
        """Return the profile of the last planned step.

        Raises
        ------
        ProfileError
            There is no plan yet.
        """
        return self._controller.profile()

    def plan(self) -> Plan:
        """Return the plan in use.

        Raises
        ------
        ProfileError
            There is no plan yet.
        """
        return self._controller.plan()
