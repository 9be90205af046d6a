# distutils: language = c++
"""Binding of the passive recorder: NumPy's memory handler that passes every request on, CuPy's memory hook, a heap."""

from cpython.pystate cimport PyThreadState
from cpython.ref cimport Py_DECREF, Py_INCREF, PyObject
from cython.operator cimport dereference

from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t, uintptr_t
from libc.string cimport memcpy
from libcpp cimport bool as cbool
from libcpp.unordered_map cimport unordered_map
from libcpp.vector cimport vector

import signal
from _signal import getsignal
from functools import wraps
from threading import get_ident, main_thread

import numpy as np

cimport numpy as cnp

from ..common.errors import StowplanError
from .events import EVENT_DTYPE

#: from collections.abc import Callable
#: from types import CodeType
#: from typing import Any, Literal, ParamSpec, TypeVar
#:
#: import numpy as np
#: import numpy.typing as npt
#:
#: _P = ParamSpec("_P")
#: _R = TypeVar("_R")
#: _Recorded = tuple[npt.NDArray[np.void], bool, npt.NDArray[np.int32], npt.NDArray[np.int64], int]

cnp.import_array()


ctypedef int32_t (*who_asks_function)(void*) noexcept


cdef extern from "passive_service.hpp" namespace "stowplan::profiler" nogil:
    cdef cppclass Event "stowplan::Event":
        pass

    cdef cppclass RecordedStep:
        vector[Event] log
        vector[int32_t] sites
        cbool complete
        uint64_t start
        vector[int64_t] alive
        uint64_t signature

    cdef struct ProgramCounts:
        uint64_t requests
        int64_t bytes
        int64_t peak
        uint64_t other_requests
        int64_t other_bytes
        uint64_t steps
        uint64_t step_requests
        int64_t step_bytes
        uint64_t repeats

    cdef struct Holding "stowplan::profiler::PeakHolders::Holding":
        int64_t bytes
        uint64_t blocks

    cdef struct Asked:
        uint64_t requests
        int64_t bytes

    cdef cppclass PassiveService:
        void set_who_asks(who_asks_function, void*)
        cbool begin_step(SpinLock&, uintptr_t) except +
        RecordedStep end_step(SpinLock&) except +
        void log_all(SpinLock&, uintptr_t) except +
        size_t segments(SpinLock&)
        RecordedStep segment(SpinLock&, size_t) except +
        vector[Asked] asked(SpinLock&) except +
        ProgramCounts program(SpinLock&, uint64_t)
        vector[Holding] at_peak(SpinLock&) except +

    cdef cppclass HostMemory "stowplan::HostMemory<stowplan::profiler::PassiveService>":
        SpinLock& lock()
        PassiveService& service()

    cdef cppclass SpinLock "stowplan::SpinLock":
        pass

    uintptr_t current_thread "stowplan::current_thread" ()


cdef extern from "told_blocks.hpp" namespace "stowplan::profiler" nogil:
    cdef cppclass ToldBlocks:
        ToldBlocks(size_t, cbool) except +
        void allocated(uintptr_t, int64_t, int64_t) except +
        void freed(uintptr_t)
        uintptr_t thread()
        SpinLock& lock()
        PassiveService& service()


cdef extern from "profiler/call_sites.hpp" namespace "stowplan::profiler":
    PyObject* innermost_frame()
    PyObject* calling_frame(PyObject*)
    PyObject* code_of(PyObject*)
    int place_in(PyObject*)
    int line_of(PyObject*)


cdef extern from "Python.h":
    int PyGILState_Check() nogil
    int PyGC_Disable()
    int PyGC_Enable()


cdef extern from "common/numpy_capsule.hpp" namespace "stowplan":
    object make_handler_capsule "stowplan::make_handler_capsule<stowplan::profiler::PassiveService>" (
        const char* name, object upstream, size_t small)
    HostMemory* memory_of "stowplan::memory_of<stowplan::profiler::PassiveService>" (object capsule)


cdef extern from "numpy/arrayobject.h":
    object PyDataMem_SetHandler(object handler)
    object PyDataMem_GetHandler()


def current_handler() -> Any:
    """Return the NumPy memory handler (a capsule) of this context."""
    return PyDataMem_GetHandler()


def set_handler(handler: Any) -> Any:
    """Make a capsule the NumPy memory handler of this context; return the former one."""
    return PyDataMem_SetHandler(handler)


include "../common/_signals.pxi"
include "_unbroken.pxi"
include "_call_sites.pxi"


cdef int32_t _who_asks(void* sites) noexcept:
    # Called inside NumPy's C code: it must not collect garbage, nor leave an error set.
    if not PyGILState_Check():
        return -1
    cdef CallSites asked = <CallSites>sites  # kept: while it names a new stack, other threads may drop the recorder
    cdef int collecting = PyGC_Disable()
    try:
        return asked.here(asked.asking)
    except BaseException as error:
        forget(error)
        return -1
    finally:
        if collecting:
            PyGC_Enable()


cdef class StepWatch:
    """Records steps, marked or found, of the requests that a subclass sees."""

    cdef PassiveService* service
    cdef SpinLock* lock
    cdef CallSites sites

    cdef void ask_for(self, CallSites sites):
        self.sites = sites
        if sites is not None:
            self.service.set_who_asks(_who_asks, <void*>sites)

    cdef uintptr_t thread(self) noexcept:
        """Return whose steps the caller's requests lie in."""
        return current_thread()

    def begin_step(self) -> bool:
        """Start a step in this thread; False if one is running."""
        return self.service.begin_step(self.lock[0], self.thread())

    def end_step(self) -> _Recorded:
        """Return (log, complete, sites, alive, signature)."""
        return _recorded(self.service.end_step(self.lock[0]))

    def log_all(self):
        """Log this thread's requests, from now until the first begin_step."""
        self.service.log_all(self.lock[0], self.thread())

    def segments(self) -> list[tuple[_Recorded, int]]:
        """Return the segments of the log that are kept: of each, what end_step returns, and the requests before it."""
        cdef RecordedStep segment
        segments = []
        while len(segments) < self.service.segments(self.lock[0]):  # an array may be asked for under the recorder
            segment = self.service.segment(self.lock[0], len(segments))
            segments.append((_recorded(segment), segment.start))
        return segments

    def asked(self) -> npt.NDArray[np.int64]:
        """Return requests and bytes that each call site has asked for in the log, int64 (n, 2); -1 is the first."""
        cdef vector[Asked] asked = self.service.asked(self.lock[0])
        return np.array([(row.requests, row.bytes) for row in asked], dtype=np.int64).reshape(-1, 2)

    def program(self, uint64_t signature) -> dict[str, int]:
        """Return the counts of the program so far, `repeats` those of the step with this signature, as a dict."""
        return self.service.program(self.lock[0], signature)

    def at_peak(self) -> list[tuple[str | None, int, int]]:
        """Return (call site or None, blocks, bytes) of the program's fullest moment, the most bytes first."""
        cdef vector[Holding] held = self.service.at_peak(self.lock[0])
        names = [None, *([None] * (held.size() - 1) if self.sites is None else self.sites.sites)]
        found = {}
        for site in range(held.size()):
            if held[site].blocks:
                blocks, size = found.get(names[site], (0, 0))
                found[names[site]] = blocks + held[site].blocks, size + held[site].bytes
        return sorted(((name, *held) for name, held in found.items()), key=lambda holding: -holding[2])


cdef class HostRecorder(StepWatch):
    """Sees NumPy's requests. The capsule owns the recorder; arrays hold the capsule: either may be dropped first."""

    cdef readonly object handler  #: Any

    def __init__(self, upstream: Any, size_t small=0, CallSites sites=None):
        self.handler = make_handler_capsule(b"stowplan_recorder", upstream, small)
        cdef HostMemory* memory = memory_of(self.handler)
        self.service, self.lock = &memory.service(), &memory.lock()
        self.ask_for(sites)

    def __dealloc__(self):
        if self.service != NULL:
            self.service.set_who_asks(NULL, NULL)


cdef class ToldRecorder(StepWatch):
    """Sees the requests that its caller reports, which watches an allocator; see profiler/core/told_blocks.hpp."""

    cdef ToldBlocks* blocks

    def __cinit__(self, size_t small=0, CallSites sites=None):
        self.blocks = new ToldBlocks(small, False)
        self.service, self.lock = &self.blocks.service(), &self.blocks.lock()
        self.ask_for(sites)

    def __dealloc__(self):
        del self.blocks

    def allocated(self, uintptr_t address, int64_t size, int64_t stream):
        """Note a request in this thread; address 0: there is no block."""
        self.blocks.allocated(address, size, stream)

    def free_postprocess(self, *, uintptr_t mem_ptr, **_: object):
        """Note the end of a block: the method of `cupy.cuda.MemoryHook`, which CuPy calls in finalizers.

        It is compiled because a Ctrl-C in the middle of Python code in a finalizer would be lost.
        """
        self.blocks.freed(mem_ptr)


include "_heap_recorder.pxi"


cdef tuple _recorded(const RecordedStep& step):
    log = _array(step.log.data(), step.log.size(), EVENT_DTYPE)
    sites = _array(step.sites.data(), step.sites.size(), np.int32)
    alive = _array(step.alive.data(), step.alive.size(), np.int64)
    return log, step.complete, sites, alive, step.signature


cdef object _array(const void* data, size_t count, object dtype):
    array = np.empty(count, dtype=dtype)
    if count:
        memcpy(cnp.PyArray_DATA(array), data, array.nbytes)
    return array
