# distutils: language = c++
# cython: boundscheck=False, wraparound=False
"""Binding of `descend`: greedy descent and local search. The GIL is released while solving."""

from libc.math cimport INFINITY
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libcpp.vector cimport vector

import numpy as np


cdef extern from "<atomic>" namespace "std" nogil:
    cdef cppclass Flag "std::atomic<bool>":
        void store(bint)
        bint load()

cdef extern from "descend.hpp" namespace "stowplan::scheduling" nogil:
    cdef struct Rows:
        const int64_t* first
        const int64_t* index

    cdef struct Graph:
        int64_t n
        int64_t m
        Rows reads
        Rows writes
        const int64_t* phase
        const int64_t* workspace
        const double* seconds
        const int64_t* size
        const int64_t* storage
        const int64_t* held
        const int64_t* packed
        const uint8_t* resident
        const uint8_t* kept

    cdef struct Rates:
        double swap
        double pack

    cdef cppclass Places:
        vector[vector[int32_t]] before
        vector[vector[int32_t]] after
        vector[int32_t] movable

    cdef cppclass Control:
        double time_limit
        int64_t effort
        uint64_t seed
        bint coarse
        const Flag* cancel
        void (*progress)(void*, int64_t, double) noexcept
        void* context

    cdef cppclass Task:
        const uint8_t* ways
        vector[vector[int32_t]] groups
        Places places
        int64_t budget
        double seconds

    int64_t c_descend "stowplan::scheduling::descend"(
        const Graph&, const Rates&, const Task&, const Control&, int64_t*, int64_t*) except +


cdef class Cancel:
    cdef Flag flag

    def set(self):
        self.flag.store(True)

    def is_set(self):
        return self.flag.load()


cdef class Listener:
    """Carries a Python function through C++; what it raises stops the solver and is raised again at the end."""

    cdef object function
    cdef object raised
    cdef Cancel cancel

    def __cinit__(self, function, Cancel cancel):
        self.function = function
        self.cancel = cancel


cdef void tell(void* context, int64_t peak, double seconds) noexcept with gil:
    cdef Listener listener = <Listener>context
    if listener.raised is not None:
        return
    try:
        listener.function(peak, seconds)
    except BaseException as error:
        listener.raised = error
        listener.cancel.flag.store(True)


cdef const int64_t* integers(const int64_t[::1] column) noexcept:
    return &column[0] if column.shape[0] else NULL


cdef const uint8_t* flags(const uint8_t[::1] column) noexcept:
    return &column[0] if column.shape[0] else NULL


cdef vector[vector[int32_t]] rows_of(rows):
    cdef vector[vector[int32_t]] found
    for row in rows:
        found.push_back(row)
    return found


def descend(graph, order, way, ways, budget, rates, *, groups=(), before=(), after=(), movable=(), effort=0, seed=0,
            coarse=False, time_limit=None, Cancel cancel=None, progress=None):
    cdef Graph view
    cdef Rates speed
    cdef Task task
    cdef Control control
    cdef Listener listener = None
    cdef int64_t evaluations = 0
    cdef const double[::1] seconds = graph.seconds
    resident = np.ascontiguousarray(graph.resident).view(np.uint8)
    kept = np.ascontiguousarray(graph.kept).view(np.uint8)
    allowed = np.ascontiguousarray(ways, dtype=np.uint8)
    view.n, view.m = len(graph), graph.values
    view.reads.first, view.reads.index = integers(graph.reads.first), integers(graph.reads.index)
    view.writes.first, view.writes.index = integers(graph.writes.first), integers(graph.writes.index)
    view.phase, view.workspace = integers(graph.phase), integers(graph.workspace)
    view.seconds = &seconds[0] if seconds.shape[0] else NULL
    view.size, view.storage = integers(graph.size), integers(graph.storage)
    view.held, view.packed = integers(graph.held), integers(graph.packed)
    view.resident, view.kept = flags(resident), flags(kept)
    speed.swap, speed.pack = rates.swap, rates.pack
    task.ways = flags(allowed)
    task.groups = rows_of(groups)
    task.places.before, task.places.after = rows_of(before), rows_of(after)
    task.places.movable = movable
    task.budget = budget
    task.seconds = graph.seconds.sum()
    if cancel is None:
        cancel = Cancel()
    control.time_limit = INFINITY if time_limit is None else time_limit
    control.effort = effort
    control.seed = <uint64_t>(seed & 0xFFFFFFFFFFFFFFFF)
    control.coarse = coarse
    control.cancel = &cancel.flag
    if progress is not None:
        listener = Listener(progress, cancel)
        control.progress = tell
        control.context = <void*>listener
    found_order = np.array(order, dtype=np.int64)
    found_way = np.array(way, dtype=np.int64)
    cdef int64_t[::1] out_order = found_order
    cdef int64_t[::1] out_way = found_way
    if view.n and view.m:
        with nogil:
            evaluations = c_descend(view, speed, task, control, &out_order[0], &out_way[0])
    if listener is not None and listener.raised is not None:
        raise listener.raised
    return found_order, found_way[graph.storage], evaluations
