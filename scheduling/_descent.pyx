# distutils: language = c++
# cython: boundscheck=False, wraparound=False
"""Binding of `descend`: greedy descent and local search. The GIL is released while solving."""

from libc.stdint cimport int32_t
from libcpp.vector cimport vector

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


def descend(graph, order, way, ways, budget, rates, *, drops=None, groups=(), before=(), after=(), movable=(), effort=0,
            seed=0, coarse=False, time_limit=None, progress=None):
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
