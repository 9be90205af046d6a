"""The constructive heuristics: one pass, no search. Their cores are compiled.

``best_fit`` is near O(n log n) in practice. The others' time grows with the pairs of blocks alive together; where the
time limit is over first, they have no answer.

``best_fit``
    The paper's. Keep the skyline of what is placed; on its lowest line (the leftmost of equals) put the block
    of the longest lifetime that lies inside; if there is none, lift the line to its lower neighbour.
    Sekiyama et al. 2018, section 3.2 (arXiv 1804.10001). See ``core/best_fit/best_fit.hpp``.

``greedy_by_size``
    Blocks by falling size, each into the smallest hole among those alive with it that takes it, the lowest of
    equals. Pisarchyk & Lee 2020, section 5.2 (arXiv 2001.03288). See ``core/greedy/greedy.hpp``.

``greedy_by_breadth``
    The same rule; blocks in the order of the widest moment they live through, and there by falling size.
    Pisarchyk & Lee 2020, section 5.3. The paper leaves ties open; the later moment of equals goes first.

``greedy_in_order``
    The same rule; blocks in the order of their allocation. Lee et al. 2019, "On-device neural net inference
    with mobile GPUs" (arXiv 1907.01989); as offsets in Pisarchyk & Lee's table 2.

The papers know no gaps, alignment or fixed offsets. The greedy solvers place fixed blocks first and take a
hole to be a range of offsets at which *no* piece of the block collides. ``best_fit`` measures a lifetime with
gaps as the sum of its pieces; such a block waits until the skyline is equally low under all of them; fixed
blocks hang above the skyline, and a block that would hit one moves up past it. Ties go to the larger block
(``best_fit``), then to the lower row.
"""

from __future__ import annotations

import numpy as np

from .. import _solvers
from ..orders import by_breadth, by_lifetime, by_size, by_start
from ..problem import IntArray, Problem
from ..registry import Answer, PackingOptions, register


@register("best_fit")
def best_fit(problem: Problem, options: PackingOptions) -> IntArray:
    """Place by Sekiyama et al.'s best fit: the lowest line, the longest lifetime."""
    return _solvers.best_fit(problem, by_lifetime(problem))


@register("greedy_by_size")
def greedy_by_size(problem: Problem, options: PackingOptions) -> Answer:
    """Place by Pisarchyk & Lee's greedy by size: the largest block first, into the smallest hole."""
    return _greedy(problem, by_size(problem), options)


@register("greedy_by_breadth")
def greedy_by_breadth(problem: Problem, options: PackingOptions) -> Answer:
    """Place by Pisarchyk & Lee's greedy by breadth: the widest moment first, into the smallest hole."""
    return _greedy(problem, by_breadth(problem), options)


@register("greedy_in_order")
def greedy_in_order(problem: Problem, options: PackingOptions) -> Answer:
    """Place by Lee et al.'s greedy: in the order of allocation, into the smallest hole."""
    return _greedy(problem, by_start(problem), options)


def _greedy(problem: Problem, order: IntArray, options: PackingOptions) -> Answer:
    return Answer(_solvers.greedy(problem, order, time_limit=options.time_limit), 0)


def pairs_alive_together(problem: Problem) -> int:
    """Count pairs of pieces that overlap in time: what a greedy solver's running time grows with. O(k log k)."""
    return int(meetings(problem).sum()) // 2


def meetings(problem: Problem) -> IntArray:
    """Count for each piece the others that overlap it in time, (k,). O(k log k)."""
    pieces = problem.pieces()
    # Pieces that start before my end and end by my start do not overlap me; I am among the others.
    before_end = np.searchsorted(np.sort(pieces.start), pieces.end, "left")
    before_start = np.searchsorted(np.sort(pieces.end), pieces.start, "right")
    return np.asarray(before_end - before_start - 1, dtype=np.int64)
