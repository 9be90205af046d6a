# What every binding of an anytime solver needs: a flag that stops it, and a Python function that hears of improvements.

from libc.math cimport INFINITY
from libc.stdint cimport int64_t, uint64_t


cdef extern from "<atomic>" namespace "std" nogil:
    cdef cppclass Flag "std::atomic<bool>":
        void store(bint)
        bint load()

cdef extern from "packing/core/control.hpp" namespace "stowplan::packing" nogil:
    cdef cppclass Control:
        double time_limit
        int64_t effort
        uint64_t seed
        int threads
        const Flag* cancel
        void (*progress)(void*, int64_t, double) noexcept
        void* context


cdef class Cancel:
    cdef Flag flag

    def set(self):
        self.flag.store(True)

    def is_set(self):
        return self.flag.load()


cdef class Listener:
    """Carries a Python function through C++; what it raises stops the solver and is raised again at the end."""

    cdef Control control
    cdef object function
    cdef object raised
    cdef Cancel cancel

    def __cinit__(self, time_limit, effort, seed, threads, Cancel cancel, function):
        self.function = function
        self.cancel = Cancel() if cancel is None else cancel
        self.control.time_limit = INFINITY if time_limit is None else time_limit
        self.control.effort = effort
        self.control.seed = <uint64_t>(seed & 0xFFFFFFFFFFFFFFFF)
        self.control.threads = threads
        self.control.cancel = &self.cancel.flag
        if function is not None:
            self.control.progress = tell
            self.control.context = <void*>self

    cdef raise_again(self):
        if self.raised is not None:
            raise self.raised


cdef void tell(void* context, int64_t peak, double seconds) noexcept with gil:
    cdef Listener listener = <Listener>context
    if listener.raised is not None:
        return
    try:
        listener.function(peak, seconds)
    except BaseException as error:
        listener.raised = error
        listener.cancel.flag.store(True)
