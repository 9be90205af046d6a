"""What a pool says of itself."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape

from ..units import human_bytes


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
        ``thread`` (not in a step, while another thread runs one), ``interrupted`` (between interrupt and resume),
        ``no_plan`` (warm-up, record, confirm, or the plan is still being made), ``escaped`` (the block is known to
        outlive the step), ``stream`` (on a stream that has no lane), ``late`` (a late block stood in the way),
        ``mismatch`` (an extra request, one larger than planned, or one not recognised).
    smaller
        Of the replayed requests, those that asked for less than planned.
    elsewhere
        Of the replayed requests, those that got the planned place of the same line of a loop in another iteration,
        because their own one was taken or too small; where steps differ and are merged into one plan.
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
        Largest lower bound of the plans in use, in bytes (of several arenas, the sum): no arena in which all of them
        can be replayed is smaller. 0 before the first plan.
    """

    replayed: int
    guests: int
    upstream: int
    reasons: dict[str, int]
    smaller: int
    missing: int
    plans: int
    reoptimizations: int
    arena_bytes: int
    live_bytes: int
    peak_live_bytes: int
    reserved_bytes: int
    peak_reserved_bytes: int
    lower_bound: int
    steps: int = 0
    elsewhere: int = 0

    @property
    def fragmentation(self) -> float:
        """Arena bytes / lower bound - 1; 0 before the first plan."""
        return self.arena_bytes / self.lower_bound - 1 if self.lower_bound else 0.0

    @property
    def requests(self) -> int:
        """Requests served, in whatever way."""
        return self.replayed + self.guests + self.upstream

    def postfix(self) -> dict[str, str]:
        """Return the figures that matter while a program runs, for a progress bar.

        Examples
        --------
        With tqdm: ``progress = tqdm(batches)`` and, in the loop,

        >>> from stowplan import NumpyPool
        >>> pool = NumpyPool()
        >>> pool.stats.postfix()  # progress.set_postfix(pool.stats.postfix())
        {'planned': '0.0%', 'live': '0 B', 'reserved': '0 B', 'plans': '0'}
        """
        return {
            "planned": f"{self.replayed / max(self.requests, 1):.1%}",
            "live": human_bytes(self.live_bytes),
            "reserved": human_bytes(self.reserved_bytes),
            "plans": str(self.plans),
        }

    def _repr_html_(self) -> str:
        """Return what Jupyter shows: how requests were served, as a bar and in numbers, and the bytes."""
        parts = [
            ("served from the plan", self.replayed, "#2f7f97"),
            ("as guests of the arena", self.guests, "#9cc5d1"),
            ("by upstream", self.upstream, "#d98e2b"),
        ]
        whole = max(self.requests, 1)
        bar = "".join(
            f'<span style="flex:{count} 0 0;background:{colour}"></span>'
            for _, count, colour in parts
            if count
        )
        rows = [
            (f'<span style="color:{colour}">&#9632;</span> {name}', f"{count:,}", f"{count / whole:.2%}")
            for name, count, colour in parts
        ]
        rows += [(f"&emsp;{escape(reason)}", f"{count:,}", "") for reason, count in self.reasons.items()]
        sizes = [
            (
                "arena",
                self.arena_bytes,
                f"fragmentation {self.fragmentation:.2%}" if self.lower_bound else "",
            ),
            ("live", self.live_bytes, f"at the most {human_bytes(self.peak_live_bytes)}"),
            ("reserved", self.reserved_bytes, f"at the most {human_bytes(self.peak_reserved_bytes)}"),
        ]
        rows += [(name, human_bytes(count), note) for name, count, note in sizes]
        rows.append(("plans", f"{self.plans:,}", f"{self.reoptimizations:,} of them took another's place"))
        cells = "".join(
            f'<tr><td style="text-align:left">{name}</td><td style="text-align:right">{figure}</td>'
            f'<td style="text-align:left">{note}</td></tr>'
            for name, figure, note in rows
        )
        return (
            f'<div style="display:flex;height:8px;max-width:32em">{bar}</div>'
            f"<table><caption>{self.requests:,} requests</caption>{cells}</table>"
        )
