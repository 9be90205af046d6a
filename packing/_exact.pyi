"""Binding of the exact solver's core; the GIL is released while solving, and taken to report."""

from collections.abc import Callable

from .problem import IntArray, Problem

def solve(
    problem: Problem,
    capacity: int | None,
    time_limit: float,
    node_limit: int,
    seed: int,
    incumbent: IntArray | None,
    progress: Callable[[int | None, int, int], object] | None,
) -> tuple[str, int, int, IntArray | None, int, str, bool]:
    """Return status, peak, lower bound, offsets, nodes, the order that won, and whether Ctrl-C came."""
