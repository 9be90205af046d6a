"""Anytime improvement for up to a few thousand blocks: beams of growing width, on several threads.

A beam builds many placements side by side, block by block on their lowest lines, and keeps those whose *prospects* are
best: per moment, the height of the skyline plus all that still waits there. A prospect grows exactly by what is wasted;
``core/search/beam.hpp`` has the picture.

Starts from the best of the heuristics, so it is never worse than any of them. Rounds follow in which every
thread draws its own order and parameters and must end below the best so far. A beam costs at most
O(n x width x branch x columns); above 4,000 blocks the work goes to `window_repair` with a different seed on every
thread. After beam search and Burke, Kendall and Whitwell's best fit; the prospects are the section bounds of
MiniMalloc (Moffitt, ASPLOS 2023). Compiled: see ``core/search/search.hpp``.
"""

from __future__ import annotations

from .. import _search
from ..components import by_component
from ..interruptible import interruptible, reporter
from ..problem import Problem
from ..registry import Answer, PackingOptions, register


@register("search", improves=True)
@by_component
def search(problem: Problem, options: PackingOptions) -> Answer:
    """Improve the heuristics' best until the lower bound, the time limit, or else a fixed number of rounds.

    Without a time limit the result depends on the seed and the number of threads alone.
    """
    offsets, interrupted = interruptible(
        lambda cancel: _search.search(
            problem,
            time_limit=options.time_limit,
            effort=options.effort or 0,
            seed=options.seed,
            threads=options.threads,
            cancel=cancel,
            progress=reporter(options, cancel),
        ),
        _search.Cancel(),
    )
    return Answer(offsets, 0, interrupted)
