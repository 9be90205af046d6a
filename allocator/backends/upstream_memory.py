"""What a CuPy pool takes from a device by an allocator that the program gives it, its arenas as well."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

from ...common.errors import PoolError


class UpstreamMemory:
    """The memory of an allocator that the pool is given.

    Parameters
    ----------
    upstream
        A CuPy allocator, or an object whose `malloc` is one.
    allocate
        The allocator.
    capturing
        Whether the current stream is being captured, where `allocate` must not be asked then; None: it may be.
    """

    def __init__(
        self, upstream: Any, allocate: Callable[[int], Any], capturing: Callable[[], bool] | None = None
    ) -> None:
        self._upstream = upstream
        self._allocate = allocate
        self._capturing = capturing
        self._total: Callable[[], int] | None = getattr(upstream, "total_bytes", None)
        self._peak = 0
        self._has_served = self._has_warned = False

    def malloc(self, size: int) -> Any:
        """Return what the allocator does."""
        if self._capturing is not None and self._capturing():
            raise PoolError(
                f"{size:,} bytes are not from the plan, and {self._allocate!r} would make them a part of the graph "
                "that is being captured, which could be launched once; expected a replayed step, or CupyPool()"
            )
        memory = self._allocate(size)
        self._has_served = True
        self.reserved()  # the peak
        return memory

    def trim(self) -> None:
        """Have upstream give what it keeps free back to the device."""
        if hasattr(self._upstream, "free_all_blocks"):
            self._upstream.free_all_blocks()
        elif not self._has_warned:
            self._has_warned = True
            warnings.warn(
                f"upstream {self._upstream!r} has no free_all_blocks(): what it keeps free stays reserved besides the "
                "arena; expected a cupy.cuda.MemoryPool, or no upstream",
                RuntimeWarning,
                stacklevel=2,
            )

    def reserved(self) -> tuple[int, int] | None:
        """Return the bytes that upstream holds of the device, and the most so far; None where it does not tell."""
        if self._total is None or not self._has_served:  # there may be no driver that could be asked
            return None
        total = int(self._total())
        self._peak = max(self._peak, total)
        return total, self._peak

    def reset_peak(self) -> None:
        """Take what is held now for the most so far."""
        self._peak = 0
