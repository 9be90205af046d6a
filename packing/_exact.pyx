# distutils: language = c++
# cython: boundscheck=False, wraparound=False
"""Binding of the exact solver's core; the GIL is released while solving, and taken to report."""

from cpython.exc cimport PyErr_CheckSignals
from libc.stdint cimport uint64_t
from libcpp cimport bool as cbool
from libcpp.string cimport string
from libcpp.vector cimport vector

import numpy as np

include "_columns.pxi"


cdef extern from "exact.hpp" namespace "stowplan::packing" nogil:
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


cdef class Report:
    """What the solver calls back, and the exception that came of it."""

    cdef object progress
    cdef public object error

    def __cinit__(self, progress):
        self.progress = progress

    cdef cbool call(self, int64_t peak, int64_t bound, uint64_t nodes):
        try:
            PyErr_CheckSignals()
            if self.progress is not None:
                return self.progress(peak if peak >= 0 else None, bound, nodes) is not False
            return True
        except BaseException as error:
            self.error = error
            return False


cdef cbool relay(void* context, int64_t peak, int64_t bound, uint64_t nodes) noexcept with gil:
    return (<Report>context).call(peak, bound, nodes)


def solve(problem, capacity, double time_limit, uint64_t node_limit, uint64_t seed, incumbent, progress):
    cdef Columns columns = Columns(problem)
    cdef Column known
    report = Report(progress)
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
    if report.error is not None and not isinstance(report.error, KeyboardInterrupt):
        raise report.error
    status = ("optimal", "feasible", "infeasible", "unknown")[<int>result.status]
    offsets = None
    if status in ("optimal", "feasible"):
        offsets = np.array(result.offsets, dtype=np.int64)
    interrupted = report.error is not None
    return status, result.peak, result.lower_bound, offsets, result.nodes, result.won_by.decode(), interrupted
