"""The paper's best fit: one pass, no search; near O(n log n) in practice.

Keep the skyline of what is placed; on its lowest line (the leftmost of equals) put the block of the longest lifetime
that lies inside, the larger of equals, then the lower row; if there is none, lift the line to its lower neighbour.
Sekiyama et al. 2018, section 3.2 (arXiv 1804.10001). See ``core/best_fit/best_fit.hpp``.

The paper knows no gaps, alignment or fixed offsets. Here a lifetime with gaps is the sum of its pieces, and such a
block waits until the skyline is equally low under all of them; fixed blocks hang above the skyline, and a block that
would hit one moves up past it.
"""

from __future__ import annotations

from .. import _solvers
from ..orders import by_lifetime
from ..problem import IntArray, Problem
from ..registry import PackingOptions, register


@register("best_fit")
def best_fit(problem: Problem, options: PackingOptions) -> IntArray:
    """Place by Sekiyama et al.'s best fit: the lowest line, the longest lifetime."""
    return _solvers.best_fit(problem, by_lifetime(problem))
