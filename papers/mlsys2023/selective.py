"""selective: recompute what lies between the two matrix products of attention, and nothing else.

::

    q, k -> MatMul -> scores -> (scale, mask) -> Softmax -> weights -> Dropout -> MatMul -> with v
                      |<------------------ dropped ------------------------>|

These values grow with the square of the sequence's length s but take few operations for each byte. A layer of a
Transformer keeps s b h (34 + 5 a s / h) bytes at two bytes an element, for batch b, width h and a heads; without them
34 s b h (Korthikanti et al. 2022, sections 4.1 and 5). What may not run again, as a dropout's mask, is packed instead
where it can be. Attention is found from its Softmax: upwards and downwards to the nearest matrix products. O(n).
"""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np

from ...scheduling.graph import Phase, StepGraph
from ...scheduling.orders import recorded
from ...scheduling.registry import NotApplicable, SchedulingOptions, register
from ...scheduling.schedule import Schedule, Way
from ...scheduling.storage_groups import Storages

SOFTMAX = re.compile("softmax", re.IGNORECASE)
PRODUCT = re.compile("matmul|bmm|baddbmm|einsum|linear|gemm|dot(?!.*dropout)|addmm|mm\\b", re.IGNORECASE)
LOSS = re.compile("entropy|loss|log_?softmax", re.IGNORECASE)


@register("selective")
def selective(graph: StepGraph, options: SchedulingOptions) -> Schedule:
    """Return the schedule that drops attention's internals, whatever the budget.

    Raises
    ------
    NotApplicable
        No operator's label is a softmax between two matrix products, or nothing between these can be dropped.
    """
    storages = Storages(graph)
    inside = attention(graph)
    if not inside:
        raise NotApplicable("selective needs attention: a Softmax between two matrix products; none is found")
    wanted = [s for s in inside if s in storages.ways and storages.later[s]]
    if not any({Way.DROPPED, Way.PACKED} & set(storages.ways[s]) for s in wanted):
        raise NotApplicable(
            "selective found attention, and can drop nothing inside it: its values are written more than once, or kept"
        )
    chosen = {s for s in storages.ways if s not in inside}
    way = storages.keeping({s for s in chosen if storages.later[s]})
    for s in sorted(inside):
        if Way.DROPPED not in storages.ways[s] and Way.PACKED in storages.ways[s]:
            way[s] = Way.PACKED
    return Schedule(recorded(graph), way[graph.storage])


def attention(graph: StepGraph) -> set[int]:
    """Return the storages between the two matrix products of each attention, the first one's result included."""
    writers, reads, writes = graph.writers(), graph.reads.rows(), graph.writes.rows()
    readers: list[list[int]] = [[] for _ in range(graph.values)]
    for operator, row in enumerate(reads):
        for v in row:
            readers[v].append(operator)
    forward = [bool(p == Phase.FORWARD) for p in graph.phase]
    product = [bool(PRODUCT.search(label)) and not SOFTMAX.search(label) for label in graph.label]
    found: set[int] = set()
    for operator in np.flatnonzero(graph.phase == Phase.FORWARD).tolist():
        if not SOFTMAX.search(graph.label[operator]) or LOSS.search(graph.label[operator]):
            continue
        above = _until(
            operator, lambda o: [w for v in reads[o] for w in writers[v] if w < o], product, forward
        )
        below = _until(operator, lambda o: [r for v in writes[o] for r in readers[v]], product, forward)
        if above is None or below is None:
            continue
        ending = {o for o in below if product[o]}
        for one in (above | below) - ending:
            found.update(int(graph.storage[v]) for v in writes[one])
    return found - set(np.flatnonzero(graph.resident).tolist())


def _until(
    start: int, following: Callable[[int], list[int]], product: list[bool], forward: list[bool]
) -> set[int] | None:
    """Return the operators on the ways from one to the nearest matrix products, these included; None: none."""
    seen = {start}
    stack = [start]
    while stack:
        for other in following(stack.pop()):
            if forward[other] and other not in seen:
                seen.add(other)
                if not product[other]:
                    stack.append(other)
    # What hangs on without leading to a product, as what makes a mask, is none of attention's.
    leading = {o for o in seen if product[o]}
    grown = True
    while grown:
        more = {o for o in seen - leading if leading & set(following(o))}
        leading |= more
        grown = bool(more)
    return leading if start in leading else None
