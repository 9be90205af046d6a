"""The constructive heuristics: one pass, no search, near O(n log n) in practice. Their cores are compiled.

``best_fit``
    The paper's. Keep the skyline of what is placed; on its lowest line (the leftmost of equals) put the block
    of the longest lifetime that lies inside; if there is none, lift the line to its lower neighbour.
    Sekiyama et al. 2018, section 3.2 (arXiv 1804.10001). See ``core/best_fit.hpp``.

``greedy_by_size``
    Blocks by falling size, each into the smallest hole among those alive with it that takes it, the lowest of
    equals. Pisarchyk & Lee 2020, section 5.2 (arXiv 2001.03288). See ``core/greedy.hpp``.

The papers know no gaps, alignment or fixed offsets. ``greedy_by_size`` places fixed blocks first and takes a
hole to be a range of offsets at which *no* piece of the block collides. ``best_fit`` measures a lifetime with
gaps as the sum of its pieces; such a block waits until the skyline is equally low under all of them; fixed
blocks hang above the skyline, and a block that would hit one moves up past it. Ties go to the larger block
(``best_fit``), then to the lower row.
"""

from __future__ import annotations

import numpy as np

from . import _solvers
from .problem import IntArray, Problem
from .registry import Options, register


@register("best_fit")
def best_fit(problem: Problem, options: Options) -> IntArray:
    """Place by Sekiyama et al.'s best fit: the lowest line, the longest lifetime."""
    return _solvers.best_fit(problem, by_lifetime(problem))


@register("greedy_by_size")
def greedy_by_size(problem: Problem, options: Options) -> IntArray:
    """Place by Pisarchyk & Lee's greedy by size: the largest block first, into the smallest hole."""
    return _solvers.greedy(problem, by_size(problem))


def by_lifetime(problem: Problem) -> IntArray:
    """Sort rows by falling lifetime (ticks at which anything is occupied), then falling size, then row."""
    pieces = problem.pieces()
    elapsed = np.concatenate([[0], np.cumsum(pieces.end - pieces.start)])
    lifetime = elapsed[pieces.first[1:]] - elapsed[pieces.first[:-1]]
    return np.lexsort((-problem.size, -lifetime)).astype(np.int64)


def by_size(problem: Problem) -> IntArray:
    """Sort rows by falling size, then row."""
    return np.argsort(-problem.size, kind="stable").astype(np.int64)
