# distutils: language = c++
# cython: boundscheck=False, wraparound=False
"""Binding of `descend`: greedy descent and local search. The GIL is released while solving."""

from libc.stdint cimport int32_t
from libcpp.vector cimport vector

#: from collections.abc import Callable, Sequence
#:
#: import numpy as np
#: import numpy.typing as npt
#:
#: from .graph import IntArray, StepGraph
#: from .schedule import Rates

include "../packing/_anytime.pxi"
include "_graph.pxi"


cdef extern from "scheduling/core/descent/solver.hpp" namespace "stowplan::scheduling" nogil:
    cdef cppclass Places:
        vector[vector[int32_t]] before
        vector[vector[int32_t]] after
        vector[int32_t] movable

    cdef cppclass Task:
        const uint8_t* ways
        vector[vector[int32_t]] groups
        vector[vector[int32_t]] drops
        Places places
        int64_t budget
        double seconds
        bint coarse

    int64_t c_descend "stowplan::scheduling::descend"(
        const Graph&, const Rates&, Task&, const Control&, int64_t*, int64_t*) except +


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
    cdef Columns columns = Columns(graph)
    cdef Listener listener = Listener(progress, time_limit, effort, seed)
    cdef Rates speed
    cdef Task task
    cdef int64_t evaluations = 0
    allowed = np.ascontiguousarray(ways, dtype=np.uint8)
    speed.swap, speed.pack = rates.swap, rates.pack
    task.ways = flags(allowed)
    task.groups = groups
    task.drops = [()] * graph.values if drops is None else drops
    task.places.before, task.places.after, task.places.movable = before, after, movable
    task.budget = budget
    task.seconds = graph.seconds.sum()
    task.coarse = coarse
    found_order = np.array(order, dtype=np.int64)
    found_way = np.array(way, dtype=np.int64)
    cdef int64_t[::1] out_order = found_order
    cdef int64_t[::1] out_way = found_way
    if columns.view.n and columns.view.m:
        with nogil:
            evaluations = c_descend(columns.view, speed, task, listener.control, &out_order[0], &out_way[0])
    interrupted = listener.interrupted()
    return found_order, found_way[graph.storage], list(task.drops), evaluations, interrupted
