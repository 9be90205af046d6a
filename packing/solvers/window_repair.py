"""Packing 10^4 to 10^6 blocks: a skyline of blocks that fit closely, then repair of the windows of time that stick out.

On its lowest line the skyline (Sekiyama et al. 2018, section 3.2, arXiv 1804.10001) takes the block that pays best: one
that is alive at crowded moments, lives long, and leaves no slivers next to itself. Then the tallest block is taken, a
window of time around it emptied and refilled, until it is lower; and again with what is tallest then. The pictures and
the reasons stand in ``core/window_repair/``: window_repair.hpp (the whole), skyline_refill.hpp (slivers),
priority_weights.hpp (what pays).

A start costs O(n log n) in practice, an attempt on a window of w blocks O(w log w); memory is O(n), as no pairs of
blocks are ever stored.
"""

from __future__ import annotations

import numpy as np

from .. import _solvers
from ..orders import by_lifetime
from ..problem import Problem
from ..registry import Answer, PackingOptions, register


@register("window_repair")
def window_repair(problem: Problem, options: PackingOptions) -> Answer:
    """Place by a skyline of close fits, then window repair; one thread.

    Without a time limit the effort is fixed, and the result depends on the seed alone. With one, there is no answer
    where the first start is not done by then.
    """
    start = np.maximum(problem.fixed, 0)
    if len(problem.gaps) or (problem.fixed >= 0).any():  # what a skyline cannot stack
        start = _solvers.best_fit(problem, by_lifetime(problem))
    return _solvers.window_repair(problem, options, start)
