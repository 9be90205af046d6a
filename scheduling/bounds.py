"""Lower bounds: bytes below which no order, and no schedule, can bring the live peak.

Write a < b where operator b depends on a, directly or not: in every order a runs before b. Look at operator i while it
runs, and at a storage s::

    a writer of s  <=  i  <=  what still needs s

    bound_orders       any operator that reads or writes s, the one up to which the program holds s, or the end
    bound_schedules    one of the phase that wrote s, the one up to which the program holds s, or the end;
                       in a step without phases only the two latter ones

*Orders.* Without recomputation, packing and swapping, s is alive from its first writer to its last use. In every order
the writer on the left has run, or runs, while i does, and the use on the right is still to come, or is i. So s is
alive, and the peak is at least the sum of such storages and i's workspace.

*Schedules.* Whatever its way, a storage stays, unpacked, from its first writer to the last use in the phase that wrote
it, or by the program; and results are KEPT. Without phases it may be gone between any two uses, if its writers are
repeatable. So of the storages above the same holds in every schedule. What i itself
reads or writes exists, too, while it runs, recomputed, unpacked or fetched as it may be.

At the end all results are alive. The bounds are the greatest of these sums. O(n (n + d + m) / 8) bytes of bit sets for
n operators, d dependencies and m values: 0.1 s for 3,000 operators.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from .graph import IntArray, StepGraph
from .schedule import Way, choices

Bits = npt.NDArray[np.uint8]


def bound_orders(graph: StepGraph) -> int:
    """Bytes that are alive at once in every order, if all values are kept; without the resident storages."""
    return _highest(graph, needs(graph, of_schedules=False))


def bound_schedules(graph: StepGraph) -> int:
    """Bytes that are alive at once in every schedule; without the resident storages."""
    return _highest(graph, needs(graph, of_schedules=True))


def _highest(graph: StepGraph, certain: IntArray) -> int:
    results = np.unique(graph.storage[graph.kept & _written(graph)])
    at_the_end = int(graph.size[results[~graph.resident[results]]].sum())
    return max(at_the_end, int(certain.max(initial=0)))


def _written(graph: StepGraph) -> npt.NDArray[np.bool_]:
    """Whether an operator writes a value of the storage, (m,)."""
    written = np.zeros(graph.values, dtype=np.bool_)
    written[graph.storage[graph.writes.index]] = True
    return written[graph.storage]


def needs(graph: StepGraph, of_schedules: bool) -> IntArray:
    """Bytes certainly alive while each operator runs; int64 (n,).

    Parameters
    ----------
    of_schedules
        Whether that is so in every schedule, or in every order, if all values are kept.
    """
    n = len(graph)
    before = _closure(graph.dependencies().rows(), range(n))
    after = _closure(graph.dependants(), range(n - 1, -1, -1))
    storage, phase, users = graph.storage.tolist(), graph.phase.tolist(), graph.users()
    makers: dict[int, list[int]] = {}
    for v, writers in enumerate(graph.writers()):
        if writers:
            makers.setdefault(storage[v], []).extend(writers)
    holders: dict[int, set[int]] = {}
    for v in np.flatnonzero(graph.held >= 0).tolist():
        holders.setdefault(storage[v], set()).add(int(graph.held[v]))
    results = set(graph.storage[graph.kept].tolist())
    # What may go after any use, and be made again.
    fleeting = set()
    if of_schedules and not graph.has_phases():
        fleeting = {s for s, ways in choices(graph).items() if Way.DROPPED in ways}
    certain: IntArray = graph.workspace.copy()
    for s, made in makers.items():
        if graph.resident[s] or not graph.size[s]:
            continue
        alive = np.bitwise_or.reduce(after[made])
        if s not in results:
            still = users[s]
            if of_schedules:
                still = {i for i in still if phase[i] == phase[min(made)]}
            still = set() if s in fleeting else still
            alive &= np.bitwise_or.reduce(before[[*still, *holders.get(s, ())]], initial=np.uint8(0))
        during = np.unpackbits(alive, count=n).view(np.bool_)
        during[list(users[s])] = True
        certain[during] += graph.size[s]
    return certain


def _closure(rows: list[list[int]], order: range) -> Bits:
    """All operators that each reaches along the rows, and itself, as bits; (n, n / 8)."""
    n = len(rows)
    reached = np.zeros((n, (n + 7) // 8), dtype=np.uint8)
    for i in order:
        direct = rows[i]
        if direct:
            reached[i] = np.bitwise_or.reduce(reached[direct])
        reached[i, i // 8] |= 128 >> (i % 8)
    return reached
