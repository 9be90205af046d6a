# The replay core as a C allocator of CUDA memory, for PyTorch and CuPy. Included by _core.pyx.

ctypedef intptr_t (*stream_pointer)() noexcept


cdef extern from "cuda_pool.hpp" namespace "stowplan::allocator" nogil:
    cdef cppclass CudaGraphs:
        int64_t reserved_bytes()

    cdef cppclass CudaMemory:
        int64_t limit()
        void set_fraction(double)
        CSegments& segments()

    cdef cppclass CCudaPool "stowplan::allocator::CudaPool":
        LockedLanes* lanes()
        CDevicePool& pool()
        CudaMemory& memory()
        CudaGraphs& graphs()
        void record_stream(void*, int64_t) except +
        cbool reserve(uint16_t, int64_t) except +
        size_t give_back() except +
        void settle() except +
        bint make_idle()

    cdef cppclass CCudaPools "stowplan::allocator::CudaPools":
        CCudaPools(const CudaApi&, Scope, int64_t) except +
        CCudaPool& on(int) except +
        void record_stream(void*, int64_t) except +
        void abandon()
        cbool has_served()
        cbool is_idle() except +
        stream_pointer current_stream

    CCudaPools* installed_pools "stowplan::allocator::CudaPools::installed"()
    void install_pools "stowplan::allocator::CudaPools::install"(CCudaPools*)


cdef vector[CCudaPools*] _busy  # of `CudaPools` that are gone, with blocks that are not
cdef dict _streams = {}  # CuPy's, by address of the `CudaPools` that have to wait for them, and by handle


cdef void _destroy_idle():
    cdef CCudaPools* pools
    cdef vector[CCudaPools*] all_
    cdef cbool idle
    all_.swap(_busy)
    for pools in all_:
        with nogil:
            idle = pools.is_idle()
        if idle:
            streams = _streams.pop(<uintptr_t>pools, None)  # now, as another's address may be the same
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
        Address of a table of functions (core/device/cuda_api.hpp); 0: those of the driver that the process has loaded.

    Raises
    ------
    PoolError
        There is no driver, or it lacks a function.
    """

    cdef CCudaPools* pools
    cdef object current_stream  # kept for its function

    def __init__(self, Scope scope, int64_t limit=0, uintptr_t table=0):
        cdef CudaApi api
        cdef string missing
        if table != 0:
            api = (<CudaApi*>table)[0]
        else:
            missing = find_driver(api)
            if not missing.empty():
                raise PoolError(f"no CUDA driver with {missing.decode()}; expected libcuda.so.1 of CUDA 11.3 or later")
        self.pools = new CCudaPools(api, scope, limit)
        _streams[<uintptr_t>self.pools] = {}

    def __dealloc__(self):
        if self.pools != NULL and self.pools != installed_pools():  # else it stays, as PyTorch does
            _busy.push_back(self.pools)  # CuPy's arrays do not keep what they are freed by
            _destroy_idle()

    @property
    def address(self) -> int:
        """What CuPy's C functions take as their first argument."""
        return <uintptr_t>self.pools

    @property
    def streams(self) -> dict[int, Any]:
        """Streams of CuPy's that were served, by handle: kept as long as the pools may have to wait for them."""
        return _streams[<uintptr_t>self.pools]

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


@cython.final
@cython.no_gc_clear  # its pools must still be there when it dies in a cycle
cdef class CudaPool(DeviceBackend):
    """The pool of one device.

    Parameters
    ----------
    pools
        Whose it is.
    device
        Device number.
    """

    cdef CCudaPool* pool
    cdef CudaPools pools

    def __init__(self, CudaPools pools, int device):
        self.pools = pools
        self.pool = &pools.pools.on(device)
        self.lanes, self.arenas = self.pool.lanes(), &self.pool.pool()
        self.memory = segments_of(&self.pool.memory().segments(), pools)

    @property
    def limit(self) -> int:
        """The most bytes that arenas and blocks may take together; 0: as many as there are."""
        return self.pool.memory().limit()

    def set_fraction(self, double fraction):
        """Limit them to a share of the device's memory."""
        self.pool.memory().set_fraction(fraction)

    @property
    def graph_bytes(self) -> int:
        """Bytes that CUDA graphs have for themselves; not among the counts."""
        return self.pool.graphs().reserved_bytes()

    cdef bint make_idle(self) except -1:
        with nogil:
            return self.pool.make_idle()

    def settle(self):
        _destroy_idle()
        with nogil:
            self.pool.settle()

    def reserve(self, uint16_t lane, int64_t size) -> bool:
        """Make a lane's arena at least this large; False where CUDA has no memory for it."""
        cdef cbool reserved
        with nogil:
            reserved = self.pool.reserve(lane, size)
        return reserved

    def give_back(self) -> int:
        """Give back what is held, arenas in which nothing lives, and what CUDA's allocator keeps; return how many."""
        cdef size_t given
        with nogil:
            given = self.pool.give_back()
        return given
