# The recorder of whatever asks the C library's heap through a table of C functions, and the call sites of PyTorch's
# operators. Included by _recorder.pyx.

cdef extern from "watched_heap.hpp" namespace "stowplan::profiler" nogil:
    cdef cppclass WatchedHeap:
        @staticmethod
        const void* functions()
        @staticmethod
        cbool watch(ToldBlocks*)
        @staticmethod
        void leave()
        @staticmethod
        void leave_in_child()


cdef extern from "operator_sites.hpp" namespace "stowplan::profiler" nogil:
    cdef cppclass OperatorSites:
        @staticmethod
        void begins(int32_t)
        @staticmethod
        void ends()
        @staticmethod
        cbool of_this_thread(int32_t*)
        @staticmethod
        int32_t of_the_only_one()
        @staticmethod
        void forget_others()


cdef extern from "Python.h" nogil:
    PyThreadState* PyGILState_GetThisThreadState()


# The Listener of torch_operators.cpp.
cdef struct OperatorListener:
    void (*begins)(const char* node, const char* name) noexcept nogil
    void (*ends)() noexcept nogil


cdef CallSites _operators = None  # what numbers the sites of operators; read and set with the GIL


cdef int32_t _site_of_operator(const char* node, const char* name) noexcept:
    sites = _operators
    if sites is None:
        return -1
    cdef int collecting = PyGC_Disable()
    try:
        text = name.decode("utf-8", "replace")
        if node != NULL:
            text = f"{node.decode('utf-8', 'replace')} > {text}"
        return sites.here(sites.number_of_asker_named(text))
    except BaseException as error:
        forget(error)
        return -1
    finally:
        if collecting:
            PyGC_Enable()


cdef void _operator_begins(const char* node, const char* name) noexcept nogil:
    # A thread that Python does not know is not made known to it, since a thread that waits for this one may have the
    # GIL. It computes for another one's operator, and what it runs is part of that.
    if PyGILState_GetThisThreadState() == NULL:
        return
    cdef int32_t site
    with gil:
        site = _site_of_operator(node, name)
    OperatorSites.begins(site)


cdef void _operator_ends() noexcept nogil:
    OperatorSites.ends()


cdef int32_t _which_operator_asks(void* sites) noexcept nogil:
    cdef int32_t site = -1
    if OperatorSites.of_this_thread(&site):
        return site
    if PyGILState_Check():
        with gil:
            return _who_asks(sites)
    return OperatorSites.of_the_only_one()


cdef OperatorListener _listener
_listener.begins = _operator_begins
_listener.ends = _operator_ends


def operator_listener() -> int:
    """Return the address of what torch_operators.cpp is to call: it notes the site with which an operator begins."""
    return <uintptr_t>&_listener


def note_operators(CallSites sites or None):
    """Number the sites of operators that begin from now on; None: do not."""
    global _operators
    _operators = sites


def watched_functions() -> int:
    """Return the address of the C functions whose callers a `HeapRecorder` watches."""
    return <uintptr_t>WatchedHeap.functions()


def forget_watcher():
    """End the watch in a forked child."""
    WatchedHeap.leave_in_child()
    OperatorSites.forget_others()


cdef class HeapRecorder(StepWatch):
    """Sees what all threads ask `watched_functions` for while it watches; a step is one of all threads.

    See profiler/core/watched_heap.hpp.
    """

    cdef ToldBlocks* blocks
    cdef cbool watches

    def __cinit__(self, size_t small=0, CallSites sites=None):
        self.blocks = new ToldBlocks(small, True)
        self.service, self.lock = &self.blocks.service(), &self.blocks.lock()
        self.sites = sites
        if sites is not None:
            self.service.set_who_asks(_which_operator_asks, <void*>sites)

    def __dealloc__(self):
        self.leave()
        del self.blocks

    cdef uintptr_t thread(self) noexcept:
        return self.blocks.thread()

    def watch(self) -> bool:
        """Begin to watch; False if another recorder does."""
        self.watches = WatchedHeap.watch(self.blocks)
        return self.watches

    #: def leave(self) -> None: ...
    cpdef void leave(self) noexcept:
        """Watch no more."""
        if self.watches:
            with nogil:  # the watcher that is being told may wait for the GIL
                WatchedHeap.leave()
        self.watches = False
