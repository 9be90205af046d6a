# What every binding of an anytime solver needs: what the caller may ask, and a function that hears of improvements.

from libc.math cimport INFINITY
from libc.stdint cimport int64_t, uint64_t

include "_polled.pxi"


cdef extern from "common/core/control.hpp" namespace "stowplan" nogil:
    cdef cppclass Control:
        double time_limit
        int64_t effort
        uint64_t seed
        int threads
        int64_t target
        cbool (*goes_on)(void*) noexcept
        void (*progress)(void*, int64_t, double) noexcept
        void* context


cdef class Listener(Polled):
    """Hears of every improvement with its peak and seconds."""

    cdef Control control

    def __init__(self, object function, object time_limit, object effort=None, object seed=0):
        super().__init__(function)
        self.control.time_limit = INFINITY if time_limit is None else time_limit
        self.control.effort = effort or 0
        self.control.seed = <uint64_t>(seed & 0xFFFFFFFFFFFFFFFF)
        self.control.goes_on = ask
        self.control.context = <void*>self
        if function is not None:
            self.control.progress = tell


cdef cbool ask(void* context) noexcept with gil:
    return (<Listener>context).goes_on(None)


cdef void tell(void* context, int64_t peak, double seconds) noexcept with gil:
    (<Listener>context).goes_on((peak, seconds))
