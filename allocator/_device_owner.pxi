# What a device does for its pool, in Python's name: leases, guards, and the table of functions that the core calls.
# Included by _core.pyx.

cdef int OUT_OF_MEMORY = 2  # CUDA's and HIP's number
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

    cdef readonly DevicePool pool
    cdef uint32_t block  # or NO_BLOCK: there was no memory to note it
    cdef readonly object memory  # upstream's MemoryPointer, None for a block in the arena  #: Any
    cdef public object event  # what memory hooks are to be told of its end; None for nothing  #: Any
    cdef dict used_on  # streams other than its own, by handle, as `DeviceStreams` keeps them; None for none

    def __dealloc__(self):
        if self.pool is None:
            return
        try:
            if self.used_on is None:
                if self.block != NO_BLOCK:
                    self.pool.core.release(self.block)
            else:
                self.pool.hold(self.block, self.used_on.values(), self.memory)
            if self.event is not None:
                self.pool.tell_freed(self.event)
        except BaseException as error:
            forget(error)


@cython.final
@cython.no_gc_clear  # its streams must still be there when it dies in a cycle
cdef class Guard:
    """Memory that streams may still use: when it goes back, they are waited for, unless `idle`.

    If they cannot be waited for, as in a capture, it goes back later: see `give_what_waits`.
    """

    cdef object memory, streams
    cdef bint idle

    def __cinit__(self, object memory, object streams):
        self.memory, self.streams = memory, streams

    def __dealloc__(self):
        if not self.idle and self.streams is not None and not stow_is_finalizing():
            try:
                self.streams.synchronize()
            except BaseException as error:
                waiting.append((self.memory, self.streams))
                forget(error)


cdef uint64_t streams_changed = 0


def look_at_streams():
    """Have all pools look at the next request whether its stream is kept."""
    global streams_changed
    streams_changed += 1


@cython.final
cdef class Mappings:
    """Arenas of a pool that is gone."""

    cdef vector[VirtualArenaPtr] arenas


cdef list waiting = []  # (memory, streams) of guards


cdef give_what_waits():
    """Give back what could not go before; what still cannot waits on."""
    guarded = waiting.copy()
    waiting.clear()
    while guarded:
        Guard.__new__(Guard, *guarded.pop())


# What the core asks of its owner; see core/device/device.hpp.


cdef int _ask(void* owner, void* client, int64_t size, cbool sample, Answer* answer) except -1:
    cdef DevicePool pool = <DevicePool>owner
    allocator = pool.sampling if sample and client != NULL else pool.memory.malloc
    try:
        memory = allocator(size)
        if not isinstance(memory, pool.memory_pointer):
            raise PoolError(f"upstream returned {memory!r}; expected a cupy.cuda.MemoryPointer")
    except Exception as error:
        answer.out_of_memory = isinstance(error, MemoryError) or getattr(error, "status", None) == OUT_OF_MEMORY
        answer.error = pool.keep(error)
        return 0
    answer.address = memory.ptr
    if client != NULL:
        (<Lease>client).memory = memory
        if pool.streams is not None and pool.streams.captures_current():
            pool.captured.append(memory)
    else:
        answer.memory = pool.keep(Guard.__new__(Guard, memory, pool.streams))
    return 0


cdef int _trim(void* owner) except -1:
    (<DevicePool>owner).memory.trim()
    return 0


cdef int64_t _room(void* owner, cbool within_limit) except -1:
    cdef DevicePool pool = <DevicePool>owner
    return pool.memory.room(within_limit, pool.lanes.counters().peak_live_bytes)


cdef int _note_arenas(void* owner, int64_t size) except -1:
    (<DevicePool>owner).memory.note_arenas(size)
    return 0


cdef int _capturing(void* owner) except -1:
    cdef DevicePool pool = <DevicePool>owner
    return pool.streams is not None and <bint>pool.streams.capturing()


cdef int _synchronize(void* owner) except -1:
    cdef DevicePool pool = <DevicePool>owner
    if pool.streams is not None:
        pool.streams.synchronize()
    return 0


cdef int _record(void* owner, uint64_t stream, uint64_t* event) except -1:
    cdef DevicePool pool = <DevicePool>owner
    recorded = pool.streams.record(pool.kept[stream])
    if recorded is not None:
        event[0] = pool.keep(recorded)
    return 0


cdef int _done(void* owner, uint64_t event) except -1:
    cdef DevicePool pool = <DevicePool>owner
    return <bint>pool.streams.done(pool.kept[event])


cdef int _wait(void* owner, int64_t stream, uint64_t event) except -1:
    cdef DevicePool pool = <DevicePool>owner
    pool.streams.wait(stream, pool.kept[event])
    return 0


cdef void _unguard(void* owner, uint64_t memory) noexcept:
    (<Guard>(<DevicePool>owner).kept[memory]).idle = True


cdef void _drop(void* owner, uint64_t token) noexcept:
    cdef PyObject* type
    cdef PyObject* value
    cdef PyObject* traceback
    PyErr_Fetch(&type, &value, &traceback)  # of the caller, which hears that something failed
    (<DevicePool>owner).kept.pop(token, None)  # where all die in a cycle, it may be empty already
    PyErr_Restore(type, value, traceback)


cdef void _forget_error(void* owner) noexcept:
    try:
        _raise_pending()
    except BaseException as error:
        forget(error)
