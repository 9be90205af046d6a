"""cheap: save as few bytes as possible from which cheap operators alone can make again what the backward pass reads.

A minimum cut. Every forward storage is a pair of nodes joined by an edge with its bytes; what is cut is saved::

    source --inf--> conv's output  (expensive: nothing makes it again)
    x_in --bytes--> x_out          cut: x is saved
    x_out --inf--> y_in            y is made from x by a cheap operator: recomputing y takes x
    y_out --inf--> sink            the backward pass reads y

    conv -> h -> norm -> n -> relu -> y,  backward reads h, n and y:  saves h alone

As the cheap operators are limited by memory, and fuse, running them again counts as free (PyTorch's min-cut
partitioner; Chen et al. 2016 drop the same ones by hand). An operator is cheap that takes at most `CHEAP` times as long
for each byte that it writes as the forward pass does on average; or one whose label the caller names.

Boykov and Kolmogorov's duality with scipy's maximum flow (Dinic), O(v^2 e) at worst, milliseconds for thousands of
operators. Needs the extra ``flow``.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

import numpy as np

from ...common.errors import MissingDependencyError
from ...scheduling.graph import Phase, StepGraph
from ...scheduling.orders import recorded
from ...scheduling.registry import SchedulingOptions, register
from ...scheduling.schedule import Schedule
from ...scheduling.storage_groups import Storages

CHEAP = 0.5

# The largest of scipy's capacities, which are 32-bit integers.
_LARGEST = 2**31 - 1


class Cut(NamedTuple):
    """The storages saved, and their bytes: the value of the cut."""

    saved: list[int]
    bytes: int


@register("cheap")
def cheap(graph: StepGraph, options: SchedulingOptions) -> Schedule:
    """Return the minimum cut's schedule, whatever the budget.

    Raises
    ------
    MissingDependencyError
        scipy is not installed.
    """
    storages = Storages(graph)
    cut = minimum_cut(storages, cheap_operators(graph))
    return Schedule(recorded(graph), storages.keeping(cut.saved))


def cheap_operators(graph: StepGraph, labels: Collection[str] | None = None) -> set[int]:
    """Return the forward operators that may run again for free: those with these labels, or, without, the fast ones."""
    forward = np.flatnonzero((graph.phase == Phase.FORWARD) & graph.repeatable).tolist()
    if labels is not None:
        return {i for i in forward if graph.label[i] in labels}
    size = graph.size[graph.storage]
    written = {i: int(size[graph.writes[i]].sum()) for i in forward}
    total = float(graph.seconds[forward].sum())
    rate = total / max(1, sum(written.values()))
    return {i for i in forward if graph.seconds[i] <= CHEAP * rate * written[i]}


def minimum_cut(storages: Storages, free: Collection[int]) -> Cut:
    """Return which storages to save so that what later phases read can be made again by the operators in ``free``.

    Raises
    ------
    MissingDependencyError
        scipy is not installed.
    """
    tails, heads, capacities, names = network(storages, free)
    if not names:
        return Cut([], 0)
    reached = _source_side(tails, heads, capacities, 2 * len(names) + 2)
    saved = [s for k, s in enumerate(names) if 2 * k in reached and 2 * k + 1 not in reached]
    return Cut(saved, int(storages.graph.size[saved].sum()))


def network(
    storages: Storages, free: Collection[int]
) -> tuple[list[int], list[int], list[int | None], list[int]]:
    """Return the flow network: tails, heads, capacities in bytes (None: unlimited), and the storages.

    Storage k has the nodes 2k and 2k + 1; the source and the sink are the last two.
    """
    graph = storages.graph
    names = [
        s
        for s, writers in storages.writers.items()
        if writers and not graph.resident[s] and graph.phase[writers[0]] == Phase.FORWARD
    ]
    node = {s: 2 * k for k, s in enumerate(names)}
    source, sink = 2 * len(names), 2 * len(names) + 1
    tails: list[int] = []
    heads: list[int] = []
    capacities: list[int | None] = []

    def edge(tail: int, head: int, capacity: int | None) -> None:
        tails.append(tail)
        heads.append(head)
        capacities.append(capacity)

    allowed = set(free)
    for s in names:
        edge(node[s], node[s] + 1, int(graph.size[s]))
        made = storages.sources[s] <= node.keys() and all(o in allowed for o in storages.writers[s])
        if made and storages.droppable(s):
            for other in sorted(storages.sources[s]):
                edge(node[other] + 1, node[s], None)
        else:
            edge(source, node[s], None)
        if storages.later[s] or graph.kept[s]:
            edge(node[s] + 1, sink, None)
    return tails, heads, capacities, names


def _source_side(tails: list[int], heads: list[int], capacities: list[int | None], nodes: int) -> set[int]:
    """Return the nodes that the source still reaches when a maximum flow runs: the cut nearest to it."""
    try:
        from scipy.sparse import csr_matrix
        from scipy.sparse.csgraph import breadth_first_order, maximum_flow
    except ImportError:
        raise MissingDependencyError(
            "scipy is not installed; the solver cheap needs it: pip install '.[flow]' in stowplan's clone"
        ) from None
    finite = [c for c in capacities if c is not None]
    unit = int(np.gcd.reduce(np.array(finite, dtype=np.int64))) or 1
    # Where even the common divisor leaves too large a sum, sizes are rounded up: the cut is then within one unit for
    # each storage of the smallest.
    unit = max(unit, -(-sum(finite) // (_LARGEST - len(finite) - 1)))
    units = [None if c is None else -(-c // unit) for c in capacities]
    unlimited = sum(c for c in units if c is not None) + 1
    column = np.array([unlimited if c is None else c for c in units], dtype=np.int32)
    capacity = csr_matrix((column, (tails, heads)), shape=(nodes, nodes))
    flow = maximum_flow(capacity, nodes - 2, nodes - 1).flow
    left = (capacity - flow).tocsr()
    left.eliminate_zeros()
    return set(breadth_first_order(left, nodes - 2, return_predecessors=False).tolist())
