"""Pools of host memory, alone or in the place of an allocator that the whole process uses.

A library's own threads request memory in the midst of their caller's step, so mostly the step is the process's:
requests of all threads, in their order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from ...common.errors import PoolError
from ...common.host_memory import host_memory
from .._core import HostBackend, NativePlace, NativePool, Scope
from ..pool import EnteredPool

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ..options import Options

SCOPES = {"process": Scope.process, "thread": Scope.thread}


class HostPool(EnteredPool):
    """A pool of host memory, above the C library's `malloc` or above what stood in the place where it is installed.

    A subclass whose arrays ask the pool themselves has their memory from ``self._host.block(size)``. One that a
    library's requests come to tells where (`_place`).

    Parameters
    ----------
    scope
        Whose steps are told apart: ``"process"`` or ``"thread"``.
    options
        How to plan, as for all pools: `PlanningOptions`.
    """

    alignment = 64  # a cache line and the widest vector load, as the core has it (core/host/host_pool.hpp)
    default_small: ClassVar[int] = 0
    """Bytes; what ``small`` is where it is None."""

    def __init__(self, *, scope: str = "thread", **options: Unpack[Options]) -> None:
        super().__init__(options)
        if scope not in SCOPES:
            raise PoolError(f"scope is {scope!r}; expected 'process' or 'thread'")
        small = self.default_small if self._options.small is None else self._options.small
        self._host = self._make_host(small, self._options.limit_bytes(host_memory), SCOPES[scope])
        self._enter, self._leave = self._host.install, self._host.uninstall
        self._on(0)

    def _make_host(self, small: int, limit: int, scope: Scope) -> HostBackend:
        """Return the core, of requests from `small` bytes on, that takes `limit` bytes at most (0: no limit)."""
        return NativePool(small, limit, scope, self._place())

    def _place(self) -> NativePlace | None:
        """Return where the pools of this class serve a library, one at a time; None: nowhere."""
        return None

    def _open(self, device: int) -> HostBackend:
        return self._host

    def install(self) -> None:
        """Serve all threads of the process from now on.

        Raises
        ------
        PoolError
            A pool of this kind serves already.
        """
        self._host.install()

    def uninstall(self) -> None:
        """Leave new requests to the library's own allocator again. What the pool has handed out stays its own.

        Raises
        ------
        PoolError
            The pool is not installed.
        """
        self._told.end()
        self._host.uninstall()

    def serve_by_heap(self) -> None:
        """Serve by the pool's heap alone until the first step begins, as ``stowplan run`` does: no request is noted.

        To be called before the pool serves. Nothing with a limit, which the heap does not know. Requests of 32 KiB and
        more are counted, as ``heap_only``, with their bytes in whole pages.
        """
        self._host.serve_by_heap()

    def trim(self) -> None:
        """Give back to the system the memory that is kept for later requests, arenas' and the C library's, too.

        For the next one to two seconds the pool also gives back what the program frees. Arenas keep their addresses,
        and serve their plans. By itself the pool gives back what is more than has been live at a time. It calls
        ``malloc_trim`` for arrays older than the pool before it reserves an arena, and each time that the heap has
        grown by 8 MiB and an eighth.
        """
        self._host.trim()

    def _serves_here(self) -> bool:
        return self._host.installed
