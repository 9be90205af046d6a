# What every binding of an anytime solver needs: what the caller may ask, and a function that hears of improvements.

from cpython.exc cimport PyErr_CheckSignals
from libc.math cimport INFINITY
from libc.stdint cimport int64_t, uint64_t
from libcpp cimport bool as cbool


cdef extern from "common/core/control.hpp" namespace "stowplan" nogil:
    cdef cppclass Control:
        double time_limit
        int64_t effort
        uint64_t seed
        int threads
        int64_t target
        cbool (*goes_on)(void*) noexcept
        void (*progress)(void*, int64_t, int64_t, double) noexcept
        void* context


cdef class Listener:
    """Carries a Python function, and Ctrl-C, through C++; the latter is heard on the main thread alone.

    The function hears of every improvement: with its peak, the lower bound known and, of a schedule, its extra seconds.
    """

    cdef Control control
    cdef object function
    cdef object raised
    cdef cbool stopped

    def __init__(self, object function, object time_limit, object effort=None, object seed=0):
        self.function = function
        self.control.time_limit = INFINITY if time_limit is None else time_limit
        self.control.effort = effort or 0
        self.control.seed = <uint64_t>(seed & 0xFFFFFFFFFFFFFFFF)
        self.control.goes_on = ask
        self.control.context = <void*>self
        if function is not None:
            self.control.progress = tell

    cdef cbool goes_on(self, arguments) noexcept:
        """Whether Ctrl-C, and the function where there are arguments for it, let the solver go on."""
        if self.stopped:
            return False
        try:
            PyErr_CheckSignals()
            self.stopped = arguments is not None and self.function(*arguments) is False
        except BaseException as error:
            self.raised = error
            self.stopped = True
        return not self.stopped

    cdef cbool interrupted(self) except *:
        """Whether Ctrl-C ended the solver; any other exception is raised again."""
        if self.raised is not None and not isinstance(self.raised, KeyboardInterrupt):
            raise self.raised
        return self.raised is not None


cdef cbool ask(void* context) noexcept with gil:
    return (<Listener>context).goes_on(None)


cdef void tell(void* context, int64_t peak, int64_t lower_bound, double seconds) noexcept with gil:
    (<Listener>context).goes_on((peak, lower_bound, seconds))
