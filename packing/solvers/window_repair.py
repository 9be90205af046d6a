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

from .. import _search
from ..interruptible import interruptible, reporter
from ..problem import Problem
from ..registry import Answer, PackingOptions, register


@register("window_repair")
def window_repair(problem: Problem, options: PackingOptions) -> Answer:
    """Place by a skyline of close fits, then window repair; one thread.

    Without a time limit the effort is fixed, and the result depends on the seed alone. With one, there is no answer
    where the first start is not done by then.
    """
    offsets, interrupted = interruptible(
        lambda cancel: _search.window_repair(
            problem,
            time_limit=options.time_limit,
            effort=options.effort or 0,
            seed=options.seed,
            cancel=cancel,
            progress=reporter(options, cancel),
        ),
        _search.Cancel(),
    )
    return Answer(offsets, 0, interrupted)
