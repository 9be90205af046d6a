# distutils: language = c++
# cython: boundscheck=False, wraparound=False
"""Binding of the exact solver's core; the GIL is released while solving, and taken to report."""

from libc.stdint cimport uint64_t
from libcpp.string cimport string
from libcpp.vector cimport vector

import numpy as np

include "_polled.pxi"
include "_problem.pxi"


cdef extern from "packing/core/exact/exact.hpp" namespace "stowplan::packing" nogil:
    cdef cppclass ExactOptions:
        int64_t capacity
        double time_limit
        uint64_t node_limit
        uint64_t seed
        const int64_t* incumbent
        cbool (*progress)(void*, int64_t, int64_t, uint64_t) noexcept
        void* context

    cdef enum class Status "stowplan::packing::Status":
        optimal
        feasible
        infeasible
        unknown

    cdef cppclass ExactResult:
        Status status
        int64_t peak
        int64_t lower_bound
        vector[int64_t] offsets
        uint64_t nodes
        string won_by

    ExactResult c_solve_exact "stowplan::packing::solve_exact"(const CProblem&, const ExactOptions&) except +


cdef cbool relay(void* context, int64_t peak, int64_t bound, uint64_t nodes) noexcept with gil:
    return (<Polled>context).goes_on((peak if peak >= 0 else None, bound, nodes))


def solve(problem, capacity, double time_limit, uint64_t node_limit, uint64_t seed, incumbent, progress):
    cdef Columns columns = Columns(problem)
    cdef Column known
    cdef Polled report = Polled(progress)
    cdef ExactOptions options
    options.capacity = -1 if capacity is None else capacity
    options.time_limit = time_limit
    options.node_limit = node_limit
    options.seed = seed
    options.progress = relay
    options.context = <void*>report
    if incumbent is not None:
        known = incumbent
        if <size_t>known.shape[0] != columns.view.n:
            raise ValueError(f"the incumbent has {known.shape[0]} offsets; expected {columns.view.n}")
        options.incumbent = address(known)

    cdef ExactResult result
    with nogil:
        result = c_solve_exact(columns.view, options)
    interrupted = report.interrupted()
    status = ("optimal", "feasible", "infeasible", "unknown")[<int>result.status]
    offsets = None
    if status in ("optimal", "feasible"):
        offsets = np.array(result.offsets, dtype=np.int64)
    return status, result.peak, result.lower_bound, offsets, result.nodes, result.won_by.decode(), interrupted
