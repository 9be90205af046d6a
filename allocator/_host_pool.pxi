# Pools of host memory: the lanes behind a NumPy memory handler, for a context or the process. Included by _core.pyx.

def keep_host_memory():
    """Have the C library keep what is freed, for the whole process; see core/host/host_pool.hpp."""
    keep_freed_memory()


cdef class HostBackend(Backend):
    """Lanes over host memory; a subclass owns the memory, and says where its requests come from."""

    cdef HostMemory* memory
    cdef readonly int64_t limit
    # Of each class below it.
    #: def install(self) -> None: ...
    #: def uninstall(self) -> None: ...
    #: @property
    #: def installed(self) -> bool: ...

    def __dealloc__(self):
        del self.lanes

    @property
    def small(self) -> int:
        """Requests below this many bytes are not planned."""
        return self.memory.small()

    def lower_small(self, size_t small):
        """Have requests from so many bytes on planned, if that is fewer than before."""
        self.memory.lower_small(small)

    @property
    def grows_in_place(self) -> bool:
        """Always: its addresses are set aside."""
        return True

    def reserve(self, uint16_t lane, int64_t size) -> bool:
        """Make a lane's arena at least this large; False where upstream has no memory for it."""
        return host_reserve(self.memory[0], lane, size)

    def serve_by_heap(self):
        """Serve by the heap alone until a step is marked."""
        host_serve_by_heap(self.memory[0])

    cdef int refuse_second(self, cbool taken) except -1:
        if taken:
            raise PoolError(
                f"{'this pool' if self.installed else 'another pool'} serves already, and it serves the whole "
                "process; expected one at a time: uninstall it first"
            )
        return 0

    cdef int refuse_absent(self) except -1:
        if not self.installed:
            raise PoolError("this pool is not installed")
        return 0

    def counters(self) -> dict[str, Any]:
        """Return the counters of all lanes, and of the heap where it has served alone."""
        return _counters(host_counters(self.memory[0]))

    def trim(self):
        """Give back to the system what is kept for later."""
        host_trim(self.memory[0])


cdef class HandlerPool(HostBackend):
    """The lanes behind a NumPy memory handler.

    The capsule owns the core: arrays hold the capsule, so either may be dropped first.
    """

    cdef readonly object handler  #: Any
    cdef object default_handler  # in whose place it can be installed
    cdef object entries  # of each thread that has entered: NumPy's handlers before, and how many are its parent's

    def __init__(self, name: str, default_handler: Any, size_t small, int64_t limit=0):
        self.handler = make_pool_capsule(name.encode(), default_handler, small)
        self.memory = memory_of(self.handler)
        self.limit, self.default_handler = limit, default_handler
        self.entries = local()
        host_limit(self.memory[0], limit)
        self.lanes = new LockedLanes(self.memory.lock(), self.memory.service().lanes())

    @property
    def is_innermost(self) -> bool:
        """Whether it serves this context."""
        return PyDataMem_GetHandler() is self.handler

    def start_serving(self):
        """Serve this context, until `stop_serving`."""
        cdef list before = self._before()
        if len(before) > getattr(self.entries, "inherited", 0):
            raise PoolError("this thread has entered this pool already")
        before.append(PyDataMem_SetHandler(self.handler))

    def stop_serving(self):
        """Have the handler before serve it."""
        cdef list before = self._before()
        if not (before and self.is_innermost):
            raise PoolError(
                "this pool does not serve here: leave it in the thread or task that entered it, "
                "and leave pools that were entered after it first"
            )
        PyDataMem_SetHandler(before.pop())

    cdef list _before(self):
        try:
            return self.entries.before
        except AttributeError:
            self.entries.before = before = []
            return before

    def inherit(self):
        """Let this thread, which a fork has begun, enter once more what its parent has entered: it serves already."""
        self.entries.inherited = len(self._before()) if self.is_innermost else 0

    def install(self):
        """Serve in the place of NumPy's default handler, from now on; see default_handler.hpp."""
        self.refuse_second(is_installed(None))
        install(self.default_handler, self.handler)

    @property
    def installed(self) -> bool:
        """Whether it does."""
        return is_installed(self.handler)

    def uninstall(self):
        """Serve there no longer."""
        self.refuse_absent()
        uninstall()
