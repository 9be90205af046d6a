# The replay core as a CuPy allocator: the pool of a device, the pools of several. Included by _core.pyx.

@cython.final
@cython.no_gc_clear  # what the core keeps is dropped by it
cdef class DevicePool(DeviceBackend):
    """The replay core of one device as a CuPy allocator.

    Parameters
    ----------
    device
        Device number.
    memory
        What serves unplanned requests: a `SegmentPool` or an `UpstreamMemory`.
    sampling
        ``f(size) -> MemoryPointer``: what serves those of steps without a plan.
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
    cdef object device_number, sampling, memory_pointer, unowned_memory
    cdef object hooks_of_thread, hooked, told, streams, current_stream
    cdef public object failed  # upstream had no memory for a request  #: Callable[[BaseException], object] | None
    cdef stream_function stream_pointer
    cdef object hooks  # of the thread `hooks_thread`
    cdef uint64_t hooks_thread  # Python's number for a thread, which never comes again; 0 for none
    cdef dict kept  # token -> what the core keeps: here, so that the garbage collector sees it
    cdef list captured  # upstream's memory that a graph uses, which may be launched as long as there is the pool
    cdef int64_t last_stream
    cdef uint64_t streams_seen
    cdef uint64_t last_token

    def __cinit__(
        self,
        int device,
        memory: Any,
        sampling: Any,
        memory_pointer: Any,
        unowned_memory: Any,
        streams: Any,
        hooks_of_thread: Any,
        hooked: Any,
        told: Any,
    ):
        self.device = self.device_number = device
        self.memory, self.sampling = memory, sampling
        self.memory_pointer, self.unowned_memory = memory_pointer, unowned_memory
        self.hooks_of_thread, self.hooked, self.told = hooks_of_thread, hooked, told
        self.streams = streams
        if streams is not None:
            self.current_stream = streams.current
        if PyCapsule_IsValid(self.current_stream, STREAM_SIGNATURE):
            self.stream_pointer = <stream_function>PyCapsule_GetPointer(self.current_stream, STREAM_SIGNATURE)
        self.kept = {}
        self.captured = []
        self.last_stream = -1
        cdef Device owner
        owner.owner = <void*>self
        owner.ask = _ask
        owner.trim = _trim
        owner.room = _room
        owner.note_arenas = _note_arenas
        owner.capturing = _capturing
        owner.synchronize = _synchronize
        owner.record = _record
        owner.done = _done
        owner.wait = _wait
        owner.unguard = _unguard
        owner.drop = _drop
        owner.forget_error = _forget_error
        self.core.connect(owner)
        self.lanes, self.arenas = self.core.lanes(), &self.core

    def __dealloc__(self):
        cdef Mappings mappings = Mappings.__new__(Mappings)
        mappings.arenas = self.core.close()
        if mappings.arenas.size() == 0:
            return
        if stow_is_finalizing():  # streams may use them, and cannot be waited for
            (new vector[VirtualArenaPtr]()).swap(mappings.arenas)
        Guard.__new__(Guard, mappings, self.streams)

    @cython.binding(False)  # a call of it costs less
    def malloc(self, size: int) -> Any:
        """Serve a request of `size` bytes: a `cupy.cuda.MemoryPointer`. Errors are upstream's own."""
        hooks = self.watching()
        if PyDict_Size(hooks):
            return self.hooked(self, size, hooks)
        return self.serve(size, Lease.__new__(Lease))

    def malloc_watched(self, size: int) -> tuple[Any, Lease]:
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
        if not stow_is_finalizing():
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
        if self.streams is not None and (stream != self.last_stream or self.streams_seen != streams_changed):
            self.streams.serve(stream)
            self.last_stream = stream
            self.streams_seen = streams_changed
        grant = self.core.request(size, stream)
        lease.block = grant.id
        lease.pool = self
        if grant.id == NO_BLOCK:
            lease.memory = self.memory.malloc(size)
            grant.address = lease.memory.ptr
        elif grant.address == 0:
            grant.address = self.ask_upstream(lease, size, grant.reason)
        return self.memory_pointer(self.unowned_memory(grant.address, size, lease, self.device_number), 0)

    cdef uintptr_t ask_upstream(self, Lease lease, int64_t size, uint8_t reason) except? 0:
        """Give a lease upstream's memory; return its address. Errors are upstream's, and say what the request found."""
        cdef Answer answer = self.core.ask_upstream(lease.block, size, <Reason>reason, <void*>lease)
        if answer.error != 0:
            error = self.kept.pop(answer.error)
            if answer.out_of_memory and self.failed is not None:
                self.failed(error)
            raise error
        return answer.address

    cdef uint64_t keep(self, thing) except 0:
        """Keep an object until the core drops it."""
        cdef uint64_t token = self.last_token + 1
        self.last_token = token
        self.kept[token] = thing
        return token

    # ------------------------------------------------------------------------------------------------------ arenas

    cdef bint make_idle(self) except -1:
        if self.streams is not None:
            if self.streams.capturing():
                return False
            self.streams.synchronize()
        return True

    def use_virtual_memory(self, Segments segments):
        """Take arenas from the device's virtual memory, if it has any. The segments come in the same pages, then."""
        cdef VirtualMemory memory = virtual_memory_of(segments.api, self.device)
        if memory.page() > 0:
            self.core.use_virtual_memory(memory)
            segments.set_page(memory.page())

    def reserve(self, uint16_t lane, int64_t size) -> bool:
        """Make a lane's arena at least this large; False where there is no memory for it."""
        return self.core.reserve(lane, size)

    def give_back(self) -> int:
        """Give back what is held, and every arena in which nothing lives; return how many."""
        give_what_waits()
        return self.core.give_back()

    # ----------------------------------------------------------------------------------------------------- streams

    def record_stream(self, Lease lease, stream: Any):
        """Note that a block is used on another stream than its own, too."""
        if self.streams is None:
            return
        if lease.block != NO_BLOCK and stream.ptr == self.core.stream_of(lease.block):
            return
        kept = self.streams.keep(stream)
        if lease.used_on is None:
            lease.used_on = {}
        lease.used_on[stream.ptr] = kept

    cdef hold(self, uint32_t block, streams, memory):
        """Free a block that other streams may still use. Runs in finalizers: nothing is raised."""
        cdef vector[uint64_t] tokens
        if block == NO_BLOCK:
            Guard.__new__(Guard, memory, self.streams)  # goes at once, when the device is done
            return
        if stow_is_finalizing():
            self.core.release(block)
            return
        for stream in streams:
            tokens.push_back(self.keep(stream))
        self.core.hold(block, tokens, 0 if memory is None else self.keep(Guard.__new__(Guard, memory, self.streams)))

    def settle(self):
        """Let go of the held blocks that no stream uses any more. Not while a stream is being captured."""
        give_what_waits()
        self.core.settle()


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

    def __cinit__(self, current_device: Any, pool_of: Callable[[int], DevicePool]):
        self.current_device, self.pool_of = current_device, pool_of
        if PyCapsule_IsValid(current_device, DEVICE_SIGNATURE):
            self.device_number = <device_function>PyCapsule_GetPointer(current_device, DEVICE_SIGNATURE)
        self.pools = []

    @cython.binding(False)
    def malloc(self, size: int) -> Any:
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
