# distutils: language = c++
"""Binding of the passive recorder: a NumPy memory handler that watches and passes everything on."""

from libc.stdint cimport int64_t, uint8_t, uint32_t
from libc.string cimport memcpy
from libcpp cimport bool as cbool
from libcpp.vector cimport vector

import numpy as np

cimport numpy as cnp

from .steps import EVENT_DTYPE

cnp.import_array()


cdef extern from "passive_service.hpp" namespace "stowplan::profiler" nogil:
    cdef cppclass Event:
        pass

    cdef cppclass RecordedStep:
        vector[Event] log
        cbool complete

    cdef cppclass HostMemory "stowplan::profiler::HostMemory<stowplan::profiler::PassiveService>":
        pass

    cbool begin_recorded_step(HostMemory&) except +
    RecordedStep end_recorded_step(HostMemory&) except +


cdef extern from "step_finder.hpp" namespace "stowplan::profiler" nogil:
    cdef cppclass CStepFinder "stowplan::profiler::StepFinder":
        cppclass Cue:
            pass
        cppclass Hint:
            pass
        CStepFinder() except +
        Cue observe(int64_t, int64_t, int64_t, Hint) except +
        uint32_t first()
        uint32_t second()


cdef extern from "profiler/numpy_capsule.hpp" namespace "stowplan::profiler":
    object make_handler_capsule "stowplan::profiler::make_handler_capsule<stowplan::profiler::PassiveService>" (
        const char* name, object upstream, size_t small)
    HostMemory* memory_of "stowplan::profiler::memory_of<stowplan::profiler::PassiveService>" (object capsule)


cdef extern from "numpy/arrayobject.h":
    object PyDataMem_SetHandler(object handler)
    object PyDataMem_GetHandler()


def current_handler():
    """Return the NumPy memory handler (a capsule) of this context."""
    return PyDataMem_GetHandler()


def set_handler(handler):
    """Make a capsule the NumPy memory handler of this context; return the former one."""
    return PyDataMem_SetHandler(handler)


cdef class HostRecorder:
    """The capsule owns the recorder: arrays hold the capsule, so either may be dropped first."""

    cdef readonly object handler
    cdef HostMemory* memory

    def __init__(self, upstream, size_t small=0):
        self.handler = make_handler_capsule(b"stowplan_recorder", upstream, small)
        self.memory = memory_of(self.handler)

    def begin_step(self):
        """Start a step in this thread; False where one is running."""
        return begin_recorded_step(self.memory[0])

    def end_step(self):
        """Return (log, complete)."""
        cdef RecordedStep step = end_recorded_step(self.memory[0])
        log = np.empty(step.log.size(), dtype=EVENT_DTYPE)
        if step.log.size():
            memcpy(cnp.PyArray_DATA(log), step.log.data(), step.log.size() * EVENT_DTYPE.itemsize)
        return log, step.complete


CUES = (None, "begins", "found", "lost")


cdef class StepFinder:
    """Finds the step in a sequence of requests; see profiler/core/step_finder.hpp."""

    cdef CStepFinder finder

    def observe(self, int64_t size, int64_t stream, int64_t live, begins=None):
        """Take a request in, with the bytes alive before it; return None, "begins", "found" or "lost".

        `begins`: whether a step is known to begin with it, or None.
        """
        cdef uint8_t hint = 0 if begins is None else 2 if begins else 1
        return CUES[<uint8_t>self.finder.observe(size, stream, live, <CStepFinder.Hint>hint)]

    @property
    def periods(self):
        """After "found": the numbers of the requests with which the two whole steps before it began."""
        return self.finder.first(), self.finder.second()
