"""Best fit over several orders, with what sticks out put elsewhere.

::

    lower bound  - - - - - - +--+ - -       best fit in some order leaves few blocks above the bound;
                 +----+      |  | +--       each is taken out and put into the smallest hole that takes it,
                 |    +------+--+-+         if there is one among all the others as they lie
                 +---------------------> clock

The rule is that of ``best_fit`` (Sekiyama et al. 2018); `packing.orders` tells why these orders. What sticks out is
put back by Pisarchyk & Lee's greedy rule (2020; ``core/greedy/greedy.hpp``). The first result at the lower bound wins,
else the best of all.

The number of runs depends on the number of blocks alone: at most `MOST_RUNS`, and no more than place `MOST_BLOCKS`
blocks in all, but one. So the result does not depend on the machine, unless the time limit cuts it short. Each run
is O(n log n) in practice.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np

from .. import _solvers, orders
from ..bounds import bound
from ..meetings import meetings
from ..placement import peak_of
from ..problem import IntArray, Problem
from ..registry import PackingOptions, register

MOST_RUNS = 16
MOST_BLOCKS = 250_000
# Blocks that stick out are put elsewhere only while they are few: each has to look at all that live at its time.
MOST_MEETINGS = 1_000_000

# The noise of the orders drawn at random: a factor of about 1.3 on the area.
_NOISE = 0.3


@register("best_fit_orders")
def best_fit_orders(problem: Problem, options: PackingOptions) -> IntArray:
    """Place by best fit in several orders; keep the best."""
    began = time.monotonic()
    least, moment = bound(problem)
    least = max(least, options.target)
    best = np.zeros(len(problem), dtype=np.int64)
    best_peak: int | None = None
    runs = max(1, min(MOST_RUNS, MOST_BLOCKS // max(len(problem), 1)))
    for k, (as_seen, order) in enumerate(variants(problem, moment, options.seed)):
        if k == runs or (
            k and options.time_limit is not None and time.monotonic() - began >= options.time_limit
        ):
            break
        offsets = _solvers.best_fit(as_seen, order)
        if peak_of(problem, offsets) > least:
            offsets = reinserted(problem, offsets, least)
        peak = peak_of(problem, offsets)
        if best_peak is None or peak < best_peak:
            best, best_peak = offsets, peak
        if peak <= least:
            break
    return best


def variants(problem: Problem, moment: int | None, seed: int) -> Iterator[tuple[Problem, IntArray]]:
    """List pairs of a problem, in time or backwards, and an order: the most promising first, without end.

    ``moment`` is where the lower bound is attained.
    """
    wrapped, peak = orders.gapped(problem), orders.alive_at(problem, moment)
    lifetime, area = orders.by_lifetime(problem), orders.by_area(problem)
    yield problem, orders.first(peak, lifetime)
    yield problem, orders.first(wrapped, orders.first(peak, lifetime))
    reverse = orders.backwards(problem)
    yield reverse, orders.first(peak, area)
    yield reverse, orders.first(peak, lifetime)
    yield problem, orders.by_size(problem)
    yield problem, orders.first(peak, orders.by_area(problem, 2))
    yield problem, area
    yield reverse, orders.first(wrapped, orders.by_size(problem))
    rng = np.random.default_rng(seed)
    while True:
        noise = rng.normal(0, _NOISE, len(problem))
        drawn = orders.by_area(problem, float(rng.choice([0, 0.5, 1, 2, 4])), noise)
        yield (problem, reverse)[int(rng.integers(2))], orders.first(peak, drawn)


def reinserted(problem: Problem, offsets: IntArray, capacity: int) -> IntArray:
    """Put the blocks that end above ``capacity`` into the smallest holes among the others, the largest first.

    Returns offsets whose peak is no greater.
    """
    out = (offsets + problem.size > capacity) & (problem.fixed < 0)
    of = np.repeat(np.arange(len(problem)), np.diff(problem.pieces().first))
    if int(meetings(problem)[out[of]].sum()) > MOST_MEETINGS:
        return offsets
    moved = _solvers.greedy(problem, orders.by_size(problem), np.where(out, -1, offsets))
    assert moved is not None  # it has all the time there is
    return moved if peak_of(problem, moved) < peak_of(problem, offsets) else offsets
