# What a device's pool needs of Python: leases, the program's streams and its own allocator. Included by _core.pyx.

cdef int OUT_OF_MEMORY = 2  # CUDA's and HIP's number
cdef int PROGRAMS_ERROR = -1  # the program's allocator has raised
cdef int64_t PER_THREAD = 2  # CUDA's handle of the default stream that each thread has for itself
cdef const char* STREAM_SIGNATURE = "intptr_t (void)"
cdef const char* DEVICE_SIGNATURE = "int (int __pyx_skip_dispatch)"

ctypedef intptr_t (*stream_function)() except? -1
ctypedef int (*device_function)(int) except? -1


cdef extern from *:
    # As stow_is_finalizing(), which has gone where the last of the blocks goes.
    """
    #if PY_VERSION_HEX >= 0x030D0000
    #define stow_is_finalizing Py_IsFinalizing
    #else
    #define stow_is_finalizing _Py_IsFinalizing
    #endif
    #include <unistd.h>
    // See core/device/apart.hpp.
    static void* stow_let_go(void) {
      return PyGILState_Check() && !stow_is_finalizing() ? PyEval_SaveThread() : NULL;
    }
    static void stow_take_back(void* state) {
      while (stow_is_finalizing()) pause();  // a thread that the interpreter's end leaves behind ends with the process
      PyEval_RestoreThread((PyThreadState*)state);
    }
    """
    int stow_is_finalizing()
    Py_ssize_t PY_SSIZE_T_MAX
    void* stow_let_go() noexcept
    void stow_take_back(void*) noexcept
    ctypedef struct PyThreadState:
        pass
    PyThreadState* PyThreadState_Get()
    uint64_t PyThreadState_GetID(PyThreadState*)


cdef extern from "apart.hpp" namespace "stowplan::allocator":
    void* (*let_go "stowplan::allocator::Apart::let_go")()
    void (*take_back "stowplan::allocator::Apart::take_back")(void*)

let_go, take_back = stow_let_go, stow_take_back


@cython.final
@cython.freelist(1024)
@cython.no_gc_clear  # its pool must still be there when it dies in a cycle
cdef class Lease:
    """The owner of a block's memory as CuPy sees it: the block is free when its lease dies."""

    cdef readonly DevicePool pool  # None: an empty block
    cdef Served served
    cdef Uses* uses  # NULL: none
    cdef readonly object memory  # of the program's allocator, None for any other  #: Any
    cdef public object event  # what memory hooks are to be told of its end; None for nothing  #: Any
    cdef list used_on  # these streams, which are kept; None for none

    def __dealloc__(self):
        if self.pool is None or stow_is_finalizing():
            return
        try:
            self.memory = None
            if not self.pool.pools.pools.is_abandoned():
                self.pool.pool.end(self.served, self.uses)
            del self.uses
            if self.event is not None:
                self.pool.tell_freed(self.event)
        except BaseException as error:
            forget(error)


class ForeignStream(ref):
    """A stream of another library's, by its handle, as long as the program has CuPy's object for it."""

    __slots__ = ("handle",)


@cython.final
@cython.no_gc_clear  # the core asks it when it dies in a cycle
cdef class Keeper:
    """What the core of a pool has of Python's; it stays as long as the core does, which may be longer than the pool.

    A stream that the pool has served is kept, since its work may have to be waited for, until the program has dropped
    it. A foreign stream cannot be kept: its handle is not used any more once the program has dropped CuPy's object.
    """

    cdef CudaMemory* core  # NULL: it has gone
    cdef dict streams  # by handle; a `ForeignStream` stands for one of another library's
    cdef Py_ssize_t many  # streams, and those leave that the program has dropped; before, those of them that are idle
    cdef object allocate, sampling  # the program's: of all memory; of that of steps without a plan; None
    cdef object owner  # of the program's allocator: what trims it
    cdef object memory_pointer, stream_class  # CuPy's
    cdef dict memories, errors  # by number; by thread
    cdef uint64_t last
    cdef int64_t last_stream  # that was met

    def __cinit__(self):
        self.last_stream = -1
        self.streams, self.memories, self.errors = {}, {}, {}
        self.many = 4

    cdef error(self):
        """Return what the program's allocator has raised in this thread's request; None: nothing."""
        return self.errors.pop(PyThreadState_GetID(PyThreadState_Get()), None)

    cdef keep(self, stream):
        """Note that a stream uses the pool's memory."""
        cdef int64_t handle = stream.ptr
        if handle not in self.streams or len(self.streams) >= self.many:
            self.drop_unused()
        if isinstance(stream, self.stream_class) and getattr(stream, "_foreign_stream_ref", None) is None:
            self.streams[handle] = stream
            return
        reference = ForeignStream(stream, self.lost)
        reference.handle = handle
        self.streams[handle] = reference

    def lost(self, reference: Any):
        """Note that a foreign stream is not there any more."""
        if self.streams.get(reference.handle) is reference:
            del self.streams[reference.handle]
            self.last_stream = -1
            if self.core != NULL:
                self.core.lose(reference.handle)

    cdef bint is_dropped(self, int64_t handle):
        """Whether a stream is kept that nothing else has any more."""
        cdef PyObject* stream = PyDict_GetItem(self.streams, handle)
        return stream != NULL and not isinstance(<object>stream, ref) and Py_REFCNT(stream) == 1

    cdef drop_unused(self):
        cdef PyObject* stream
        cdef Py_ssize_t many = self.many
        cdef bint if_idle = len(self.streams) < many
        if many == PY_SSIZE_T_MAX:
            return
        self.many = PY_SSIZE_T_MAX  # no other thread does the same meanwhile
        for handle in list(self.streams):
            stream = PyDict_GetItem(self.streams, handle)
            if self.is_dropped(handle) and self.core.leave(handle, if_idle):
                if PyDict_GetItem(self.streams, handle) == stream:
                    del self.streams[handle]
        self.last_stream = -1
        self.many = many if if_idle else max(4, 2 * len(self.streams))


cdef int _take(void* self, void* client, int64_t size, uintptr_t* address, uint64_t* memory) noexcept with gil:
    cdef Keeper keeper = <Keeper>self
    allocate = keeper.sampling if keeper.sampling is not None and client != NULL else keeper.allocate
    try:
        taken = allocate(size)
        if not isinstance(taken, keeper.memory_pointer):
            raise PoolError(f"upstream returned {taken!r}; expected a cupy.cuda.MemoryPointer")
        address[0] = taken.ptr
        keeper.last += 1
        memory[0] = keeper.last
        keeper.memories[keeper.last] = taken
        keeper.error()
    except BaseException as error:
        keeper.errors[PyThreadState_GetID(PyThreadState_Get())] = error
        is_full = isinstance(error, MemoryError) or getattr(error, "status", None) == OUT_OF_MEMORY
        return OUT_OF_MEMORY if is_full else PROGRAMS_ERROR
    if client != NULL:
        (<Lease>client).memory = taken
    return 0


cdef void _give(void* self, uint64_t memory) noexcept with gil:
    cdef PyObject* type
    cdef PyObject* value
    cdef PyObject* traceback
    PyErr_Fetch(&type, &value, &traceback)  # of the caller, which hears that something failed
    (<Keeper>self).memories.pop(memory, None)
    PyErr_Restore(type, value, traceback)


cdef void _trim(void* self) noexcept with gil:
    try:
        (<Keeper>self).owner.trim()
    except BaseException as error:
        forget(error)


cdef cbool _collect(void* self) noexcept with gil:
    try:
        _gc.collect()  # as CuPy's pool does: cycles may hold blocks
    except BaseException as error:
        forget(error)
    return True


cdef cbool _has_dropped(void* self, int64_t handle) noexcept with gil:
    cdef Keeper keeper = <Keeper>self
    cdef PyObject* stream = PyDict_GetItem(keeper.streams, handle)
    if not keeper.is_dropped(handle):
        return False
    keeper.core.lose(handle)
    if PyDict_GetItem(keeper.streams, handle) == stream:
        del keeper.streams[handle]
    keeper.last_stream = -1
    return True
