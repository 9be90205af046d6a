"""The exact solver: branch and bound of our own, for a given capacity or the smallest peak, with proof.

The lowest block comes first: the search chooses, again and again, which open block goes to the lowest offset there is.
Runs are short, and restarted over several orders of preference. ``core/exact/exact.hpp`` has the picture, what cuts the
tree, the sources (MiniMalloc, conflict-directed backjumping) and the memory that it takes.

Exponential at worst. Blocks whose lifetimes hang together in time are searched up to 5,000 of them; larger components
are left alone.
"""

from __future__ import annotations

from dataclasses import replace

from .. import _solvers
from ..components import by_component
from ..placement import peak_of
from ..problem import Problem
from ..registry import Answer, PackingOptions, register

_DEFAULT_SECONDS = 10.0
MOST_BLOCKS = 5_000
# Of a peak: beyond, the marks for "never" of the compiled half would be offsets.
MOST_BYTES = 1 << 60


@register("exact", improves=True)
@by_component
def exact(problem: Problem, options: PackingOptions) -> Answer:
    """Decide the capacity given, or minimise from the incumbent; for 10 s unless told otherwise.

    On one thread, whatever `PackingOptions.threads` is: its runs are short and learn from each other, in one table of
    refuted states.
    """
    start = options.incumbent
    assert start is not None  # the registry says that this solver improves one
    known = peak_of(problem, start)
    if len(problem) > MOST_BLOCKS or max(known, options.capacity or 0) >= MOST_BYTES:
        return Answer(start, 0)
    if options.time_limit is None and options.effort is None:
        options = replace(options, time_limit=_DEFAULT_SECONDS)
    return _solvers.exact(problem, options, known)
