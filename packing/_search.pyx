# distutils: language = c++
# cython: boundscheck=False, wraparound=False
"""Binding of the anytime solvers: `window_repair`, `by_conflicts`, `search`, `exact`; solving releases the GIL."""

from libcpp.vector cimport vector

import numpy as np

from .bounds import lower_bound
from .registry import Answer

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


def window_repair(problem, options, start):
    return solve(c_window_repair, problem, options, start)


def by_conflicts(problem, options):
    return solve(c_by_conflicts, problem, options, problem.fixed)


def search(problem, options, start):
    return solve(c_search, problem, options, start)


def exact(problem, options, int64_t known):
    cdef Columns columns = Columns(problem)
    cdef Listener listener = listener_of(problem, options)
    cdef int64_t capacity = -1 if options.capacity is None else options.capacity
    cdef ExactResult result
    with nogil:
        result = solve_exact(columns.view, capacity, known, listener.control)
    interrupted = listener.interrupted()
    offsets = None if result.offsets.empty() else np.array(result.offsets, dtype=np.int64)
    return Answer(offsets, result.lower_bound, interrupted)
