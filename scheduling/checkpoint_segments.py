"""Segments: cut the forward pass, keep what crosses a cut, recompute a segment when its backward begins.

::

    forward    a  b  c | d  e  f | g  h  i      kept: what is read beyond a cut, and all of the last segment
    backward   i' h' g'   f' e' d'   c' b' a'
                        ^ d e f again

With s segments of n equal operators, n/s + s values are alive: least for s = sqrt(n), at the cost of about one more
forward pass (Chen et al. 2016, section 3). The bytes are divided evenly among the segments, and each cut then moves to
the narrowest place nearby. O(n). The greedy solver begins its search for the least peak with them.
"""

from __future__ import annotations

import numpy as np

from .graph import IntArray, Phase
from .schedule import Way
from .storage_groups import Storages


def segments(storages: Storages, count: int) -> IntArray:
    """Return the ways, int64 (m,), of at most this many segments, 2 or more."""
    graph = storages.graph
    written, read, size = _spans(storages)
    places = int((graph.phase == Phase.FORWARD).sum())
    width = np.zeros(places + 1, dtype=np.int64)  # bytes that cross the cut behind each operator
    np.add.at(width, written, size)
    np.add.at(width, read, -size)
    width = np.cumsum(width)[:places]
    passed = np.zeros(places, dtype=np.int64)
    np.add.at(passed, written, size)
    passed = np.cumsum(passed)
    cuts = []
    reach = max(1, places // (4 * count))
    for k in range(1, count):
        even = int(np.searchsorted(passed, passed[-1] * k / count))
        low, high = max(0, even - reach), min(places - 1, even + reach + 1)
        if low < high:
            cuts.append(low + int(np.argmin(width[low:high])))
    if not cuts:
        return storages.keeping(storages.forward())
    names = np.array(storages.forward(), dtype=np.int64)
    kept = written > max(cuts)
    for cut in cuts:
        kept |= (written <= cut) & (read > cut)
    ways = storages.keeping(names[kept].tolist())
    assert (ways[names[kept]] == Way.KEPT).all()
    return ways


def _spans(storages: Storages) -> tuple[IntArray, IntArray, IntArray]:
    """Return of each droppable forward storage the places, among forward operators, of first write and last read."""
    graph = storages.graph
    place = np.cumsum(graph.phase == Phase.FORWARD) - 1
    last: dict[int, int] = {}
    for operator in np.flatnonzero(graph.phase == Phase.FORWARD).tolist():
        for v in (*graph.reads[operator], *graph.writes[operator]):
            last[storages.of[v]] = int(place[operator])
    names = storages.forward()
    written = np.array([place[storages.writers[s][0]] for s in names], dtype=np.int64)
    read = np.array([last[s] for s in names], dtype=np.int64)
    return written, read, graph.size[names]
