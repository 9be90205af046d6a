"""A snapshot of a pool's counts, and how it shows itself."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from ..common.units import human_bytes
from .counter_definitions import REASONS, Count, Kind


def _count(kind: Kind, text: str, **default: Any) -> Any:
    """Return a field of `Stats`: its `Count`, and its default if it has one."""
    return field(metadata={"count": Count(kind, text)}, **default)


@dataclass(frozen=True)
class Stats:
    """Counts since the pool was made, and bytes."""

    replayed: int = _count(Kind.SERVED, "Requests served from a plan.")
    guests: int = _count(Kind.SERVED, "Unplanned requests served in a hole of the arena.")
    upstream: int = _count(Kind.SERVED, "Requests served by upstream.")
    reasons: dict[str, int] = _count(  # noqa: RUF009  # a field, made by `field`
        Kind.REASONS,
        "Why requests were not served from a plan, ``guests`` and ``upstream`` together: "
        + "; ".join(f"``{name}``, {reason.why}" for name, reason in REASONS.items())
        + ".",
    )
    smaller: int = _count(Kind.EVENTS, "Of the replayed requests, those that needed less than planned.")
    missing: int = _count(Kind.EVENTS, "Planned requests that did not come.")
    plans: int = _count(Kind.EVENTS, "Plans made.")
    reoptimizations: int = _count(
        Kind.EVENTS, "Plans that took another's place, because requests had changed."
    )
    arena_bytes: int = _count(
        Kind.BYTES,
        "Bytes that arenas have in memory, retired ones that still hold live blocks included: on the host, of pages "
        "that requests have used and that have not gone back since; in a device's virtual memory whole pages (2 MiB "
        "on NVIDIA's), so up to one more than the plan's own ``arena_bytes``.",
    )
    kept_bytes: int = _count(
        Kind.BYTES, "Bytes that are free, and kept for later requests; ``trim`` gives them back."
    )
    live_bytes: int = _count(Kind.BYTES, "Bytes requested and not freed.")
    peak_live_bytes: int = _count(Kind.BYTES, "The most bytes that were live at a time.")
    reserved_bytes: int = _count(
        Kind.BYTES,
        "What the pool holds, in use or not: arenas, upstream's live blocks, and what is kept for later requests "
        "(without what an upstream on a device that has no ``total_bytes`` keeps, or the C library).",
    )
    peak_reserved_bytes: int = _count(Kind.BYTES, "The most bytes that were reserved at a time.")
    lower_bound: int = _count(
        Kind.BYTES,
        "Largest lower bound of the plans in use, in bytes (of several arenas, the sum): no arena in which all of "
        "them can be replayed is smaller. 0 before the first plan.",
    )
    steps: int = _count(
        Kind.EVENTS, "Steps that have ended, those told with ``auto_step`` included.", default=0
    )
    planning_seconds: float = _count(
        Kind.SECONDS,
        "CPU time that making plans has used, in seconds, on threads of the pool.",
        default=0.0,
    )
    plans_skipped: int = _count(
        Kind.EVENTS,
        "Plans that were not made because planning had used its share of the CPU time (``planning_share``).",
        default=0,
    )
    plans_failed: int = _count(
        Kind.EVENTS,
        "Plans that an error has kept from being made (no thread, no memory, a solver's failure; ``report`` has "
        "the last one): the program goes on without them, and later steps ask again.",
        default=0,
    )
    planning_bytes: int = _count(
        Kind.BYTES,
        "What plans take of the process's memory: those in use, and others that are kept.",
        default=0,
    )

    @property
    def fragmentation(self) -> float:
        """Arena bytes / lower bound - 1; 0 before the first plan, and while less of the arena is in memory."""
        return max(self.arena_bytes / self.lower_bound - 1, 0.0) if self.lower_bound else 0.0

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

    def _served(self) -> list[tuple[str, int, str]]:
        return [
            ("served from the plan", self.replayed, "#2f7f97"),
            ("as guests of the arena", self.guests, "#9cc5d1"),
            ("by upstream", self.upstream, "#d98e2b"),
        ]

    def _rows(self) -> list[tuple[str, str, str, str]]:
        """Return the rows of the table: a colour or none, a name, a figure, a note."""
        whole = max(self.requests, 1)
        fragmentation = f"fragmentation {self.fragmentation:.2%}" if self.lower_bound else ""
        reserved, most = human_bytes(self.reserved_bytes), human_bytes(self.peak_reserved_bytes)
        unplanned = ("", "not from the plan", f"{self.guests + self.upstream:,}", "because of")
        return [
            *((colour, name, f"{n:,}", f"{n / whole:.2%}") for name, n, colour in self._served()),
            *([unplanned] if self.reasons else []),
            *(("", f"  {reason}", f"{n:,}", "") for reason, n in self.reasons.items()),
            ("", "arena", human_bytes(self.arena_bytes), fragmentation),
            ("", "live", human_bytes(self.live_bytes), f"at most {human_bytes(self.peak_live_bytes)}"),
            ("", "reserved", reserved, f"at most {most}"),
            ("", "plans made", f"{self.plans:,}", f"{self.reoptimizations:,} of them took another's place"),
        ]

    def __str__(self) -> str:
        """Return the table that Jupyter shows, as text."""
        rows = (f"{name:<24}{figure:>12}  {note}".rstrip() for _, name, figure, note in self._rows())
        return "\n".join([f"{self.requests:,} requests", *rows])

    def _repr_html_(self) -> str:
        """Return what Jupyter shows: how requests were served, as a bar and in numbers, and the bytes."""
        from html import escape

        bar = "".join(
            f'<span style="flex:{count} 0 0;background:{colour}"></span>'
            for _, count, colour in self._served()
            if count
        )
        cells = "".join(
            '<tr><td style="text-align:left">'
            + (f'<span style="color:{colour}">&#9632;</span> ' if colour else "")
            + f'{escape(name).replace("  ", "&emsp;")}</td><td style="text-align:right">{figure}</td>'
            f'<td style="text-align:left">{escape(note)}</td></tr>'
            for colour, name, figure, note in self._rows()
        )
        return (
            f'<div style="display:flex;height:8px;max-width:32em">{bar}</div>'
            f"<table><caption>{self.requests:,} requests</caption>{cells}</table>"
        )


COUNTS: dict[str, Count] = {entry.name: entry.metadata["count"] for entry in fields(Stats)}
"""What each field of `Stats` is."""


def _attributes() -> str:
    """Return the documentation of the fields as a section of a docstring."""
    lines = ["Attributes", "----------"]
    for name, count in COUNTS.items():
        text = textwrap.fill(count.text, 100, break_on_hyphens=False)
        lines += [name, textwrap.indent(text, "    ")]
    return "\n".join(lines)


Stats.__doc__ = f"{Stats.__doc__}\n\n{_attributes()}"


def snapshot(counters: Mapping[str, Any], **others: Any) -> Stats:
    """Return the counts of a pool: the core's (core/replay/counts.hpp), and the others, by their names in `Stats`."""
    requests = dict(counters["requests"])
    replayed = requests.pop("replayed")
    reserved = counters["arena_bytes"] + counters["upstream_bytes"] + counters["kept_bytes"]
    counted = {"reserved_bytes": reserved, **counters}
    return Stats(
        replayed=replayed,
        upstream=sum(requests.values()) - counters["guests"],
        reasons={name: n for name, n in requests.items() if n},
        **{name: counted[name] for name in COUNTS.keys() & counted.keys()},
        **others,
    )


def of_kind(stats: Stats, kind: Kind) -> dict[str, int]:
    """Return the counts of a kind, by name; not `Kind.REASONS` and `Kind.SECONDS`, which are no whole numbers."""
    return {name: getattr(stats, name) for name, count in COUNTS.items() if count.kind is kind}
