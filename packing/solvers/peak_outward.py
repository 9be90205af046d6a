"""Outward from the fullest moment; what sticks out goes first the next time.

::

    lower bound  - - - -+--+- - - - - -     the blocks alive at the fullest moment | are a stack without a hole;
                 _______|  |________        all others follow outward in time, each into the smallest hole that
               ___|___|__|___|___           takes it. Away from | less and less is alive: holes grow
             ____|_______|____|_____
             ------>-----|-----<-----> clock

Blocks that are placed first at the fullest moment waste nothing there, and what they leave on either side is room for
the blocks before and after, whose sides know nothing of each other. That suits memory that grows, such as a cache
copied into a larger one at every word: backwards each copy is smaller than the hole that waits for it. The order of the
stack is free; by rising end, what is freed first lies lowest, and the room it leaves is in one piece.

What this does not see is a large block of a short life, which comes when the holes are many and small. It ends above
the bound. So in the next run it goes directly after the stack, before all others, and the more so the more often it has
stuck out (squeaky wheel optimization: Joslin & Clements 1999). Either a few runs are enough, or many are not.

The rule is Pisarchyk & Lee's greedy one (2020; ``core/greedy/greedy.hpp``), whose running time grows with the pairs of
blocks alive together. The number of runs depends on the problem alone, unless the time limit cuts it short.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np

from .. import _solvers, orders
from ..bounds import bound
from ..meetings import pairs_alive_together
from ..placement import peak_of
from ..problem import IntArray, Problem
from ..registry import Answer, PackingOptions, register

# Pairs that all runs together look at, but at least one run is made: three seconds.
MOST_PAIRS = 250_000_000
# A first run that ends further above the bound than this share of it is the last: it is another kind of problem.
NEAR = 0.03


@register("peak_outward")
def peak_outward(problem: Problem, options: PackingOptions) -> IntArray | Answer:
    """Place outward from the fullest moment, several times; keep the best."""
    began = time.monotonic()
    best = np.maximum(problem.fixed, 0)
    least, moment = bound(problem)
    if moment is None:  # there are no blocks
        return best
    least = max(least, options.target)
    runs = max(1, MOST_PAIRS // max(pairs_alive_together(problem), 1))
    best_peak: int | None = None
    for stack, times in stacks(problem):
        stuck = np.zeros(len(problem), dtype=np.int64)
        for _ in range(min(times, runs)):
            left = None
            if options.time_limit is not None:
                left = options.time_limit - (time.monotonic() - began)
            offsets = _solvers.greedy(
                problem, orders.peak_outward(problem, moment, stack, stuck), time_limit=left
            )
            if offsets is None:
                return Answer(None, 0) if best_peak is None else best
            peak = peak_of(problem, offsets)
            if best_peak is None or peak < best_peak:
                best, best_peak = offsets, peak
            if best_peak <= least or best_peak > (1 + NEAR) * least:
                return best
            if options.time_limit is not None and time.monotonic() - began >= options.time_limit:
                return best
            stuck += offsets + problem.size > least
            runs -= 1
    return best


def stacks(problem: Problem) -> Iterator[tuple[IntArray, int]]:
    """Yield keys of blocks, (n,), by which the stack is sorted, and how many runs are made with each."""
    yield problem.end, 5
    yield -orders.lifetimes(problem), 2
    yield -problem.end, 3
