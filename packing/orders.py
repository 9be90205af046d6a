"""Orders in which blocks are preferred, and the problem read backwards in time.

A constructive heuristic is a rule and an order. No order wins everywhere, but three observations go far on the
steps of real programs:

- A block with gaps (a wrapped gradient) needs one offset free in all of its pieces; put first, such blocks stack
  at the bottom, and what lives in their gaps comes under a roof that is already there.
- At the moment of the lower bound the live blocks must fill the arena without a hole. What is alive there goes
  first, so that nothing else can cut it up.
- Placing the leftmost of equals favours one direction of time. Backwards, the same rule decides differently.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from .problem import IntArray, Problem, changed


def lifetimes(problem: Problem) -> IntArray:
    """Ticks at which each block occupies anything, (n,)."""
    pieces = problem.pieces()
    elapsed = np.concatenate([[0], np.cumsum(pieces.end - pieces.start)])
    return np.asarray(elapsed[pieces.first[1:]] - elapsed[pieces.first[:-1]], dtype=np.int64)


def by_lifetime(problem: Problem) -> IntArray:
    """Sort rows by falling lifetime, then falling size, then row: the paper's order for best fit."""
    return np.lexsort((-problem.size, -lifetimes(problem))).astype(np.int64)


def by_size(problem: Problem) -> IntArray:
    """Sort rows by falling size, then row."""
    return np.argsort(-problem.size, kind="stable").astype(np.int64)


def by_area(problem: Problem, power: float = 1.0, noise: npt.NDArray[np.float64] | None = None) -> IntArray:
    """Sort rows by falling lifetime * size ** power, then falling size, then row.

    Parameters
    ----------
    problem
        n blocks.
    power
        What a byte weighs against a tick.
    noise
        Added to the logarithm of the key, (n,), to draw one of many similar orders.
    """
    key = power * np.log(np.maximum(problem.size, 1)) + np.log(np.maximum(lifetimes(problem), 1))
    return np.lexsort((-problem.size, -key if noise is None else -key - noise)).astype(np.int64)


def first(rows: npt.NDArray[np.bool_], order: IntArray) -> IntArray:
    """Move the rows marked, (n,), to the front of an order; both parts keep their order."""
    return order[np.argsort(~rows[order], kind="stable")]


def gapped(problem: Problem) -> npt.NDArray[np.bool_]:
    """Mark the blocks that have gaps, (n,)."""
    rows = np.zeros(len(problem), dtype=bool)
    rows[problem.gaps[:, 0]] = True
    return rows


def alive_at(problem: Problem, tick: int | None) -> npt.NDArray[np.bool_]:
    """Mark the blocks that occupy anything at a tick, (n,)."""
    rows = np.zeros(len(problem), dtype=bool)
    if tick is not None:
        pieces = problem.pieces()
        of = np.repeat(np.arange(len(problem)), np.diff(pieces.first))
        rows[of[(pieces.start <= tick) & (tick < pieces.end)]] = True
    return rows


def peak_outward(problem: Problem, tick: int, stack: IntArray, preferred: IntArray) -> IntArray:
    """Sort rows outward from a tick in both directions of time.

    First the blocks alive at the tick by rising ``stack``, (n,). Then all others: those most ``preferred``, (n,),
    first, then by distance of the lifetime from the tick, then falling size, then row.
    """
    alive = alive_at(problem, tick)
    distance = np.maximum(np.maximum(problem.start - tick, tick - problem.end + 1), 0)
    keys = (-problem.size, distance, -preferred, np.where(alive, stack, 0), ~alive)
    return np.lexsort(keys).astype(np.int64)


def backwards(problem: Problem) -> Problem:
    """Return the same blocks with time reversed; a placement of one is a placement of the other."""
    gaps = problem.gaps.copy()
    gaps[:, 1], gaps[:, 2] = -problem.gaps[:, 2], -problem.gaps[:, 1]
    return changed(problem, start=-problem.end, end=-problem.start, gaps=gaps)
