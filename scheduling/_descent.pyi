"""Binding of `descend`: greedy descent and local search. The GIL is released while solving."""

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from .graph import IntArray, StepGraph
from .schedule import Rates

def descend(
    graph: StepGraph,
    order: IntArray,
    way: IntArray,
    ways: npt.NDArray[np.uint8],
    budget: int,
    rates: Rates,
    *,
    drops: Sequence[Sequence[int]] | None = None,
    groups: Sequence[Sequence[int]] = (),
    before: Sequence[Sequence[int]] = (),
    after: Sequence[Sequence[int]] = (),
    movable: Sequence[int] = (),
    effort: int = 0,
    seed: int = 0,
    coarse: bool = False,
    time_limit: float | None = None,
    progress: Callable[[int, float], object] | None = None,
) -> tuple[IntArray, IntArray, list[list[int]], int, bool]:
    """Improve a valid schedule; return its order (n,), ways (m,), drops, evaluations, and whether Ctrl-C came.

    ``ways``: for each value that has a storage a bit for each `Way` that it may take, and 128 if it may be dropped
    after any use, (m,); 0 for the others.
    ``groups``: storages that may change together. ``before``, ``after``: for each operator those that must run before
    it and after it, for the ``movable`` ones. ``effort``: evaluations of local search. ``coarse``: change groups alone.
    """
