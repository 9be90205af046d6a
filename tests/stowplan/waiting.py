"""Copied beside programs that run under ``stowplan run`` and know nothing of its pools: they wait for plans by it."""

import sys
from typing import Any


def _pools() -> list[Any]:
    """Return the pools of the process."""
    core = sys.modules.get("stowplan.allocator._core")
    return [] if core is None else core.pools()


def for_plans() -> None:
    """Return when every pool of the process has made the plans that it has begun; at once where there is none."""
    for pool in _pools():
        pool.wait()


def replayed_and_requests() -> tuple[int, int]:
    """Wait for plans; return how many requests were replayed, and how many there were, of all pools."""
    for_plans()
    stats = [pool.stats for pool in _pools()]
    return sum(counts.replayed for counts in stats), sum(counts.requests for counts in stats)
