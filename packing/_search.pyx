# distutils: language = c++
# cython: boundscheck=False, wraparound=False
"""Binding of `window_repair`, `by_conflicts`, `search` and the two decoders below them; solving releases the GIL."""

from libc.stdint cimport int32_t
from libcpp.vector cimport vector

import numpy as np

include "_problem.pxi"
include "_anytime.pxi"


cdef extern from "packing/core/control.hpp" namespace "stowplan::packing" nogil:
    cdef cppclass Stopwatch:
        Stopwatch(const Control&)

cdef extern from "packing/core/instance.hpp" namespace "stowplan::packing" nogil:
    const int64_t kNoCeiling

    cdef struct Obstacle:
        int64_t start
        int64_t end
        int64_t lower
        int64_t upper

    cdef cppclass Instance:
        vector[int32_t] row

    Instance make_instance(const CProblem&, const vector[int32_t]&, const vector[Obstacle]&) except +

cdef extern from "packing/core/window_repair/skyline_refill.hpp" namespace "stowplan::packing" nogil:
    cdef cppclass SkylineRefill:
        SkylineRefill(const Instance&) except +
        int64_t run(const double*, int32_t, int64_t, int64_t*) except +

cdef extern from "packing/core/search/beam.hpp" namespace "stowplan::packing" nogil:
    cdef cppclass BeamOptions:
        int32_t width
        int32_t branch
        double foot
        int power

    cdef cppclass Beam:
        Beam(const Instance&) except +
        int64_t run(const BeamOptions&, const int32_t*, int64_t, const Stopwatch&, int64_t*) except +

cdef extern from "packing/core/window_repair/window_repair.hpp" nogil:
    int64_t c_window_repair "stowplan::packing::window_repair"(const CProblem&, const Control&, int64_t*) except +

cdef extern from "packing/core/by_conflicts/by_conflicts.hpp" nogil:
    int64_t c_by_conflicts "stowplan::packing::by_conflicts"(const CProblem&, const Control&, int64_t*) except +

cdef extern from "packing/core/search/search.hpp" nogil:
    int64_t c_search "stowplan::packing::search"(const CProblem&, const Control&, int64_t*) except +


ctypedef int64_t (*Anytime)(const CProblem&, const Control&, int64_t*) except + nogil


cdef solve(Anytime solver, problem, Listener listener):
    cdef Columns columns = Columns(problem)
    offsets = np.zeros(len(problem), dtype=np.int64)
    cdef int64_t[::1] out = offsets
    cdef int64_t peak = 0
    if len(problem):
        with nogil:
            peak = solver(columns.view, listener.control, &out[0])
    listener.raise_again()
    return None if peak == kNoCeiling else offsets


def window_repair(problem, *, time_limit=None, effort=0, seed=0, cancel=None, progress=None):
    return solve(c_window_repair, problem, Listener(time_limit, effort, seed, 1, cancel, progress))


def by_conflicts(problem, *, time_limit=None, effort=0, cancel=None, progress=None):
    return solve(c_by_conflicts, problem, Listener(time_limit, effort, 0, 1, cancel, progress))


def search(problem, *, time_limit=None, effort=0, seed=0, threads=1, cancel=None, progress=None):
    return solve(c_search, problem, Listener(time_limit, effort, seed, threads, cancel, progress))


cdef class Partial:
    """An Instance made from rows and rectangles, with ranks in its own order of blocks."""

    cdef Columns columns
    cdef Instance instance
    cdef vector[int32_t] rank

    def __cinit__(self, problem, Column order, const int64_t[:, ::1] rectangles):
        cdef vector[int32_t] free
        cdef vector[Obstacle] obstacles
        cdef Obstacle o
        self.columns = Columns(problem)
        for k in range(order.shape[0]):
            free.push_back(<int32_t>order[k])
        for k in range(rectangles.shape[0]):
            o.start, o.end, o.lower, o.upper = rectangles[k]
            obstacles.push_back(o)
        self.instance = make_instance(self.columns.view, free, obstacles)
        place = {row: k for k, row in enumerate(order)}
        for k in range(self.instance.row.size()):
            self.rank.push_back(place[self.instance.row[k]])

    cdef offsets(self, const vector[int64_t]& found):
        return {self.instance.row[k]: found[k] for k in range(self.instance.row.size())}


def refill(problem, order, worth, reach, obstacles, limit=None):
    cdef Partial partial = Partial(problem, order, obstacles)
    cdef vector[double] worths
    for k in range(partial.rank.size()):
        worths.push_back(worth[partial.rank[k]])
    cdef vector[int64_t] found = vector[int64_t](partial.instance.row.size() + 1)
    cdef SkylineRefill* decoder = new SkylineRefill(partial.instance)
    cdef int64_t most = kNoCeiling - 1 if limit is None else limit
    try:
        top = decoder.run(worths.data(), reach, most, found.data())
    finally:
        del decoder
    return None if top == kNoCeiling else partial.offsets(found)


def beam(problem, order, obstacles, *, width, branch, foot, power, limit=None):
    cdef Partial partial = Partial(problem, order, obstacles)
    cdef vector[int64_t] found = vector[int64_t](partial.instance.row.size() + 1)
    cdef Control control
    cdef BeamOptions options
    cdef int64_t most = kNoCeiling - 1 if limit is None else limit
    options.width, options.branch, options.foot, options.power = width, branch, foot, power
    cdef Stopwatch* watch = new Stopwatch(control)
    cdef Beam* decoder = new Beam(partial.instance)
    try:
        top = decoder.run(options, partial.rank.data(), most, watch[0], found.data())
    finally:
        del decoder
        del watch
    return None if top == kNoCeiling else partial.offsets(found)
