# distutils: language = c++
# cython: boundscheck=False, wraparound=False
"""Binding of the anytime solvers: `window_repair`, `by_conflicts`, `search`, `exact`; solving releases the GIL."""

from libcpp.vector cimport vector

import numpy as np

from .bounds import lower_bound
from .registry import Answer

#: from .problem import IntArray, Problem
#: from .registry import Answer, PackingOptions

include "_anytime.pxi"
include "_problem.pxi"


cdef extern from "packing/core/instance.hpp" namespace "stowplan::packing" nogil:
    const int64_t kNoCeiling

cdef extern from "packing/core/window_repair/window_repair.hpp" nogil:
    int64_t c_window_repair "stowplan::packing::window_repair"(const CProblem&, const Control&, int64_t*) except +

cdef extern from "packing/core/by_conflicts/by_conflicts.hpp" nogil:
    int64_t c_by_conflicts "stowplan::packing::by_conflicts"(const CProblem&, const Control&, int64_t*) except +

cdef extern from "packing/core/search/search.hpp" nogil:
    int64_t c_search "stowplan::packing::search"(const CProblem&, const Control&, int64_t*) except +

cdef extern from "packing/core/exact/exact.hpp" namespace "stowplan::packing" nogil:
    cdef cppclass ExactResult:
        vector[int64_t] offsets
        int64_t lower_bound

    ExactResult solve_exact(const CProblem&, int64_t, int64_t, const Control&) except +


ctypedef int64_t (*Anytime)(const CProblem&, const Control&, int64_t*) except + nogil


cdef Listener listener_of(problem, options):
    cdef Listener listener = Listener(options.heard, options.time_limit, options.effort, options.seed)
    listener.control.threads = options.threads
    listener.control.target = max(options.target, lower_bound(problem))
    return listener


cdef solve(Anytime solver, problem, options, start):
    cdef Columns columns = Columns(problem)
    cdef Listener listener = listener_of(problem, options)
    offsets = np.array(start, dtype=np.int64)
    cdef int64_t[::1] out = offsets
    cdef int64_t peak = 0
    if len(problem):
        with nogil:
            peak = solver(columns.view, listener.control, &out[0])
    interrupted = listener.interrupted()
    return Answer(None if peak == kNoCeiling else offsets, 0, interrupted)


def window_repair(problem: Problem, options: PackingOptions, start: IntArray) -> Answer:
    """Place by a skyline and window repair. ``effort``: blocks placed at most.

    ``start``, (n,): valid offsets for the blocks that are not plain rectangles, or fixed; they stay there.
    """
    return solve(c_window_repair, problem, options, start)


def by_conflicts(problem: Problem, options: PackingOptions) -> Answer:
    """Place by first fit on the conflict graph. ``effort``: neighbours looked at."""
    return solve(c_by_conflicts, problem, options, problem.fixed)


def search(problem: Problem, options: PackingOptions, start: IntArray) -> Answer:
    """Improve the placement ``start``, (n,), by beams of growing width. ``effort``: rounds at most."""
    return solve(c_search, problem, options, start)


def exact(problem: Problem, options: PackingOptions, int64_t known) -> Answer:
    """Decide the capacity, or look for the smallest peak below one that is ``known``. ``effort``: nodes at most.

    All blocks hang together in time, and each has a piece. No offsets: there is no such placement, or none was found.
    """
    cdef Columns columns = Columns(problem)
    cdef Listener listener = listener_of(problem, options)
    cdef int64_t capacity = -1 if options.capacity is None else options.capacity
    cdef ExactResult result
    with nogil:
        result = solve_exact(columns.view, capacity, known, listener.control)
    interrupted = listener.interrupted()
    offsets = None if result.offsets.empty() else np.array(result.offsets, dtype=np.int64)
    return Answer(offsets, result.lower_bound, interrupted)
