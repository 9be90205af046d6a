# What every binding of a solver needs that asks several times a second, on the caller's thread, whether to go on.

from cpython.exc cimport PyErr_CheckSignals
from libcpp cimport bool as cbool


cdef class Polled:
    """Carries a Python function, and Ctrl-C, through C++."""

    cdef object function
    cdef object raised

    def __cinit__(self, function):
        self.function = function

    cdef cbool goes_on(self, arguments) noexcept:
        """Whether Ctrl-C, and the function where there are arguments for it, let the solver go on."""
        try:
            PyErr_CheckSignals()
            return self.function is None or arguments is None or self.function(*arguments) is not False
        except BaseException as error:
            self.raised = error
            return False

    cdef cbool interrupted(self) except *:
        """Whether Ctrl-C ended the solver; any other exception is raised again."""
        if self.raised is not None and not isinstance(self.raised, KeyboardInterrupt):
            raise self.raised
        return self.raised is not None
