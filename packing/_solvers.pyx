# distutils: language = c++
# cython: boundscheck=False, wraparound=False
"""Binding of the packing core: columns in, offsets out; the GIL is released while solving."""

from libc.stdint cimport int64_t
from libcpp.pair cimport pair

import numpy as np

ctypedef const int64_t[::1] Column


cdef extern from "problem.hpp" namespace "stowplan::packing" nogil:
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

cdef extern from "best_fit.hpp" nogil:
    void c_best_fit "stowplan::packing::best_fit"(const CProblem&, const int64_t*, int64_t*) except +

cdef extern from "greedy.hpp" nogil:
    void c_greedy "stowplan::packing::greedy"(const CProblem&, const int64_t*, int64_t*) except +

cdef extern from "first_conflict.hpp" nogil:
    pair[size_t, size_t] c_first_conflict "stowplan::packing::first_conflict"(
        size_t, const int64_t*, const int64_t*, const int64_t*, const int64_t*
    ) except +


cdef const int64_t* address(Column column):
    return &column[0] if column.shape[0] else NULL


cdef class Columns:
    """Keeps a problem's arrays alive while C++ looks at them."""

    cdef CProblem view
    cdef object problem
    cdef object pieces

    def __cinit__(self, problem):
        self.problem = problem
        self.pieces = problem.pieces()
        self.view.n = len(problem)
        self.view.size = address(problem.size)
        self.view.start = address(problem.start)
        self.view.end = address(problem.end)
        self.view.alignment = address(problem.alignment)
        self.view.fixed = address(problem.fixed)
        self.view.first_piece = address(self.pieces.first)
        self.view.piece_start = address(self.pieces.start)
        self.view.piece_end = address(self.pieces.end)
        self.view.piece_lower = address(self.pieces.lower)
        self.view.piece_upper = address(self.pieces.upper)


ctypedef void (*Ordered)(const CProblem&, const int64_t*, int64_t*) except + nogil


cdef solve(Ordered solver, problem, order):
    cdef Columns columns = Columns(problem)
    cdef Column ranks = order
    if ranks.shape[0] != len(problem):
        raise ValueError(f"the order has {ranks.shape[0]} entries; expected {len(problem)}")
    offsets = np.zeros(len(problem), dtype=np.int64)
    cdef int64_t[::1] out = offsets
    if len(problem):
        with nogil:
            solver(columns.view, &ranks[0], &out[0])
    return offsets


def best_fit(problem, order):
    return solve(c_best_fit, problem, order)


def greedy(problem, order):
    return solve(c_greedy, problem, order)


def first_conflict(Column start, Column end, Column low, Column high):
    cdef size_t count = start.shape[0]
    cdef pair[size_t, size_t] hit
    if <size_t>end.shape[0] != count or <size_t>low.shape[0] != count or <size_t>high.shape[0] != count:
        raise ValueError("the columns differ in length")
    if not count:
        return None
    with nogil:
        hit = c_first_conflict(count, &start[0], &end[0], &low[0], &high[0])
    return None if hit.first == count else (hit.first, hit.second)
