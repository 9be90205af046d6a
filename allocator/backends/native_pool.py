"""Pools of host memory for what is not NumPy: installed for the whole process.

A library's own threads ask for memory in the midst of their caller's step, so mostly the step is the process's:
requests of all threads, in their order.
"""

from __future__ import annotations

from abc import abstractmethod
from contextlib import AbstractContextManager, nullcontext
from types import TracebackType
from typing import Any, TypeVar

from ...errors import PoolError
from .._core import NativePlace, NativePool, Scope
from ..forking import watch
from ..lanes import Lanes
from ..planning_budget import SHARE
from ..pool import Plans, Pool, checked_bytes, store_of

ALIGNMENT = 64
"""Bytes; a cache line and the widest vector load, as the core has it (core/host/host_pool.hpp)."""

SCOPES = {"process": Scope.process, "thread": Scope.thread}

Self = TypeVar("Self", bound="NativeHostPool")


class NativeHostPool(Pool):
    """A pool in the place of an allocator that the whole process uses; see `TorchPool`.

    Parameters
    ----------
    small
        Bytes; requests below are not planned.
    scope
        Whose steps are told apart: ``"process"`` or ``"thread"``.
    limit
        Bytes that arenas, and blocks that lie in none, may take together at most; None: no limit.
    auto_step, planning_share, plans, options
        As for `NumpyPool`.
    """

    def __init__(
        self,
        *,
        small: int,
        scope: str,
        limit: int | None,
        plans: Plans,
        auto_step: bool = False,
        planning_share: float = SHARE,
        **options: Any,
    ) -> None:
        small, limit = checked_bytes("small", small, 0), checked_bytes("limit", limit, 1)
        if scope not in SCOPES:
            raise PoolError(f"scope is {scope!r}; expected 'process' or 'thread'")
        self._host = NativePool(small, limit, SCOPES[scope], self._place())
        self._only = Lanes(
            self._host,
            alignment=ALIGNMENT,
            auto_step=auto_step,
            planning_share=planning_share,
            store=store_of(plans),
            **options,
        )
        watch(self)

    @abstractmethod
    def _place(self) -> NativePlace:
        """Return where the pools of this class serve, one at a time."""

    @abstractmethod
    def _take_place(self) -> None:
        """Have the library call the functions of the place. Again is as good as once."""

    @abstractmethod
    def _leave_place(self) -> None:
        """Have it call its own again."""

    def install(self) -> None:
        """Serve all threads of the process from now on.

        Raises
        ------
        PoolError
            A pool of this kind serves already.
        """
        if self._place().taken:
            raise PoolError(
                f"{'this pool' if self._host.installed else 'another pool'} serves already, and it serves the whole "
                "process; expected one at a time"
            )
        self._host.trim()  # what the library has freed by now would stay resident beside the arena
        self._host.install()
        try:
            self._take_place()
        except BaseException:
            self._host.uninstall()
            raise

    def uninstall(self) -> None:
        """Leave new requests to the library's own allocator again. What the pool has handed out stays its own.

        Raises
        ------
        PoolError
            The pool is not installed.
        """
        if not self._host.installed:
            raise PoolError("this pool is not installed")
        self._leave_place()
        self._host.uninstall()

    def __enter__(self: Self) -> Self:
        self.install()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None and self._is_out_of_memory(error):
            self._only.diagnose(error)
        self.uninstall()

    def _is_out_of_memory(self, error: BaseException) -> bool:
        return isinstance(error, MemoryError)

    def trim(self) -> None:
        """Give back to the system the memory that is kept for later requests, of the C library, too."""
        self._host.trim()

    def serving(self) -> AbstractContextManager[Any]:
        """Return a context manager in which the pool serves: itself, or nothing where it does already."""
        return nullcontext() if self._host.installed else self

    def _serves_here(self) -> bool:
        return self._host.installed

    def _lanes(self) -> Lanes:
        return self._only

    def _all_lanes(self) -> list[Lanes]:
        return [self._only]
