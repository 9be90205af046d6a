# The replay core as a CuPy allocator: leases, held blocks, the pool of a device, the pools of several. Included by
# _core.pyx.

cdef const char* STREAM_SIGNATURE = "intptr_t (void)"
cdef const char* DEVICE_SIGNATURE = "int (int __pyx_skip_dispatch)"

ctypedef intptr_t (*stream_function)() except? -1
ctypedef int (*device_function)(int) except? -1


cdef extern from *:
    ctypedef struct PyThreadState:
        pass
    PyThreadState* PyThreadState_Get()
    uint64_t PyThreadState_GetID(PyThreadState*)


@cython.final
@cython.freelist(1024)
@cython.no_gc_clear  # its pool must still be there when it dies in a cycle
cdef class Lease:
    """The owner of a block's memory as CuPy sees it: the block is free when its lease dies."""

    cdef readonly DevicePool pool
    cdef uint32_t block
    cdef readonly object memory  # upstream's MemoryPointer, None for a block in the arena
    cdef public object event  # what memory hooks are to be told of its end; None for nothing
    cdef list used_on  # streams other than its own; None for none

    def __dealloc__(self):
        if self.pool is not None:
            if self.used_on is None:
                self.pool.core.release(self.block)
            else:
                self.pool.hold(self.block, self.used_on, self.memory)
            if self.event is not None:
                self.pool.tell_freed(self.event)


@cython.final
@cython.no_gc_clear  # its streams must still be there when it dies in a cycle
cdef class Busy:
    """Upstream's memory that streams may still use: whenever it goes back, the device is waited for, unless `idle`."""

    cdef object memory, streams
    cdef bint idle

    def __cinit__(self, memory, streams):
        self.memory, self.streams = memory, streams

    def __dealloc__(self):
        if not self.idle and self.streams is not None and not sys.is_finalizing():
            try:
                self.streams.synchronize()
            except Exception:
                pass  # nothing runs on a device that cannot be waited for


@cython.final
cdef class Held:
    """A block that is free, but for other streams that may still use it."""

    cdef list streams  # the objects: a stream must not go before an event is recorded on it
    cdef list events  # recorded there after the free; None where that was not possible yet
    cdef Busy memory  # upstream's, None for a block in an arena

    def __cinit__(self, list streams, list events, Busy memory):
        self.streams, self.events, self.memory = streams, events, memory


@cython.final
cdef class DevicePool(Backend):
    """The replay core of one device as a CuPy allocator.

    Parameters
    ----------
    device
        Device number.
    upstream, sampling
        Allocators, ``f(size) -> MemoryPointer``: what serves unplanned requests, and those of steps without a plan.
    memory_pointer, unowned_memory
        CuPy's classes.
    streams
        The device's streams, as `DeviceStreams` presents them; or None: everything is on stream 0.
    hooks_of_thread
        ``f() -> dict``: the calling thread's memory hooks, for one thread always the same object.
    hooked
        ``f(pool, size, hooks)``: how to serve a request while memory hooks are watching.
    told
        ``f(event, hooks)``: how to tell memory hooks of a block's end.
    """

    cdef CDevicePool core
    cdef readonly int device
    cdef readonly object upstream
    cdef object device_number, sampling, memory_pointer, unowned_memory
    cdef object hooks_of_thread, hooked, told, streams, current_stream
    cdef public object failed  # f(error): a request of upstream's has failed; or None
    cdef stream_function stream_pointer
    cdef object hooks  # of the thread `hooks_thread`
    cdef uint64_t hooks_thread  # Python's number for a thread, which never comes again; 0 for none
    cdef dict arenas  # address -> Busy
    cdef dict held  # block -> Held

    def __cinit__(
        self,
        int device,
        upstream,
        sampling,
        memory_pointer,
        unowned_memory,
        streams,
        hooks_of_thread,
        hooked,
        told,
    ):
        self.device = self.device_number = device
        self.upstream, self.sampling = upstream, sampling
        self.memory_pointer, self.unowned_memory = memory_pointer, unowned_memory
        self.hooks_of_thread, self.hooked, self.told = hooks_of_thread, hooked, told
        self.streams = streams
        if streams is not None:
            self.current_stream = streams.current
        if PyCapsule_IsValid(self.current_stream, STREAM_SIGNATURE):
            self.stream_pointer = <stream_function>PyCapsule_GetPointer(self.current_stream, STREAM_SIGNATURE)
        self.arenas = {}
        self.held = {}
        self.lanes = self.core.lanes()

    def malloc(self, size):
        """Serve a request of `size` bytes: a `cupy.cuda.MemoryPointer`. Errors are upstream's own."""
        hooks = self.watching()
        if len(hooks):
            return self.hooked(self, size, hooks)
        return self.serve(size, Lease.__new__(Lease))

    def malloc_watched(self, size):
        """As `malloc`, without looking for memory hooks: return (MemoryPointer, lease)."""
        lease = Lease.__new__(Lease)
        return self.serve(size, lease), lease

    cdef watching(self):
        """The calling thread's memory hooks. CuPy looks them up by name in a thread-local: this asks once a thread."""
        cdef uint64_t thread = PyThreadState_GetID(PyThreadState_Get())
        if thread == self.hooks_thread:
            return self.hooks
        hooks = self.hooks_of_thread()
        former = self.hooks  # must not die between the two lines below: its death may let another thread run
        self.hooks = hooks
        self.hooks_thread = thread
        return hooks

    cdef tell_freed(self, event):
        """Tell the hooks of the thread that frees, as CuPy does; not while the interpreter goes down."""
        if not sys.is_finalizing():
            hooks = self.watching()
            if hooks:
                self.told(event, hooks)

    cdef serve(self, size, Lease lease):
        cdef int64_t stream = 0
        cdef Grant grant
        if self.stream_pointer != NULL:
            stream = self.stream_pointer()
        elif self.current_stream is not None:
            stream = self.current_stream()
        grant = self.core.request(size, stream)
        lease.block = grant.id
        lease.pool = self
        if grant.address == 0:
            self.ask_upstream(lease, size, grant.reason)
            grant.address = lease.memory.ptr
            self.core.adopt(grant.id, grant.address)
        elif grant.waits:
            self.wait_for_uses(grant.id, stream)
        return self.memory_pointer(self.unowned_memory(grant.address, size, lease, self.device_number), 0)

    cdef ask_upstream(self, Lease lease, size, uint8_t reason):
        allocator = self.sampling if reason == <uint8_t>Reason.no_plan else self.upstream
        self.settle()
        try:
            lease.memory = self.ask(allocator, size)
        except Exception:
            if not self.give_back():
                self.fail(lease)
                raise
            try:
                lease.memory = self.ask(allocator, size)
            except Exception:
                self.fail(lease)
                raise

    cdef fail(self, Lease lease):
        """Note what the failing request found, and have the error that is on its way say so."""
        self.lanes.note_failure(lease.block)
        if self.failed is not None:
            self.failed(sys.exc_info()[1])

    cdef ask(self, allocator, size):
        memory = allocator(size)
        if not isinstance(memory, self.memory_pointer):
            raise PoolError(f"upstream returned {memory!r}; expected a cupy.cuda.MemoryPointer")
        return memory

    # ------------------------------------------------------------------------------------------------------ arenas

    cdef make_idle(self):
        if self.streams is not None:
            self.streams.synchronize()

    def reserve(self, uint16_t lane, int64_t size):
        """Make a lane's arena at least this large; False where upstream has no memory for it."""
        if size <= self.lanes.arena_size(lane):
            return True
        try:
            memory = self.ask(self.upstream, size)
        except Exception:
            return False
        self.make_idle()  # what streams still do with its memory is over then
        self.arenas[memory.ptr] = Busy.__new__(Busy, memory, self.streams)
        self.lanes.reserve(lane, memory.ptr, size)
        self.drop_dead_arenas()
        return True

    def drop_dead_arenas(self):
        """Give back retired arenas in which nothing lives; return how many."""
        dead = list(self.lanes.take_dead_arenas())
        for base in dead:
            del self.arenas[base]
        return len(dead)

    def give_back(self):
        """Give back what is held, and every arena in which nothing lives; return how many."""
        cdef size_t held = len(self.held)
        if held:
            self.make_idle()
            self.settle()
        self.lanes.retire_idle_arenas()
        return self.drop_dead_arenas() + held - len(self.held)

    # ------------------------------------------------------------------------------------------------------- steps

    def enter(self):
        """See `Backend`."""
        self.settle()
        return Backend.enter(self)

    cdef bint may_wait(self) except -1:
        """Whether the current stream may be made to wait: not for work from before its capture, while it is captured."""
        return self.streams is None or not self.streams.capturing()

    def end(self, uint16_t berth):
        """See `Backend`."""
        outcomes = Backend.end(self, berth)
        self.drop_dead_arenas()
        return outcomes

    def take_outcomes(self):
        """Return [(lane, (log, complete, clean, tag))] of steps found that have ended."""
        self.drop_dead_arenas()
        return Backend.take_outcomes(self)

    # ----------------------------------------------------------------------------------------------------- streams

    def record_stream(self, Lease lease, stream):
        """Note that a block is used on another stream than its own, too."""
        if self.streams is None or stream.ptr == self.core.stream_of(lease.block):
            return
        if lease.used_on is None:
            lease.used_on = []
        if all(other.ptr != stream.ptr for other in lease.used_on):
            lease.used_on.append(stream)

    cdef hold(self, uint32_t block, list streams, memory):
        """Free a block that other streams may still use. Runs in finalizers: nothing is raised."""
        if sys.is_finalizing():
            self.core.release(block)
            return
        try:
            events = [self.streams.record(stream) for stream in streams]
        except Exception:
            # A stream that takes no event has ended badly, or its context has.
            try:
                self.make_idle()
            except Exception:
                pass
            self.core.release(block)
            return
        busy = None if memory is None else Busy.__new__(Busy, memory, self.streams)
        self.held[block] = Held.__new__(Held, streams, events, busy)
        self.core.hold(block, None not in events)

    cdef wait_for_uses(self, uint32_t granted, int64_t stream):
        """Have a stream wait for what other streams do with the blocks whose place it is given."""
        awaited = self.core.awaited(granted)
        events = []
        for block in awaited:
            held = <Held>self.held.pop(block, None)
            if held is not None:
                events += held.events
        self.core.drop_awaited(granted)
        for event in events:
            self.streams.wait(stream, event)

    def settle(self):
        """Let go of the held blocks that no stream uses any more. Not while the current stream is being captured."""
        cdef Held held
        if not self.held or self.streams.capturing():
            return
        for block in list(self.held):
            held = self.held.get(block)
            if held is None:
                continue
            for i, event in enumerate(held.events):
                if event is None:
                    held.events[i] = self.streams.record(held.streams[i])
            if all(event is not None and self.streams.done(event) for event in held.events):
                if self.held.pop(block, None) is not None:
                    self.core.let_go(block)
                    if held.memory is not None:
                        held.memory.idle = True


@cython.final
cdef class DeviceRouter:
    """The pools of several devices as one CuPy allocator: a request goes to the pool of its current device.

    Parameters
    ----------
    current_device
        ``f() -> int``, or a capsule with CuPy's C function ``get_device_id``.
    pool_of
        ``f(device) -> DevicePool``: asked once for each device.
    """

    cdef object current_device, pool_of
    cdef device_function device_number
    cdef list pools  # by device number, None where not asked for yet

    def __cinit__(self, current_device, pool_of):
        self.current_device, self.pool_of = current_device, pool_of
        if PyCapsule_IsValid(current_device, DEVICE_SIGNATURE):
            self.device_number = <device_function>PyCapsule_GetPointer(current_device, DEVICE_SIGNATURE)
        self.pools = []

    def malloc(self, size):
        """Serve a request of `size` bytes: a `cupy.cuda.MemoryPointer`. Errors are upstream's own."""
        cdef Py_ssize_t device
        if self.device_number != NULL:
            device = self.device_number(0)
        else:
            device = self.current_device()
        if device >= len(self.pools):
            self.pools.extend([None] * (device + 1 - len(self.pools)))
        if self.pools[device] is None:
            self.pools[device] = self.pool_of(device)
        return (<DevicePool>self.pools[device]).malloc(size)
