# What every binding of a solver for schedules needs: the solvers' view of a step graph.

from libc.stdint cimport int64_t, uint8_t

import numpy as np

include "../packing/_column.pxi"


cdef extern from "scheduling/core/simulator/simulator.hpp" namespace "stowplan::scheduling" nogil:
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


cdef const uint8_t* flags(const uint8_t[::1] column) noexcept:
    return &column[0] if column.shape[0] else NULL


cdef class Columns:
    """Keeps a step graph's arrays alive while C++ looks at them."""

    cdef Graph view
    cdef object graph
    cdef object resident
    cdef object kept

    def __cinit__(self, object graph):
        cdef const double[::1] seconds = graph.seconds
        self.graph = graph
        self.resident = graph.resident.view(np.uint8)
        self.kept = graph.kept.view(np.uint8)
        self.view.n = len(graph)
        self.view.m = graph.values
        self.view.reads.first, self.view.reads.index = address(graph.reads.first), address(graph.reads.index)
        self.view.writes.first, self.view.writes.index = address(graph.writes.first), address(graph.writes.index)
        self.view.phase = address(graph.phase)
        self.view.workspace = address(graph.workspace)
        self.view.seconds = &seconds[0] if seconds.shape[0] else NULL
        self.view.size = address(graph.size)
        self.view.storage = address(graph.storage)
        self.view.held = address(graph.held)
        self.view.packed = address(graph.packed)
        self.view.resident = flags(self.resident)
        self.view.kept = flags(self.kept)
