# distutils: language = c++
# cython: boundscheck=False, wraparound=False
"""Binding of `large` and `search`, and of the two decoders below them; the GIL is released while solving."""

include "_columns.pxi"

from libc.math cimport INFINITY
from libc.stdint cimport int32_t, uint64_t
from libcpp.vector cimport vector

import numpy as np


cdef extern from "<atomic>" namespace "std" nogil:
    cdef cppclass Flag "std::atomic<bool>":
        void store(bint)
        bint load()

cdef extern from "search_control.hpp" namespace "stowplan::packing" nogil:
    cdef cppclass Control:
        double time_limit
        int64_t effort
        uint64_t seed
        int threads
        const Flag* cancel
        void (*progress)(void*, int64_t, double)
        void* context

    cdef cppclass Stopwatch:
        Stopwatch(const Control&)

cdef extern from "search_instance.hpp" namespace "stowplan::packing" nogil:
    const int64_t kNoCeiling

    cdef struct Obstacle:
        int64_t start
        int64_t end
        int64_t lower
        int64_t upper

    cdef cppclass Instance:
        vector[int32_t] row

    Instance make_instance(const CProblem&, const vector[int32_t]&, const vector[Obstacle]&) except +

cdef extern from "large_refill.hpp" namespace "stowplan::packing" nogil:
    cdef cppclass Refill:
        Refill(const Instance&) except +
        int64_t run(const double*, int32_t, int64_t, int64_t*) except +

cdef extern from "search_beam.hpp" namespace "stowplan::packing" nogil:
    cdef cppclass BeamOptions:
        int32_t width
        int32_t branch
        double foot
        int power

    cdef cppclass Beam:
        Beam(const Instance&) except +
        int64_t run(const BeamOptions&, const int32_t*, int64_t, const Stopwatch&, int64_t*) except +

cdef extern from "large.hpp" nogil:
    int64_t c_large "stowplan::packing::large"(const CProblem&, const Control&, int64_t*) except +

cdef extern from "search.hpp" nogil:
    int64_t c_search "stowplan::packing::search"(const CProblem&, const Control&, int64_t*) except +


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


ctypedef int64_t (*Anytime)(const CProblem&, const Control&, int64_t*) except + nogil


cdef solve(Anytime solver, problem, time_limit, effort, seed, threads, Cancel cancel, progress):
    cdef Columns columns = Columns(problem)
    cdef Control control
    cdef Listener listener = None
    if cancel is None:
        cancel = Cancel()
    control.time_limit = INFINITY if time_limit is None else time_limit
    control.effort = effort
    control.seed = <uint64_t>(seed & 0xFFFFFFFFFFFFFFFF)
    control.threads = threads
    control.cancel = &cancel.flag
    if progress is not None:
        listener = Listener(progress, cancel)
        control.progress = tell
        control.context = <void*>listener
    offsets = np.zeros(len(problem), dtype=np.int64)
    cdef int64_t[::1] out = offsets
    if len(problem):
        with nogil:
            solver(columns.view, control, &out[0])
    if listener is not None and listener.raised is not None:
        raise listener.raised
    return offsets


def large(problem, *, time_limit=None, effort=0, seed=0, cancel=None, progress=None):
    return solve(c_large, problem, time_limit, effort, seed, 1, cancel, progress)


def search(problem, *, time_limit=None, effort=0, seed=0, threads=1, cancel=None, progress=None):
    return solve(c_search, problem, time_limit, effort, seed, threads, cancel, progress)


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
    cdef Refill* decoder = new Refill(partial.instance)
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
