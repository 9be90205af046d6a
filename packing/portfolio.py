"""``auto``: the solvers one after the other, cheapest first, until one meets the target. `MEMBERS` lists them.

Without a time limit every member has a fixed effort, chosen so that all together cost about a second up to some
ten thousand blocks, and at most some seconds where `peak_outward` comes near the target but does not meet it; so the
result depends on the problem, the seed and the threads alone. Independent components of the problem are taken apart for
``exact`` and ``search``, and only those above the target are looked at.

In haste, `peak_outward`, `window_repair` and `by_conflicts` start once, ``exact`` has one part in `HASTE` of its
effort, and of the pairs that it may keep in memory, and a large problem is left once it is within `NEAR` of its lower
bound.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from .meetings import pairs_alive_together
from .problem import Problem
from .registry import PackingOptions
from .solvers.by_conflicts import EFFORT as CONFLICT_WORK
from .solvers.by_conflicts import MOST_PAIRS as MOST_FOR_CONFLICTS

MOST_FOR_BEST_FIT = 200_000
MOST_FOR_ORDERS = 50_000
LEAST_FOR_REPAIR = 2_000
# Pairs of pieces alive together: 100 MB for `exact`.
MOST_PAIRS = 2_000_000
# About 0.4 s for each run of `peak_outward`: one on problems that are not of its kind.
MOST_FOR_OUTWARD = 40_000_000
# Nodes times pieces: about a second of `exact`.
EXACT_WORK = 32_000_000
# In haste: parts of the pairs, and of the work of `exact`, whose tightest arenas leave steps that differ less room.
HASTE = 16
HASTE_WORK = 1_000_000
NEAR = 0.005
# `exact` gets this share of the time left after all this, before `search`.
EXACT_SHARE = 0.3


MEMBERS = ("best_fit", "by_conflicts", "best_fit_orders", "peak_outward", "window_repair", "exact", "search")
"""The solvers, the cheapest first; ``docs/algorithms.rst`` tells when each is asked, and what it is good for."""


def is_near(problem: Problem, excess: float) -> bool:
    """Whether a problem is left, in haste, with a peak that has this share of the lower bound above it."""
    return len(problem) >= LEAST_FOR_REPAIR and excess <= NEAR


def steps(
    problem: Problem, options: PackingOptions, in_haste: bool = False, apart: int = 0
) -> Iterator[tuple[str, PackingOptions]]:
    """Yield the next solver and its options. The caller stops once the target is met.

    ``apart`` is how many pairs of the problem are ticks that `reduce` has added.
    """
    began = time.monotonic()
    limit = options.time_limit

    def left() -> float | None:
        return None if limit is None else max(0.0, limit - (time.monotonic() - began))

    n = len(problem)
    gaps = len(problem.gaps) > 0
    if n <= MOST_FOR_BEST_FIT or gaps:
        yield "best_fit", options
    constructive = ["best_fit_orders"] if n <= MOST_FOR_ORDERS or gaps else []
    if n >= LEAST_FOR_REPAIR:
        # Without gaps window repair is both faster and better.
        constructive.insert(len(constructive) if gaps else 0, "window_repair")
    pairs = pairs_alive_together(problem)
    if pairs <= MOST_FOR_OUTWARD:
        constructive.insert(1, "peak_outward")
    by_conflicts = apart >= n and pairs <= MOST_FOR_CONFLICTS
    if by_conflicts:
        constructive = ["by_conflicts"]
    for name in constructive:
        if in_haste and name in ("window_repair", "by_conflicts"):
            yield name, replace(options, time_limit=left(), effort=1)  # one start
        elif name == "by_conflicts":
            yield name, replace(options, time_limit=left(), effort=CONFLICT_WORK)
        else:
            yield name, replace(options, time_limit=0 if in_haste and name == "peak_outward" else left())
    if limit == 0:
        return
    if not np.any(problem.size):
        return
    part, work = (HASTE, HASTE_WORK) if in_haste else (1, EXACT_WORK)
    if pairs <= MOST_PAIRS // part:
        yield "exact", replace(options, time_limit=left(), effort=max(1, work // (n + len(problem.gaps))))
    rest = left()
    if not rest:
        return
    if pairs <= MOST_PAIRS:
        yield "exact", replace(options, time_limit=EXACT_SHARE * rest)
    yield "by_conflicts" if by_conflicts else "search", replace(options, time_limit=left())
