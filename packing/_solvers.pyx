# distutils: language = c++
# cython: boundscheck=False, wraparound=False
"""Binding of the packing core: columns in, offsets out; the GIL is released while solving."""

from libcpp.pair cimport pair

import numpy as np

#: from .problem import IntArray, Problem

include "_anytime.pxi"
include "_problem.pxi"


cdef extern from "packing/core/best_fit/best_fit.hpp" nogil:
    void c_best_fit "stowplan::packing::best_fit"(const CProblem&, const int64_t*, int64_t*) except +

cdef extern from "packing/core/greedy/greedy.hpp" nogil:
    bint c_greedy "stowplan::packing::greedy"(const CProblem&, const int64_t*, const Control&, int64_t*) except +

cdef extern from "packing/core/first_conflict.hpp" nogil:
    pair[size_t, size_t] c_first_conflict "stowplan::packing::first_conflict"(
        size_t, const int64_t*, const int64_t*, const int64_t*, const int64_t*
    ) except +


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
