"""Binding of the packing core: columns in, offsets out; the GIL is released while solving."""

from typing import overload

from .problem import IntArray, Problem

def best_fit(problem: Problem, order: IntArray) -> IntArray:
    """Place by the skyline rule, blocks preferred in this order (a permutation); offsets (n,)."""

@overload
def greedy(problem: Problem, order: IntArray, fixed: IntArray | None = None) -> IntArray:
    """Place one after another in this order (a permutation), each into the smallest hole; offsets (n,).

    ``fixed``, (n,), stands in for the problem's: offsets of the blocks that lie already, -1 for the others.
    """

@overload
def greedy(problem: Problem, order: IntArray, *, time_limit: float | None) -> IntArray | None:
    """Do so; None if the time is over first."""

def first_conflict(start: IntArray, end: IntArray, low: IntArray, high: IntArray) -> tuple[int, int] | None:
    """Find two rectangles [start, end) x [low, high) that overlap, by row; None if all k are disjoint."""
