# distutils: language = c++
# cython: boundscheck=False, wraparound=False
"""Binding of the matching core (planning/merging/core): columns in, numbers out; the GIL is released while matching."""

from libc.stdint cimport int64_t
from libcpp.vector cimport vector

import numpy as np


cdef extern from "match.hpp" namespace "stowplan::planning" nogil:
    cdef cppclass PlanRequests:
        vector[int64_t] least
        vector[int64_t] most
        vector[int64_t] kind

    cdef cppclass StepRequests:
        vector[int64_t] size
        vector[int64_t] kind
        vector[int64_t] vote

    cdef cppclass Band:
        vector[int64_t] first
        vector[int64_t] last

    vector[int64_t] c_match "stowplan::planning::match"(
        const PlanRequests&, const StepRequests&, const Band&) except +


cdef void _copy(vector[int64_t]& to, const int64_t[::1] column):
    cdef Py_ssize_t i
    to.resize(column.shape[0])
    for i in range(column.shape[0]):
        to[i] = column[i]


def match(least, most, kind, size, step_kind, vote, first, last):
    n, m = len(kind), len(size)
    if not (len(least) == len(most) == n and len(step_kind) == len(vote) == m and len(first) == len(last) == n + 1):
        raise ValueError("the columns disagree in length")
    shrinks = (np.diff(first) < 0).any() or (np.diff(last) < 0).any()
    if first[0] != 0 or last[n] != m or shrinks or (first[1:] > last[:n]).any():
        raise ValueError("this is no band from one corner to the other")
    cdef PlanRequests plan
    cdef StepRequests step
    cdef Band band
    cdef vector[int64_t] number
    _copy(plan.least, least)
    _copy(plan.most, most)
    _copy(plan.kind, kind)
    _copy(step.size, size)
    _copy(step.kind, step_kind)
    _copy(step.vote, vote)
    _copy(band.first, first)
    _copy(band.last, last)
    with nogil:
        number = c_match(plan, step, band)
    return np.asarray(<int64_t[:m]>number.data()).copy() if m else np.empty(0, dtype=np.int64)
