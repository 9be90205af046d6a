"""``auto``: the solvers one after the other, cheapest first, until one meets the target.

===================  =====================================  ==========================================================
solver               when                                   why
===================  =====================================  ==========================================================
``best_fit``         up to 200,000 blocks; more with gaps   the paper's; at the lower bound for most inference
``best_fit_orders``  up to 50,000 blocks; more with gaps    brings recorded training steps to the lower bound
``large``            from 2,000 blocks on                   windows repaired; at the bound for most large problems
greedy, three        up to 2 million pairs alive together   each wins somewhere; slow where many are alive
``exact``            the same; parts of up to 5,000 blocks  closes hard problems, and proves it
``search``           what is left of a time limit           improves what exact cannot close
===================  =====================================  ==========================================================

Without a time limit every member has a fixed effort, chosen so that all together cost about a second up to some
ten thousand blocks, and at most some seconds where `outward` comes near the target but does not meet it; so the
result depends on the problem, the seed and the threads alone. Independent parts of the problem are taken apart for
``exact`` and ``search``, and only those above the target are looked at.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from .heuristics import pairs_alive_together
from .problem import Problem
from .registry import Options

MOST_FOR_BEST_FIT = 200_000
MOST_FOR_ORDERS = 50_000
LEAST_FOR_LARGE = 2_000
# Pairs of pieces alive together: about 0.1 s for each greedy solver, and 100 MB for `exact`.
MOST_PAIRS = 2_000_000
# About 0.4 s for each run of `outward`: one on problems that are not of its kind.
MOST_FOR_OUTWARD = 40_000_000
# Nodes times blocks: about half a second of `exact`.
EXACT_WORK = 16_000_000
# Of the time left after all this, what `exact` gets before `search`.
EXACT_SHARE = 0.3


def steps(problem: Problem, options: Options) -> Iterator[tuple[str, Options]]:
    """Yield which solver comes next, with which options. Whoever asks stops asking once the target is met."""
    began = time.monotonic()
    limit = options.time_limit

    def left() -> float | None:
        return None if limit is None else max(0.0, limit - (time.monotonic() - began))

    n = len(problem)
    gaps = len(problem.gaps) > 0
    if n <= MOST_FOR_BEST_FIT or gaps:
        yield "best_fit", options
    constructive = ["best_fit_orders"] if n <= MOST_FOR_ORDERS or gaps else []
    if n >= LEAST_FOR_LARGE:
        # Without gaps `large` is both faster and better.
        constructive.insert(len(constructive) if gaps else 0, "large")
    pairs = pairs_alive_together(problem)
    if pairs <= MOST_FOR_OUTWARD:
        constructive.insert(1, "outward")
    if pairs <= MOST_PAIRS:
        constructive += ["greedy_by_size", "greedy_by_breadth", "greedy_in_order"]
    for name in constructive:
        yield name, replace(options, time_limit=left())
    if limit == 0:
        return
    if not np.any(problem.size):
        return
    if pairs <= MOST_PAIRS:
        yield "exact", replace(options, time_limit=left(), effort=max(1, EXACT_WORK // n))
    rest = left()
    if rest is None:
        return
    if pairs <= MOST_PAIRS:
        yield "exact", replace(options, time_limit=EXACT_SHARE * rest)
    yield "search", replace(options, time_limit=left())
