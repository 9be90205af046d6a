"""The Trace Event Format: JSON for Perfetto (ui.perfetto.dev) and chrome://tracing. Written only.

::

    {"displayTimeUnit": "ms", "traceEvents": [
      {"ph": "M", "name": "process_name", "pid": 1, "args": {"name": "blocks"}},
      {"ph": "X", "name": "train.py:7 forward", "pid": 1, "tid": 3, "ts": 12, "dur": 30, "args": {"size": 4096, ...}},
      {"ph": "C", "name": "planned bytes", "pid": 1, "ts": 12, "args": {"bytes": 8192}},
      {"ph": "i", "name": "planned peak", "pid": 1, "ts": 12, "s": "g"}]}

A tick of the logical clock is shown as a microsecond. Each block is a slice ("X"). Slices on one track must not
overlap, so a block takes the lowest track that is free; there are as many tracks as blocks alive at once. A wrapped
block is two slices, at both ends of the step. An escaped block lasts to the end. The counter ("C") is what
planned blocks have alive.

Source: "Trace Event Format" (the document of Chromium's catapult project), JSON Object Format. O(n log n).
"""

from __future__ import annotations

import heapq
import json
import os
from collections.abc import Iterator
from typing import Any

import numpy as np

from ...files import atomic_write
from ..events import IntArray
from ..profile import UNKNOWN_NS, UNKNOWN_SITE, Profile
from .registry import Format, register

_PID = 1


def write(path: str | os.PathLike[str], profile: Profile, offsets: IntArray) -> None:
    """Write one step of a plan, atomically.

    Parameters
    ----------
    path
        The file; replaced if it exists.
    profile
        The step.
    offsets
        Where each block of the profile lies in the arena, int64 (n,); -1 for what is not planned.

    Raises
    ------
    OSError
        The file cannot be written. The old one, if any, is untouched.
    """
    with atomic_write(path) as file:
        file.write(b'{"displayTimeUnit":"ms","traceEvents":[\n')
        for k, event in enumerate(_events(profile, np.asarray(offsets))):
            file.write((",\n" if k else "").encode() + json.dumps(event, separators=(",", ":")).encode())
        file.write(b"\n]}\n")


def _events(profile: Profile, offsets: IntArray) -> Iterator[dict[str, Any]]:
    def event(kind: str, name: str, args: dict[str, Any], track: int = 0, **more: Any) -> dict[str, Any]:
        return {"ph": kind, "name": name, "pid": _PID, "tid": track, "args": args, **more}

    yield event("M", "process_name", {"name": "blocks"})
    for block, start, end, track in _slices(profile):
        name, args = _name(profile, block), _arguments(profile, offsets, block)
        yield event("X", name, args, track + 1, cat="block", ts=start, dur=end - start)
    live = profile.live_bytes()
    change = np.flatnonzero(np.diff(live, prepend=-1))
    for tick, count in zip(change.tolist(), live[change].tolist(), strict=True):
        yield event("C", "planned bytes", {"bytes": count}, ts=tick)
    if len(live):
        yield event("i", "planned peak", {"bytes": int(live.max())}, ts=int(live.argmax()), s="g")


def _slices(profile: Profile) -> Iterator[tuple[int, int, int, int]]:
    """Yield block, start, end and track of every slice, by start."""
    block = np.arange(len(profile))
    end = np.where(profile.escaped, profile.period, profile.end)
    wrapped = block[end > profile.period]
    block = np.concatenate([block, wrapped])
    start = np.concatenate([profile.start, np.zeros(len(wrapped), dtype=np.int64)])
    end = np.concatenate([np.minimum(end, profile.period), end[wrapped] - profile.period])
    order = np.lexsort((-profile.size[block], start))
    free: list[int] = []  # tracks
    busy: list[tuple[int, int]] = []  # end, track
    for k in order.tolist():
        while busy and busy[0][0] <= start[k]:
            heapq.heappush(free, heapq.heappop(busy)[1])
        track = heapq.heappop(free) if free else len(busy)
        heapq.heappush(busy, (int(end[k]), track))
        yield int(block[k]), int(start[k]), int(end[k]), track


def _name(profile: Profile, block: int) -> str:
    site = int(profile.site[block])
    return f"{int(profile.size[block]):,} bytes" if site == UNKNOWN_SITE else profile.sites[site]


def _arguments(profile: Profile, offsets: IntArray, block: int) -> dict[str, Any]:
    figures = {
        "block": block,
        "size": int(profile.size[block]),
        "start": int(profile.start[block]),
        "end": int(profile.end[block]),
        "stream": int(profile.stream[block]),
    }
    if offsets[block] >= 0:
        figures["offset"] = int(offsets[block])
    if profile.alloc_ns[block] != UNKNOWN_NS:
        figures["alloc_ns"] = int(profile.alloc_ns[block])
    return figures


register(Format("chrome", "a trace for ui.perfetto.dev", suffixes=(".json",), write=write, shows_plan=True))
