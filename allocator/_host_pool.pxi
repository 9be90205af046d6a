# Pools of host memory: the lanes behind a NumPy memory handler, for a context or the process. Included by _core.pyx.

def keep_host_memory():
    """Have the C library keep what is freed, for the whole process; see core/host/host_pool.hpp."""
    keep_freed_memory()


cdef class HostBackend(Backend):
    """Lanes over host memory; a subclass owns the memory, and says where its requests come from."""

    cdef HostMemory* memory
    cdef readonly int64_t limit

    def __dealloc__(self):
        del self.lanes

    @property
    def small(self):
        """Requests below this many bytes are not planned."""
        return self.memory.small()

    def lower_small(self, size_t small):
        """Have requests from so many bytes on planned, if that is fewer than before."""
        self.memory.lower_small(small)

    @property
    def grows_in_place(self):
        """Always: its addresses are set aside."""
        return True

    def reserve(self, uint16_t lane, int64_t size):
        """Make a lane's arena at least this large; False where upstream has no memory for it."""
        return host_reserve(self.memory[0], lane, size)

    def serve_by_heap(self):
        """Serve by the heap alone until a step is marked."""
        host_serve_by_heap(self.memory[0])

    def counters(self):
        """Return the counters of all lanes, and of the heap where it has served alone."""
        return _counters(host_counters(self.memory[0]))

    def trim(self):
        """Give back to the system what upstream keeps for later."""
        host_trim(self.memory[0])

    def drop_idle_pages(self):
        """Give back the pages of arenas in which nothing lives."""
        host_drop_idle_pages(self.memory[0])


cdef class HandlerPool(HostBackend):
    """The lanes behind a NumPy memory handler.

    The capsule owns the core: arrays hold the capsule, so either may be dropped first.
    """

    cdef readonly object handler
    cdef object default_handler  # in whose place it can be installed

    def __init__(self, name, default_handler, size_t small, int64_t limit=0):
        self.handler = make_pool_capsule(name.encode(), default_handler, small)
        self.memory = memory_of(self.handler)
        self.limit, self.default_handler = limit, default_handler
        host_limit(self.memory[0], limit)
        self.lanes = new LockedLanes(self.memory.lock(), self.memory.service().lanes())

    def install(self):
        """Serve in the place of NumPy's default handler, from now on; see default_handler.hpp."""
        install(self.default_handler, self.handler)

    @property
    def installed(self):
        """Whether it does."""
        return is_installed(self.handler)

    @property
    def taken(self):
        """Whether a pool, this one or another, serves in the place of NumPy's default handler."""
        return is_installed(None)

    def uninstall(self):
        """Serve there no longer. Precondition: it does."""
        uninstall()
