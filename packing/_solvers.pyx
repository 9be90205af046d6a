# distutils: language = c++
# cython: boundscheck=False, wraparound=False
"""Binding of the packing core: columns in, offsets out; the GIL is released while solving."""

from libcpp.pair cimport pair
from libcpp.vector cimport vector

import numpy as np

from .bounds import lower_bound
from .registry import Answer

#: from .problem import IntArray, Problem
#: from .registry import Answer, PackingOptions

include "_anytime.pxi"
include "_column.pxi"


cdef extern from "packing/core/problem.hpp" namespace "stowplan::packing" nogil:
    cdef struct CProblem "stowplan::packing::Problem":
        size_t n
        const int64_t* size
        const int64_t* start
        const int64_t* end
        const int64_t* alignment
        const int64_t* fixed
        const int64_t* first_piece
        const int64_t* piece_start
        const int64_t* piece_end
        const int64_t* piece_lower
        const int64_t* piece_upper

cdef extern from "packing/core/best_fit/best_fit.hpp" nogil:
    void c_best_fit "stowplan::packing::best_fit"(const CProblem&, const int64_t*, int64_t*) except +

cdef extern from "packing/core/greedy/greedy.hpp" nogil:
    bint c_greedy "stowplan::packing::greedy"(const CProblem&, const int64_t*, const Control&, int64_t*) except +

cdef extern from "packing/core/first_conflict.hpp" nogil:
    pair[size_t, size_t] c_first_conflict "stowplan::packing::first_conflict"(
        size_t, const int64_t*, const int64_t*, const int64_t*, const int64_t*
    ) except +

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


cdef class Columns:
    """Keeps a problem's arrays alive while C++ looks at them."""

    cdef CProblem view
    cdef object problem
    cdef object pieces
    cdef object fixed

    def __cinit__(self, object problem, object fixed=None):
        self.problem = problem
        self.pieces = problem.pieces()
        self.fixed = problem.fixed if fixed is None else fixed
        if len(self.fixed) != len(problem):
            raise ValueError(f"there are {len(self.fixed)} fixed offsets; expected {len(problem)}")
        self.view.n = len(problem)
        self.view.size = address(problem.size)
        self.view.start = address(problem.start)
        self.view.end = address(problem.end)
        self.view.alignment = address(problem.alignment)
        self.view.fixed = address(self.fixed)
        self.view.first_piece = address(self.pieces.first)
        self.view.piece_start = address(self.pieces.start)
        self.view.piece_end = address(self.pieces.end)
        self.view.piece_lower = address(self.pieces.lower)
        self.view.piece_upper = address(self.pieces.upper)


cdef Column ranks_of(problem, order):
    cdef Column ranks = order
    if ranks.shape[0] != len(problem):
        raise ValueError(f"the order has {ranks.shape[0]} entries; expected {len(problem)}")
    return ranks


def best_fit(problem: Problem, order: IntArray) -> IntArray:
    """Place by the skyline rule, blocks preferred in this order (a permutation); offsets (n,)."""
    cdef Columns columns = Columns(problem)
    cdef Column ranks = ranks_of(problem, order)
    offsets = np.zeros(len(problem), dtype=np.int64)
    cdef int64_t[::1] out = offsets
    if len(problem):
        with nogil:
            c_best_fit(columns.view, &ranks[0], &out[0])
    return offsets


def greedy(
    problem: Problem, order: IntArray, fixed: IntArray | None = None, time_limit: float | None = None
) -> IntArray | None:
    """Place one after another in this order (a permutation), each into the smallest hole; offsets (n,).

    None if the time is over first.

    ``fixed``, (n,), stands in for the problem's: offsets of the blocks that lie already, -1 for the others.
    """
    cdef Columns columns = Columns(problem, fixed)
    cdef Column ranks = ranks_of(problem, order)
    cdef Listener listener = Listener(None, time_limit)
    cdef bint finished = True
    offsets = np.zeros(len(problem), dtype=np.int64)
    cdef int64_t[::1] out = offsets
    if len(problem):
        with nogil:
            finished = c_greedy(columns.view, &ranks[0], listener.control, &out[0])
    if listener.interrupted():
        raise KeyboardInterrupt
    return offsets if finished else None


def first_conflict(Column start, Column end, Column low, Column high) -> tuple[int, int] | None:
    """Find two rectangles [start, end) x [low, high) that overlap, by row; None if all k are disjoint."""
    cdef size_t count = start.shape[0]
    cdef pair[size_t, size_t] hit
    if <size_t>end.shape[0] != count or <size_t>low.shape[0] != count or <size_t>high.shape[0] != count:
        raise ValueError("the columns differ in length")
    if not count:
        return None
    with nogil:
        hit = c_first_conflict(count, &start[0], &end[0], &low[0], &high[0])
    return None if hit.first == count else (hit.first, hit.second)


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
