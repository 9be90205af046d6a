"""Anytime improvement for up to a few thousand blocks: beams of growing width, on several threads.

A beam builds many placements side by side, block by block on their lowest lines, and keeps those whose *prospects* are
best: per moment, the height of the skyline plus all that still waits there. A prospect grows exactly by what is wasted;
``core/search/beam.hpp`` has the picture.

Starts from what is known already, or from window repair's starts where these are better. Rounds follow in which every
thread draws its own order and parameters and must end below the best so far. A beam costs at most
O(n x width x branch x columns); above 4,000 blocks the work goes to `window_repair` with a different seed on every
thread. After beam search and Burke, Kendall and Whitwell's best fit; the prospects are the section bounds of
MiniMalloc (Moffitt, ASPLOS 2023). Compiled: see ``core/search/search.hpp``.
"""

from __future__ import annotations

from .. import _solvers
from ..components import by_component
from ..problem import Problem
from ..registry import Answer, PackingOptions, register


@register("search", improves=True)
@by_component
def search(problem: Problem, options: PackingOptions) -> Answer:
    """Improve the heuristics' best until the lower bound, the time limit, or else a fixed number of rounds.

    Without a time limit the result depends on the seed and the number of threads alone.
    """
    assert options.incumbent is not None  # the registry says that this solver improves one
    return _solvers.search(problem, options, options.incumbent)
