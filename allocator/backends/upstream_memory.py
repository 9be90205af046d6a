"""What a CuPy pool takes from a device by an allocator that the program gives it, its arenas as well."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any


class UpstreamMemory:
    """The memory of an allocator that the pool is given. Of what `SegmentPool` accounts for, it knows nothing.

    Parameters
    ----------
    upstream
        A CuPy allocator, or an object whose `malloc` is one.
    allocate
        The allocator.
    """

    def __init__(self, upstream: Any, allocate: Callable[[int], Any]) -> None:
        self._upstream = upstream
        self._allocate = allocate
        self._total: Callable[[], int] | None = getattr(upstream, "total_bytes", None)
        self._peak = 0
        self._has_served = self._has_warned = False

    def malloc(self, size: int) -> Any:
        """Return what the allocator does."""
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

    def room(self, within_limit: bool, live_peak: int) -> int:
        """Return the bytes that arenas may take in virtual memory: they take none."""
        return 0

    def note_arenas(self, size: int) -> None:
        """Arenas come from upstream, which counts them."""

    def begin_step(self) -> None:
        """Pass over it: upstream knows no steps."""

    def make_room(self) -> None:
        """Upstream keeps what it keeps."""
