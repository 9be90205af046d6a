"""Stores of plans: what one process has packed, others need not, at the same time or in a later run.

::

    record ──> profile ──> problem ──key──> store ──> bytes ──validated──> placement ──> plan
                              └─── not there ──> packed, and kept ────────────┘

What is stored is not a whole plan but its placement, by the fingerprint of the problem that it solves: sizes, lifetimes
and gaps, alignment, fixed offsets, with the solver's name and the versions (store_packing.py). A placement depends on
nothing else. The step's key, the device and `small` decide which requests there are, and neighbours and stayers which
offsets are fixed: so they are in the problem. A process whose neighbours differ has another problem for them, and
still finds the placement of the step alone.

A store holds bytes and knows nothing of what they mean: nothing in it is trusted, and what reads them validates them.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod

from ..errors import PoolError


class DamagedError(ValueError):
    """Bytes of a store are not the placement that was asked for."""


class PlanStore(ABC):
    """Bytes by key. Its methods are called on the threads that plan, several at once, and never on the program's.

    A method that raises is reported once, and the pool goes on as without a store.
    """

    @abstractmethod
    def find(self, key: str) -> bytes | None:
        """Return what is kept under a key, of 64 hexadecimal digits; None where this process is to pack it.

        It may wait for another process that packs it, as long as the wait ends.
        """

    @abstractmethod
    def keep(self, key: str, data: bytes) -> None:
        """Keep what this process has packed, after `find` has answered None. What was there is replaced."""

    def where(self, key: str) -> str:
        """Say where the bytes of a key come from, for a warning that names it."""
        return f"{type(self).__name__}, {key}"


class MemoryStore(PlanStore):
    """A store for the pools of one process, which keeps the last `capacity` that were asked for.

    Parameters
    ----------
    capacity
        Placements to keep, 1 or more.
    """

    def __init__(self, capacity: int = 1024) -> None:
        self._capacity = capacity
        self._kept: dict[str, bytes] = {}  # no mutex, which a fork might take along; each line is atomic

    def find(self, key: str) -> bytes | None:
        """Return what is kept under a key."""
        data = self._kept.pop(key, None)
        if data is not None:
            self._kept[key] = data  # the last that was asked for
        return data

    def keep(self, key: str, data: bytes) -> None:
        """Keep it, and throw out what was not asked for the longest."""
        self._kept[key] = data
        for old in list(self._kept)[: -self._capacity]:
            self._kept.pop(old, None)


def open_store(plans: PlanStore | str | os.PathLike[str]) -> PlanStore:
    """Return the store that a pool's argument `plans` stands for: itself, or a directory's, which is made.

    Raises
    ------
    PoolError
        It is neither a store nor a path, or there is no such directory and it cannot be made.
    """
    if isinstance(plans, PlanStore):
        return plans
    if not isinstance(plans, (str, os.PathLike)):
        raise PoolError(f"plans is {plans!r}; expected the path of a directory, a PlanStore, or None")
    from .store_directory import DirectoryStore

    store = DirectoryStore(plans)
    try:
        os.makedirs(store.path, exist_ok=True)
    except OSError as error:
        raise PoolError(f"plans is {os.fspath(plans)!r}, and there is no such directory: {error}") from error
    return store
