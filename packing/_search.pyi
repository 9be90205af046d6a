"""Binding of the anytime solvers. Solving releases the GIL, and takes it to report and to look for Ctrl-C."""

from .problem import IntArray, Problem
from .registry import Answer, PackingOptions

def window_repair(problem: Problem, options: PackingOptions, start: IntArray) -> Answer:
    """Place by a skyline and window repair. ``effort``: blocks placed at most.

    ``start``, (n,): valid offsets for the blocks that are not plain rectangles, or fixed; they stay there.
    """

def by_conflicts(problem: Problem, options: PackingOptions) -> Answer:
    """Place by first fit on the conflict graph. ``effort``: neighbours looked at."""

def search(problem: Problem, options: PackingOptions, start: IntArray) -> Answer:
    """Improve the placement ``start``, (n,), by beams of growing width. ``effort``: rounds at most."""

def exact(problem: Problem, options: PackingOptions, known: int) -> Answer:
    """Decide the capacity, or look for the smallest peak below one that is ``known``. ``effort``: nodes at most.

    All blocks hang together in time, and each has a piece. No offsets: there is no such placement, or none was found.
    """
