# What every binding of a solver needs that asks several times a second whether to go on.

from cpython.exc cimport PyErr_CheckSignals
from libcpp cimport bool as cbool


cdef class Polled:
    """Carries a Python function, and Ctrl-C, through C++; the latter is heard on the main thread alone."""

    cdef object function
    cdef object raised
    cdef cbool stopped

    def __init__(self, object function):
        self.function = function

    cdef cbool goes_on(self, arguments) noexcept:
        """Whether Ctrl-C, and the function where there are arguments for it, let the solver go on."""
        if self.stopped:
            return False
        try:
            PyErr_CheckSignals()
            self.stopped = not (self.function is None or arguments is None or self.function(*arguments) is not False)
        except BaseException as error:
            self.raised = error
            self.stopped = True
        return not self.stopped

    cdef cbool interrupted(self) except *:
        """Whether Ctrl-C ended the solver; any other exception is raised again."""
        if self.raised is not None and not isinstance(self.raised, KeyboardInterrupt):
            raise self.raised
        return self.raised is not None
