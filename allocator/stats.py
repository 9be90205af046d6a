"""What a pool says of itself."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Stats:
    """Counts since the pool was made, and bytes.

    Attributes
    ----------
    replayed
        Requests served from a plan.
    guests
        Unplanned requests served in a hole of the arena.
    upstream
        Requests served by upstream.
    reasons
        Why requests were not served from a plan, `guests` and `upstream` together: ``outside`` (not in a step),
        ``thread`` (in another thread's step), ``interrupted`` (between interrupt and resume), ``no_plan`` (warm-up,
        record, confirm, or the plan is still being made), ``escaped`` (the block is known to outlive the step),
        ``stream`` (not the arena's stream), ``late`` (a late block stood in the way), ``mismatch`` (an extra request,
        one larger than planned, or one not recognised).
    smaller
        Of the replayed requests, those that asked for less than planned.
    missing
        Planned requests that did not come.
    steps
        Steps that have ended, those found by `auto_step` included.
    plans
        Plans made.
    reoptimizations
        Of these, those that took another's place, because requests had changed.
    arena_bytes
        Bytes reserved in arenas, retired ones that still hold live blocks included.
    live_bytes, peak_live_bytes
        Bytes asked for and not freed, now and at the most.
    reserved_bytes, peak_reserved_bytes
        What arenas and upstream's live blocks take together, now and at the most.
    lower_bound
        Lower bound of the last plan, in bytes; no arena can be smaller. 0 before the first plan.
    """

    replayed: int
    guests: int
    upstream: int
    reasons: dict[str, int]
    smaller: int
    missing: int
    steps: int
    plans: int
    reoptimizations: int
    arena_bytes: int
    live_bytes: int
    peak_live_bytes: int
    reserved_bytes: int
    peak_reserved_bytes: int
    lower_bound: int

    @property
    def fragmentation(self) -> float:
        """Arena bytes / lower bound - 1; 0 before the first plan."""
        return self.arena_bytes / self.lower_bound - 1 if self.lower_bound else 0.0
