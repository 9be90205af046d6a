# The replay core as a C allocator of CUDA memory, for PyTorch and CuPy. Included by _core.pyx.

ctypedef intptr_t (*stream_pointer)() noexcept nogil

cdef vector[CCudaPools*] _busy  # of `CudaPools` that are gone, with blocks that are not
cdef dict _kept = {}  # by address of the pools, as long as they are there: CuPy's streams by handle, `Keeper`s


cdef void _destroy_idle():
    cdef CCudaPools* pools
    cdef vector[CCudaPools*] all_
    cdef cbool idle
    all_.swap(_busy)
    for pools in all_:
        with nogil:
            idle = pools.is_idle()
        if idle:
            kept = _kept.pop(<uintptr_t>pools, None)  # now, as another's address may be the same
            for keeper in kept:
                if isinstance(keeper, Keeper):
                    (<Keeper>keeper).core = NULL
            with nogil:
                del pools
        else:
            _busy.push_back(pools)


def any_cuda_installed() -> bool:
    """Whether a pool serves PyTorch's requests of CUDA memory."""
    return installed_pools() != NULL


@cython.final
cdef class CudaPools:
    """The pools of all devices of a process, as C functions have them.

    Parameters
    ----------
    scope
        Whose steps are told apart.
    limit
        Bytes that arenas and blocks may take together on each device; 0: as many as there are.
    table
        Address of a table of functions (core/device/cuda_api.hpp); 0: those of the driver that the process has loaded;
        None: there is no device.

    Raises
    ------
    PoolError
        There is no driver, or it lacks a function.
    """

    cdef CCudaPools* pools
    cdef object current_stream  # kept for its function

    def __init__(self, Scope scope, int64_t limit=0, table: int | None = 0):
        cdef CudaApi api
        cdef string missing
        if table is None:
            api = no_device()
        elif table != 0:
            api = (<CudaApi*><uintptr_t>table)[0]
        else:
            missing = find_driver(api)
            if not missing.empty():
                raise PoolError(f"no CUDA driver with {missing}; expected libcuda.so.1 of CUDA 11.3 or later")
        self.pools = new CCudaPools(api, scope, limit)
        _kept[<uintptr_t>self.pools] = [{}]

    def __dealloc__(self):
        if self.pools != NULL and self.pools != installed_pools() and not stow_is_finalizing():  # else it stays
            _busy.push_back(self.pools)  # CuPy's arrays do not keep what they are freed by
            _destroy_idle()

    @property
    def address(self) -> int:
        """What CuPy's C functions take as their first argument."""
        return <uintptr_t>self.pools

    @property
    def streams(self) -> dict[int, Any]:
        """Streams of CuPy's that were served, by handle: kept as long as the pools may have to wait for them."""
        return _kept[<uintptr_t>self.pools][0]

    @property
    def has_served(self) -> bool:
        return self.pools.has_served()

    def follow_stream(self, current_stream: Any):
        """Take for CuPy's current stream what this says: a capsule with its C function, or the address of one."""
        self.current_stream = current_stream
        if isinstance(current_stream, int):
            self.pools.current_stream = <stream_pointer><uintptr_t>current_stream
        else:
            self.pools.current_stream = <stream_pointer>PyCapsule_GetPointer(current_stream, STREAM_SIGNATURE)

    def install(self):
        """Serve PyTorch's requests, from now on and for good."""
        install_pools(self.pools)

    def take_back(self):
        """Take back an installation that nothing has been asked of yet."""
        install_pools(NULL)

    @property
    def installed(self) -> bool:
        return installed_pools() == self.pools

    def record_stream(self, uintptr_t address, int64_t stream):
        """Note that a block is used on another stream than its own, too."""
        self.pools.record_stream(<void*>address, stream)

    def abandon(self):
        """Serve nothing, and take nothing back: a fork has left CUDA behind."""
        self.pools.abandon()


@cython.no_gc_clear  # its pools must still be there when it dies in a cycle
cdef class CudaPool(Backend):
    """The pool of one device.

    Parameters
    ----------
    pools
        Whose it is.
    device
        Device number.
    """

    cdef CCudaPool* pool
    cdef CDeviceHeap* heap
    cdef CudaPools pools
    cdef readonly int device

    def __cinit__(self, CudaPools pools, int device, *_: Any):
        self.pools, self.device = pools, device
        self.pool = &pools.pools.on(device)
        self.heap = &self.pool.memory().heap()
        self.lanes = self.pool.lanes()

    @property
    def grows_in_place(self) -> bool:
        return self.pool.pool().has_virtual_memory()

    @property
    def bottom_last(self) -> bool:
        return self.pool.pool().has_virtual_memory()

    @property
    def limit(self) -> int:
        """The most bytes that arenas and blocks may take together; 0: as many as there are."""
        return self.pool.memory().limit()

    @limit.setter
    def limit(self, int64_t limit):
        self.heap.set_limit(limit)

    def set_fraction(self, double fraction):
        """Limit them to a share of the device's memory."""
        self.pool.memory().set_fraction(fraction)

    @property
    def graph_bytes(self) -> int:
        """Bytes that CUDA graphs have for themselves; not among the counts."""
        return self.pool.graphs().reserved_bytes()

    @property
    def free_ranges(self) -> int:
        """Ranges of addresses in which nothing lives."""
        return self.heap.free_ranges()

    def reserved(self) -> tuple[int, int] | None:
        """Return the bytes held of the device, arenas included, and the most so far; None: nobody knows."""
        return self.heap.held(), self.heap.peak()

    def counters(self) -> dict[str, Any]:
        """As `Backend`; bytes reserved as the memory counts them, where it does, with what it keeps free."""
        counters = Backend.counters(self)
        if (reserved := self.reserved()) is not None:
            held, counters["peak_reserved_bytes"] = reserved
            counters["reserved_bytes"] = held
            counters["kept_bytes"] = max(0, held - counters["arena_bytes"] - counters["upstream_bytes"])
        return counters

    def reset_peaks(self):
        Backend.reset_peaks(self)
        self.heap.reset_peak()

    def enter(self) -> tuple[int, int, list[int]] | None:
        self.settle()
        self.heap.begin_step()
        with nogil:
            self.heap.make_room()
        return Backend.enter(self)

    def end(self, uint16_t step_slot, uint64_t step) -> list[tuple[int, StepOutcome]]:
        outcomes = Backend.end(self, step_slot, step)
        with nogil:
            self.pool.pool().drop_dead_arenas()
        return outcomes

    cdef note_users(self):
        with nogil:
            self.pool.pool().note_users()
            self.pool.make_idle()

    cdef bint make_idle(self) except -1:
        with nogil:
            return self.pool.make_idle()

    def settle(self):
        """Let go of the held blocks that no stream uses any more. Not while a stream is being captured."""
        _destroy_idle()
        with nogil:
            self.pool.settle()

    def reserve(self, uint16_t lane, int64_t size) -> bool:
        """Make a lane's arena at least this large; False where there is no memory for it."""
        return self.pool.reserve(lane, size)

    def give_back(self) -> int:
        """Give back what is held, arenas in which nothing lives, and what is free; return how many of the first two."""
        return self.pool.give_back()
