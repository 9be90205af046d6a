"""First fit on the conflict graph: for problems with more pairs kept apart than blocks.

Blocks that are kept apart conflict as those do that are alive together. With many such pairs most conflicts have
nothing to do with time, and heuristics that look at moments or at a skyline pack badly. Here each block has the list of
those that conflict with it. Blocks go by falling priority, at first their size times the size of all that conflict with
them, each to the lowest offset that its placed neighbours leave. A run ends at the first block that reaches the best
peak; that block goes earlier in the next run, and its neighbours a little (squeaky wheel optimization: Joslin &
Clements 1999). The picture stands in ``core/by_conflicts/by_conflicts.hpp``.

SOMAS (MLSys 2023) has the same problem: which tensors of parallel streams may share memory makes a graph, and offsets
follow from it. Memory is O(pairs), so there is no answer above `MOST_PAIRS`.
"""

from __future__ import annotations

from dataclasses import replace

from .. import _solvers
from ..meetings import pairs_alive_together
from ..problem import Problem
from ..registry import Answer, PackingOptions, register

# Pairs of pieces in conflict: 50 bytes each.
MOST_PAIRS = 10_000_000
# Neighbours looked at, where there is no time limit: about a second.
EFFORT = 100_000_000


@register("by_conflicts")
def by_conflicts(problem: Problem, options: PackingOptions) -> Answer:
    """Place by falling conflict weight, what sticks out first the next time; one thread, deterministic."""
    if pairs_alive_together(problem) > MOST_PAIRS:
        return Answer(None, 0)
    if options.time_limit is None and not options.effort:
        options = replace(options, effort=EFFORT)
    return _solvers.by_conflicts(problem, options)
