"""The exact solver: branch and bound of our own, for a given capacity or the smallest peak, with proof.

The lowest block comes first: the search chooses, again and again, which open block goes to the lowest offset there is.
Runs are short, and restarted over several orders of preference. ``core/exact/exact.hpp`` has the picture, what cuts the
tree, the sources (MiniMalloc, conflict-directed backjumping) and the memory that it takes.

Exponential at worst. Blocks whose lifetimes hang together in time are searched up to 5,000 of them; larger components
are left alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal, NamedTuple, cast

import numpy as np
import numpy.typing as npt

from ...errors import ProblemError
from .. import _exact
from ..components import by_component
from ..placement import peak_of
from ..problem import IntArray, Problem
from ..registry import Answer, PackingOptions, register

Status = Literal["optimal", "feasible", "infeasible", "unknown"]

_DEFAULT_SECONDS = 10.0
MOST_BLOCKS = 5_000
_NO_LIMIT = 2**64 - 1


class ExactResult(NamedTuple):
    """What the search found.

    Attributes
    ----------
    status
        ``"optimal"``: the peak equals the lower bound. ``"feasible"``: there is a placement (within the
        capacity, where one was given). ``"infeasible"``: proved that there is none. ``"unknown"``: a limit
        came first.
    peak
        Bytes that the placement needs; 0 without one.
    lower_bound
        Proved: no placement has a smaller peak.
    offsets
        Bytes, int64 (n,); None for infeasible and unknown.
    nodes
        Nodes of the search tree visited.
    won_by
        The order of preference that led to the placement.
    interrupted
        Whether Ctrl-C ended the search; what was found until then is here all the same.
    """

    status: Status
    peak: int
    lower_bound: int
    offsets: IntArray | None
    nodes: int
    won_by: str
    interrupted: bool


def solve(
    problem: Problem,
    capacity: int | None = None,
    *,
    time_limit: float | None = None,
    node_limit: int | None = None,
    seed: int = 0,
    incumbent: npt.ArrayLike | None = None,
    progress: Callable[[int | None, int, int], object] | None = None,
) -> ExactResult:
    """Decide whether a capacity is enough, or minimise the peak.

    On one thread, without the GIL. Deterministic for equal arguments unless the time limit ends it.

    Parameters
    ----------
    problem
        n blocks.
    capacity
        Bytes that the placement may take, 0 or more; None minimises.
    time_limit
        Wall-clock seconds, 0 or more. When minimising, a first placement is made even in no time.
    node_limit
        Nodes of the search tree, 0 or more, give or take a thousand.
    seed
        For the orders of preference that are drawn at random, 0 or more.
    incumbent
        Offsets of a valid placement to improve on, (n,), when minimising. It is not validated.
    progress
        Called with the best peak (None: no placement yet), the proved lower bound and the nodes so far, after
        every improvement and about twenty times a second. Returning False stops the search.

    Raises
    ------
    ProblemError
        An argument is out of range.
    """
    if capacity is not None and not 0 <= capacity < 2**63:
        raise ProblemError(f"capacity is {capacity}; expected bytes, 0 or more, below 2**63")
    if time_limit is not None and not time_limit >= 0:
        raise ProblemError(f"time_limit is {time_limit}; expected seconds, 0 or more, or None")
    if node_limit is not None and not 0 <= node_limit <= _NO_LIMIT:
        raise ProblemError(f"node_limit is {node_limit}; expected 0 or more, or None")
    if not 0 <= seed <= _NO_LIMIT:
        raise ProblemError(f"seed is {seed}; expected 0 or more, below 2**64")
    known = None
    if incumbent is not None:
        known = np.ascontiguousarray(incumbent, dtype=np.int64)
        if known.shape != (len(problem),):
            raise ProblemError(f"the incumbent has the shape {known.shape}; expected ({len(problem)},)")
    found = _exact.solve(
        problem,
        capacity,
        math.inf if time_limit is None else time_limit,
        _NO_LIMIT if node_limit is None else node_limit,
        seed,
        known,
        progress,
    )
    return ExactResult(cast(Status, found[0]), *found[1:])


@register("exact", improves=True)
@by_component
def exact(problem: Problem, options: PackingOptions) -> Answer:
    """Decide the capacity given, or minimise from the incumbent; for 10 s unless told otherwise.

    On one thread, whatever `PackingOptions.threads` is: its runs are short and learn from each other, in one table of
    refuted states.
    """
    if len(problem) > MOST_BLOCKS:
        return Answer(options.incumbent, 0)
    seconds = options.time_limit
    if seconds is None:
        seconds = _DEFAULT_SECONDS if options.effort is None else math.inf
    incumbent = options.incumbent if options.capacity is None else None
    best = None if options.incumbent is None else peak_of(problem, options.incumbent)

    def report(peak: int | None, bound: int, nodes: int) -> bool:
        nonlocal best
        if peak is None or (best is not None and peak >= best):
            return True
        best = peak
        return options.report is None or options.report(peak)

    result = solve(
        problem,
        options.capacity,
        time_limit=seconds,
        node_limit=options.effort,
        seed=options.seed,
        incumbent=incumbent,
        progress=report,
    )
    if result.status == "infeasible" and options.capacity is not None:
        return Answer(None, max(result.lower_bound, options.capacity + 1), result.interrupted)
    return Answer(result.offsets, result.lower_bound, result.interrupted)
