# The pool of a device as a CuPy allocator, and those of several. Included by _core.pyx.

@cython.final
@cython.no_gc_clear  # its pools must still be there when it dies in a cycle
cdef class DevicePool(CudaPool):
    """The pool of one device as a CuPy allocator.

    Parameters
    ----------
    pools, device
        As for `CudaPool`.
    upstream
        The program's own: ``f(size) -> MemoryPointer`` in `malloc`, and `trim`, `reserved`, `reset_peak`; or None.
    sampling
        ``f(size) -> MemoryPointer``: what serves steps without a plan; or None: as all others.
    memory_pointer, unowned_memory
        CuPy's classes.
    streams
        The current stream's handle (``f() -> int``, or a capsule with CuPy's C function), the stream itself
        (``f() -> Stream``), and the class of CuPy's own streams; None: everything is on stream 0.
    hooks_of_thread
        ``f() -> dict``: the calling thread's memory hooks, for one thread always the same object.
    hooked
        ``f(pool, size, hooks)``: how to serve a request while memory hooks are watching.
    told
        ``f(event, hooks)``: how to tell memory hooks of a block's end.
    refused
        ``f(size, status, own)``: the exception for what is refused: the number of CUDA's error, and what the program's
        own allocator has raised, or None.
    """

    cdef readonly object upstream  #: Any
    cdef object memory_pointer, unowned_memory, get_current_stream, device_number
    cdef object hooks_of_thread, hooked, told, refused, current_stream
    cdef Keeper keeper
    cdef stream_function stream_pointer
    cdef object hooks  # of the thread `hooks_thread`
    cdef uint64_t hooks_thread  # Python's number for a thread, which never comes again; 0 for none

    def __init__(
        self,
        CudaPools pools,
        int device,
        upstream: Any,
        sampling: Any,
        memory_pointer: Any,
        unowned_memory: Any,
        streams: tuple[Any, Any, Any] | None,
        hooks_of_thread: Any,
        hooked: Any,
        told: Any,
        refused: Any,
    ):
        cdef Allocator program
        self.device_number = device
        self.upstream = upstream
        self.memory_pointer, self.unowned_memory = memory_pointer, unowned_memory
        self.current_stream, self.get_current_stream, stream_class = streams or (None, None, None)
        self.hooks_of_thread, self.hooked, self.told, self.refused = hooks_of_thread, hooked, told, refused
        if PyCapsule_IsValid(self.current_stream, STREAM_SIGNATURE):
            self.stream_pointer = <stream_function>PyCapsule_GetPointer(self.current_stream, STREAM_SIGNATURE)
        keeper = self.keeper = Keeper()
        keeper.core = &self.pool.memory()
        keeper.owner, keeper.allocate, keeper.sampling = upstream, getattr(upstream, "malloc", None), sampling
        keeper.memory_pointer, keeper.stream_class = memory_pointer, stream_class
        _kept[<uintptr_t>pools.pools].append(keeper.streams)
        program.self = <void*>keeper
        program.serves_all, program.serves_samples = upstream is not None, sampling is not None
        program.take, program.give, program.collect, program.has_dropped = _take, _give, _collect, _has_dropped
        if upstream is not None:
            program.trim = _trim
        self.pool.memory().use(program)

    def __dealloc__(self):
        if stow_is_finalizing():
            return
        self.keeper.allocate = self.keeper.sampling = None  # which may have the pool
        _kept[<uintptr_t>self.pools.pools].append(self.keeper)

    def reserved(self) -> tuple[int, int] | None:
        return CudaPool.reserved(self) if self.upstream is None else self.upstream.reserved()

    def reset_peaks(self):
        CudaPool.reset_peaks(self)
        if self.upstream is not None:
            self.upstream.reset_peak()

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
        cdef int64_t stream = 0, bytes = size
        cdef int error = 0
        if bytes > 0:
            if self.stream_pointer != NULL:
                stream = self.stream_pointer()
            elif self.current_stream is not None:
                stream = self.current_stream()
            if stream != self.keeper.last_stream:
                self.meet(stream)
            if not self.pool.serve(bytes, stream, <void*>lease, lease.served, error):
                raise self.refused(size, error, self.keeper.error())
            lease.pool = self
            if PyDict_Size(self.keeper.errors):  # the arena has served it: an error's frames keep what they have
                self.keeper.error()
        elif bytes < 0:  # CuPy's sizes wrap where an array is too large for 64 bits
            raise OverflowError(f"a request of {size:,} bytes; expected 0 or more")
        return self.memory_pointer(self.unowned_memory(lease.served.address, size, lease, self.device_number), 0)

    # ----------------------------------------------------------------------------------------------------- streams

    cdef meet(self, int64_t stream):
        """Note that the current stream asks for memory."""
        if self.current_stream is not None:
            kept = self.keeper.streams.get(stream)
            if kept is None or isinstance(kept, ref):  # which may be of another object than the current stream
                self.keeper.keep(self.get_current_stream())
        self.keeper.last_stream = stream

    def reserve(self, uint16_t lane, int64_t size) -> bool:
        if self.upstream is not None and self.current_stream is not None:  # which may be there in this stream's order
            stream = self.get_current_stream()
            self.keeper.keep(stream)
            self.pool.memory().note_stream(stream.ptr)
        reserved = CudaPool.reserve(self, lane, size)
        self.keeper.error()
        return reserved

    def record_stream(self, Lease lease, stream: Any):
        """Note that a block is used on another stream than its own, too."""
        if lease.pool is None or self.current_stream is None:
            return
        self.keeper.keep(stream)
        if lease.used_on is None:
            lease.used_on = []
        if isinstance(stream, self.keeper.stream_class):
            lease.used_on.append(stream)
        if lease.uses == NULL:
            lease.uses = new Uses()
        self.pool.use(lease.served, stream.ptr, lease.uses[0])


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
